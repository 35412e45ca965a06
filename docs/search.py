"""What lets pages be found: index entries and questions for the search, descriptions for links."""

import re
import tomllib
from pathlib import Path
from typing import Any

from course.paths import NOTEBOOKS, ROOT, lesson_name

GLOSSARY = re.compile(r"^## (.*)\n\n.*Lesson: .*/(\w+\.ipynb)\)", re.MULTILINE)
GALLERY = "failure_gallery"  # is a reference: it is looked up, not read
KNOWN = tomllib.loads((ROOT / "docs/search.toml").read_text(encoding="utf-8"))
SYNONYMS = {word: root for root, words in KNOWN["synonyms"].items() for word in words.split()}
QUESTIONS: dict[str, list[str]] = KNOWN["questions"]


def questions() -> list[tuple[str, str, list[str]]]:
    """A page of the site, a heading or "", and what people type; lessons that are not there yet
    are left out."""
    stems = {lesson_name(path): path.stem for path in NOTEBOOKS.glob("*.ipynb")}
    found = []
    for where, said in QUESTIONS.items():
        name, _, heading = where.partition(" > ")
        if "/" in name or name in ("index", "explain", "README"):
            found.append((name, heading, said))
        elif name in stems:
            found.append((f"notebooks/{stems[name]}", heading, said))
    return found


def description(text: str) -> dict[str, Any]:
    """A page's metadata that say what it is about, where a link to it is shown."""
    return {"og:description": text, "myst": {"html_meta": {"description": text}}}


def topics(path: Path) -> str:
    """Index entries, which the search puts first: the lesson's terms of the glossary."""
    known = GLOSSARY.findall((ROOT / "docs/glossary.md").read_text())
    terms = [term for term, lesson in known if lesson == path.name]
    entries = ", ".join(f"! {term}" for term in terms)
    return f"```{{index}} {entries}\n```" if entries else ""
