"""Findings that somebody has accepted: by a comment at the line, in a baseline file, or by rule."""

import json
import linecache
import re
from collections.abc import Iterable
from pathlib import Path

from capturable.findings import Finding, Findings, short
from capturable.rules import SLUGS, slug

KEYS = ("rule", "file", "line")  # of an entry in a baseline
COMMENT = re.compile(r"#\s*capturable:\s*ignore(?:\[([^\]]*)\])?")


def is_ignored(finding: Finding) -> bool:
    """Whether a comment at the finding's line accepts it: # capturable: ignore, or ignore[sync,
    cpu-work]."""
    if not finding.number:
        return False
    comment = COMMENT.search(linecache.getline(finding.file, finding.number))
    if not comment:
        return False
    named = [slug(name) for name in (comment[1] or "").split(",") if name.strip()]
    return not named or slug(finding.rule) in named


def without_ignored(findings: Findings) -> Findings:
    """The findings that no comment accepts; the report counts the others."""
    kept = [finding for finding in findings if not is_ignored(finding)]
    if findings.report:
        findings.report.ignored += len(findings) - len(kept)
    return Findings(kept, findings.report)


def misspelt(files: Iterable[str]) -> list[str]:
    """A sentence for each name in the ignoring comments of files that is no rule's."""
    return [
        f"{short(file)}:{number}: there is no rule {name.strip()} to ignore"
        for file in sorted(files)
        for number, line in enumerate(linecache.getlines(file), 1)
        for names in COMMENT.findall(line)
        for name in names.split(",")
        if name.strip() and slug(name) not in SLUGS
    ]


def chosen(
    findings: Findings, select: Iterable[str] | None = None, ignore: Iterable[str] = ()
) -> Findings:
    """The findings of the rules that are selected, by default all, and not ignored.

    Raises ValueError, one sentence, for a name that is no rule's.
    """
    names = {slug(name) for name in ignore}
    wanted = set(SLUGS) if select is None else {slug(name) for name in select}
    if unknown := sorted((names | wanted) - set(SLUGS)):
        raise ValueError(f"there is no rule {', '.join(unknown)}: capturable rules lists them")
    kept = [finding for finding in findings if slug(finding.rule) in wanted - names]
    return Findings(kept, findings.report)


def baseline(findings: Iterable[Finding]) -> str:
    """The findings as a baseline, a JSON text: by rule, file and the line's code, so that lines
    may move."""
    known = [dict(zip(KEYS, key, strict=True)) for key in dict.fromkeys(map(key_of, findings))]
    return json.dumps(known, indent=1) + "\n"


class Baseline:
    """The findings that a file holds. Raises ValueError, one sentence, if the file is none."""

    def __init__(self, file: Path) -> None:
        self.file = file
        try:
            self.known = [tuple(entry[key] for key in KEYS) for entry in _list(file)]
        except (OSError, ValueError, TypeError, LookupError):
            raise ValueError(
                f"{file} is no baseline: make one with --write-baseline {file}"
            ) from None
        self.seen: set[tuple] = set()

    def without_known(self, findings: Findings) -> Findings:
        """The findings that the file does not hold; the report counts the others."""
        self.seen |= set(map(key_of, findings))
        kept = [finding for finding in findings if key_of(finding) not in self.known]
        if findings.report:
            findings.report.known += len(findings) - len(kept)
        return Findings(kept, findings.report)

    def stale(self) -> list[str]:
        """A sentence for each entry that no findings so far had."""
        gone = [key for key in self.known if key not in self.seen]
        return [
            f"{self.file}: no longer found: {rule} in {file}: {line}" for rule, file, line in gone
        ]


def _list(file: Path) -> list[dict[str, str]]:
    entries = json.loads(file.read_text())
    if not isinstance(entries, list):
        raise TypeError
    return entries


def key_of(finding: Finding) -> tuple[str, str, str]:
    """Rule, file and code of a finding, by which it is known again where its line has moved."""
    text = finding.line.partition("  ")[2] if finding.number else finding.line
    inside = re.sub(r":\d+", "", finding.inside)
    return finding.rule, short(finding.file), f"{text} {inside}".strip()
