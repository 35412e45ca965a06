"""Findings: what preflight found, as text or JSON."""

import json
import platform
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from capturable.rules import KINDS, RULES

PLACES = {
    "cpu": "the CPU, in place of a GPU",
    "stand-in": "the stand-in for CUDA graphs, in place of a GPU",
    "cuda": "a GPU",
}
UNSEEN_ON_CPU = "copies of tensors kept on the CPU, side streams, waits that no table knows"
BETWEEN = "what happens between the calls (python -m cpu_graph run SCRIPT)"
UNSEEN_UNVERIFIED = "C extensions and Triton kernels (verify=True, --verify)"


class Finding(NamedTuple):
    """A fault: its rule (one of capturable.rules.RULES), the line, what was found, and the fix.

    line: "function:number  text" of the user's code, or a name. level: "fault", or "note" for what
    most captures are fine with. file, number: where the line stands; "" and 0 where there is none.
    inside: "file:number in function" of the library's line that the user's line led to, or "".
    """

    rule: str
    line: str
    found: str
    fix: str
    level: str = "fault"
    file: str = ""
    number: int = 0
    inside: str = ""

    @property
    def kind(self) -> str:
        """refused, frozen or note, see capturable.rules.KINDS."""
        return "note" if self.level == "note" else RULES[self.rule].kind

    @property
    def place(self) -> str:
        """The user's line as editors and terminals open it: file:number in function."""
        function, _, text = self.line.partition("  ")
        if not self.number or not Path(self.file).is_file():
            return self.line
        return f"{short_path(self.file)}:{self.number} in {function.rpartition(':')[0]}\n    {text}"

    def __str__(self) -> str:
        """Text for a terminal: where, what, and the fix; of a library's line, that line first."""
        noted = "" if self.level == "fault" else f" ({self.level})"
        what = f"    {self.rule}{noted}: {self.found}\n    fix: {self.fix}"
        if self.inside:
            return f"{self.inside}\n    called from {self.place}\n{what}"
        return f"{self.place}\n{what}"


@dataclass
class Report:
    """What was looked at: the device, versions, how often the step ran and how many operators one
    run has.

    given: whether there were other inputs. verified: whether a real capture was asked. ignored:
    how many findings a comment has left out. problem: what was not done, and
    why. warnings: what is wrong with comments.
    """

    device: str = ""
    runs: int = 0
    operators: int = 0
    given: bool = False
    verified: bool = False
    ignored: int = 0
    problem: str = ""
    warnings: list[str] = field(default_factory=list)
    torch: str = ""
    python: str = field(default_factory=platform.python_version)

    def unseen(self) -> list[str]:
        """What was not looked at."""
        found = [UNSEEN_ON_CPU] if self.device == "cpu" else []
        found += [] if self.verified else [UNSEEN_UNVERIFIED]
        found += [] if self.given else ["what another batch changes (other_inputs)"]
        return [*found, "paths that did not run", BETWEEN]

    def __str__(self) -> str:
        """The closing lines of the text."""
        if self.problem:
            return self.problem
        place = PLACES.get(self.device, self.device)
        also = f", {self.ignored} ignored by comments" if self.ignored else ""
        counts = f"{count(self.operators, 'operator')}, {count(self.runs, 'run')}"
        seen = f"Checked on {place}: {counts}{also}."
        warnings = [f"Warning: {warning}." for warning in self.warnings]
        return "\n".join([*warnings, seen, f"Not seen: {'; '.join(self.unseen())}."])


class Findings(list[Finding]):
    """A list of findings, in the order of the lines; pandas.DataFrame(findings) is their table.

    report: what was looked at, and what was not; None for findings of one's own.
    """

    def __init__(self, findings: Iterable[Finding] = (), report: Report | None = None) -> None:
        super().__init__(findings)
        self.report = report

    @property
    def faults(self) -> "Findings":
        """Those that are more than notes."""
        return Findings((finding for finding in self if finding.level == "fault"), self.report)

    @property
    def summary(self) -> str:
        """How many there are of each kind, in a line."""
        kinds = Counter(finding.kind for finding in self)
        counts = [f"{kinds[kind]} {kind}" for kind in KINDS if kinds[kind]]
        return f"{count(len(self), 'finding')}: {', '.join(counts)}" if self else "no findings"

    def json(self) -> str:
        """A JSON object: the version, the report, what was not seen, and the findings."""
        from capturable import __version__

        known: dict[str, Any] = {"version": __version__}
        if self.report:
            known |= {"report": asdict(self.report), "not_seen": self.report.unseen()}
        rows = [finding._asdict() for finding in self]
        return json.dumps(known | {"findings": rows}, indent=1)

    @property
    def listing(self) -> str:
        """A summary, refusals, what freezes and notes, in each the user's own lines before those of
        libraries."""
        parts = [self.summary]
        for kind, what in KINDS.items():
            found = [finding for finding in self if finding.kind == kind]
            found.sort(key=lambda finding: bool(finding.inside))
            parts += [f"\n{kind.capitalize()}: {what}", *map(str, found)] if found else []
        return "\n".join(parts)

    def __repr__(self) -> str:
        """Text for a terminal, or below a notebook's cell: the listing, and what was looked at."""
        parts = [self.listing] + ([""] if self and self.report else [])
        return "\n".join(parts + ([str(self.report)] if self.report else []))


def short_path(file: str) -> str:
    """A file's path from here, if it lies below, or after site-packages; else as it is."""
    for marker in ("site-packages/", "dist-packages/"):
        if marker in file:
            return file.rpartition(marker)[2]
    try:
        return str(Path(file).resolve().relative_to(Path.cwd()))
    except ValueError:
        return file


def count(number: int, what: str) -> str:
    """1 run, 2 runs."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
