"""Findings that somebody has accepted: by a comment at the line, or in a baseline file."""

import json
import linecache
import re
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


def baseline(findings: Findings) -> str:
    """The findings as a baseline, a JSON text: by rule, file and the line's code, so that lines
    may move."""
    known = [dict(zip(KEYS, _key(finding), strict=True)) for finding in findings]
    unique = [entry for i, entry in enumerate(known) if entry not in known[:i]]
    return json.dumps(unique, indent=1) + "\n"


def without_known(findings: Findings, file: Path) -> Findings:
    """The findings that a baseline file does not hold; the report counts the others.

    Raises ValueError, one sentence, if the file is none.
    """
    try:
        known = {tuple(entry[key] for key in KEYS) for entry in _list(file)}
    except (OSError, ValueError, TypeError, LookupError):
        raise ValueError(f"{file} is no baseline: make one with --write-baseline {file}") from None
    kept = [finding for finding in findings if _key(finding) not in known]
    if findings.report:
        findings.report.known += len(findings) - len(kept)
    return Findings(kept, findings.report)


def _list(file: Path) -> list[dict[str, str]]:
    entries = json.loads(file.read_text())
    if not isinstance(entries, list):
        raise TypeError
    return entries


def _key(finding: Finding) -> tuple[str, str, str]:
    text = finding.line.partition("  ")[2] if finding.number else finding.line
    inside = re.sub(r":\d+", "", finding.inside)
    return finding.rule, short(finding.file), f"{text} {inside}".strip()


def unknown_rules(file: str) -> list[str]:
    """Names in the ignoring comments of a file that are no rules."""
    text = Path(file).read_text(encoding="utf-8", errors="replace")
    named = [name for names in COMMENT.findall(text) for name in names.split(",") if name.strip()]
    return [name.strip() for name in named if slug(name) not in SLUGS]
