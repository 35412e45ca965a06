"""Findings that somebody has accepted: by a comment at the line, or by rule."""

import linecache
import re
from collections.abc import Iterable

from capturable.findings import Finding, Findings, short_path
from capturable.rules import SLUGS, slug

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


def misspelt_rule_warnings(files: Iterable[str]) -> list[str]:
    """A sentence for each name in the ignoring comments of files that is no rule's."""
    return [
        f"{short_path(file)}:{number}: there is no rule {name.strip()} to ignore"
        for file in sorted(files)
        for number, line in enumerate(linecache.getlines(file), 1)
        for names in COMMENT.findall(line)
        for name in names.split(",")
        if name.strip() and slug(name) not in SLUGS
    ]


def without_rules(findings: Findings, ignored: Iterable[str]) -> Findings:
    """The findings of all rules but some.

    Raises ValueError, one sentence, for a name that is no rule's.
    """
    names = {slug(name) for name in ignored}
    if unknown := sorted(names - set(SLUGS)):
        raise ValueError(f"there is no rule {', '.join(unknown)}: capturable rules lists them")
    return Findings((f for f in findings if slug(f.rule) not in names), findings.report)
