"""Findings: what preflight found, as text, HTML, JSON or GitHub annotations."""

import html
import json
from collections.abc import Iterable
from typing import NamedTuple

COLUMNS = ("rule", "line", "found", "fix", "level")


class Finding(NamedTuple):
    """A fault: its rule (one of capturable.rules.FIXES), the line, what was found, and the fix.

    line: "function:number  text" of the user's code, or a name. level: "fault", or "note" for what some
    captures bear. file, number: where the line stands; "" and 0 where there is none.
    """

    rule: str
    line: str
    found: str
    fix: str
    level: str = "fault"
    file: str = ""
    number: int = 0

    def github(self) -> str:
        """A workflow command that GitHub shows as an annotation of the line."""
        kind = "warning" if self.level == "fault" else "notice"
        place = f"file={_escaped(self.file, more=True)},line={self.number}," if self.number else ""
        text = _escaped(f"{self.line}: {self.found}. Fix: {self.fix}")
        return f"::{kind} {place}title=CUDA graph%3A {self.rule}::{text}"


class Findings(list[Finding]):
    """A list of findings, in the order of the lines; pandas.DataFrame(findings) is their table."""

    @property
    def faults(self) -> "Findings":
        """Those that are more than notes."""
        return Findings(finding for finding in self if finding.level == "fault")

    def json(self) -> str:
        """A JSON list of objects."""
        return json.dumps([finding._asdict() for finding in self], indent=1)

    def github(self) -> str:
        """Annotations, one a line."""
        return "\n".join(finding.github() for finding in self)

    def __repr__(self) -> str:
        """Text for a terminal: the line, and what was found there."""
        if not self:
            return "no findings"
        rows = (f"{f.line}\n    {f.rule}{_noted(f)}: {f.found}\n    fix: {f.fix}" for f in self)
        return "\n".join(rows)

    def _repr_html_(self) -> str:
        rows = "".join(_row("td", finding[: len(COLUMNS)]) for finding in self)
        return f"<table>{_row('th', COLUMNS)}{rows}</table>" if self else "no findings"


def _noted(finding: Finding) -> str:
    return "" if finding.level == "fault" else f" ({finding.level})"


def _row(tag: str, cells: Iterable[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"


def _escaped(text: str, more: bool = False) -> str:
    text = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return text.replace(":", "%3A").replace(",", "%2C") if more else text
