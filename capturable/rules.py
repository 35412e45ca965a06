"""The rules of preflight, from rules.toml: what each finds, why that matters, an example, the fix.

`python -m capturable rules` prints them; capturable/RULES.md is made of that.
"""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

KINDS = {
    "refused": "the capture raises an error",
    "frozen": "the capture passes, and every replay repeats what was true at the capture",
    "note": "most captures are fine with it; no fault, and no exit status",
}


@dataclass(frozen=True)
class Rule:
    """A rule: its name, its kind (one of KINDS), why it matters, code that breaks it, and the fix.

    instead: the example's code, repaired; "" where the fix says it all.
    """

    name: str
    kind: str
    why: str
    example: str
    fix: str
    instead: str = ""

    @property
    def slug(self) -> str:
        """The name as it is written in a comment: `# capturable: ignore[cpu-work]`."""
        return slug(self.name)


def slug(name: str) -> str:
    """A rule's name in small letters, with hyphens for blanks."""
    return "-".join(name.lower().split())


class TorchFileRule(NamedTuple):
    """A rule and a fix for what a file of torch does, where they differ from the general ones."""

    rule: str
    fix: str


FILE = tomllib.loads(Path(__file__).with_name("rules.toml").read_text(encoding="utf-8"))
ALL = tuple(Rule(**rule) for rule in FILE["rule"])
RULES = {rule.name: rule for rule in ALL}
SLUGS = {rule.slug: rule.name for rule in ALL}
LIBRARY = {  # by the file of torch, or its beginning
    start: TorchFileRule(one["rule"], one.get("fix", RULES[one["rule"]].fix))
    for start, one in FILE["library"].items()
}


def fix_of(name: str) -> str:
    """The fix of a rule."""
    return RULES[name].fix


def rule_of_torch_file(library: str) -> TorchFileRule | None:
    """Rule and fix for what a file of torch does, if they are special."""
    return next((rule for start, rule in LIBRARY.items() if library.startswith(start)), None)


def number_fix(name: str) -> str | None:
    """The fix for a number that an operator takes, if there is a special one."""
    return next((fix for start, fix in FILE["numbers"].items() if name.startswith(start)), None)


def level_of(name: str) -> str:
    """ "note" for what most captures are fine with, else "fault"."""
    return "note" if RULES[name].kind == "note" else "fault"


def markdown() -> str:
    """The rules as a page of Markdown, made for capturable/RULES.md."""
    head = (
        "# The rules of preflight\n\n"
        "Made by `python -m capturable rules`. A comment `# capturable: ignore[cpu-work]` at the "
        "end of a line accepts what a rule finds there.\n"
    )
    kinds = "\n".join(f"- *{kind}*: {what}." for kind, what in KINDS.items())
    return "\n".join([head, kinds, "", *map(_section, ALL)])


def _section(rule: Rule) -> str:
    lines = [f"## {rule.name}", "", f"*{rule.kind}* (`{rule.slug}`). {rule.why}", ""]
    lines += [f"    {rule.example}", "", f"Fix: {rule.fix}."]
    if rule.instead:
        lines += ["", f"    {rule.instead}"]
    return "\n".join([*lines, ""])
