"""The minutes of a lesson without its exercises; `make readme` writes them into its first screen.

Counted are 150 words a minute, 6 lines of code a minute (a listing that a cell shows is code),
half a minute for each chart and each table, and a minute for each guess. The rates are fitted to
what readers of 28 lessons estimated: without bias, and 7 minutes off for one lesson.
"""

import math
import re
from pathlib import Path

import nbformat

from course.lessons import first_screen
from course.recordings.cells import CodeCell, code_cells
from docs.played import played

WORDS, LINES = 150, 6  # a minute
LOOK, GUESS = 0.5, 1  # minutes
STATED = re.compile(r"\| (\d+) minutes\b")


def minutes(path: Path) -> int:
    """The minutes of a lesson, its exercises apart, rounded up."""
    return math.ceil(count_minutes(played([path])[path]))


def count_minutes(notebook: nbformat.NotebookNode) -> float:
    """The minutes of a notebook, with what its cells show, without its exercises."""
    cells = [cell for cell in code_cells(notebook) if cell.kind != "exercise"]
    words = len(re.findall(r"\S*\w\S*", prose(notebook)))
    return words / WORDS + sum(map(_minutes_of_cell, cells))


def prose(notebook: nbformat.NotebookNode) -> str:
    """The Markdown of a lesson, the section of its exercises apart."""
    text = "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    return re.sub(r"^## Exercises.*?(?=^## |\Z)", "", text, flags=re.MULTILINE | re.DOTALL)


def _minutes_of_cell(cell: CodeCell) -> float:
    """The minutes of a code cell with what it shows."""
    shown = [_kind_and_lines(output.get("data", {})) for output in cell.outputs]
    looks = sum(kind in ("chart", "table") for kind, _ in shown)
    guesses = len(re.findall(r"^guess", cell.source, re.MULTILINE)) if cell.kind == "guess" else 0
    lines = len(cell.source.splitlines()) + sum(lines for _, lines in shown)
    return lines / LINES + LOOK * looks + GUESS * guesses


def _kind_and_lines(data):
    """What an output is ("chart", "table", "listing" or ""), and its lines of code."""
    html = "".join(data.get("text/html", ""))
    if "image/png" in data or "<svg" in html or "data-timeline" in html:
        return "chart", 0
    if "<table" in html:
        return "table", 0
    if 'class="highlight"' in html:
        lines = "".join(data["text/plain"]).splitlines()
        return "listing", sum(bool(line.strip()) for line in lines)
    return "", 0


def stated_minutes(path: Path) -> int:
    """The minutes that a lesson's first screen states. Raises LookupError if it states none."""
    return int(first_screen_match(path, "how many minutes it takes", STATED))


def first_screen_match(path: Path, what: str, pattern: str | re.Pattern[str]) -> str:
    """The pattern's group in a lesson's first screen; what names it in the LookupError if there is
    none."""
    found = re.search(pattern, first_screen(path))
    if not found:
        raise LookupError(
            f"The first cell of {path.name} does not say {what}: CONTRIBUTING.md shows the form."
        )
    return found[1]


def write_minutes(path: Path) -> None:
    """Write a lesson's minutes into its first screen; those of the exercises are an estimate."""
    now = minutes(path)
    if stated_minutes(path) != now:
        notebook = nbformat.read(path, as_version=4)
        notebook.cells[0].source = STATED.sub(f"| {now} minutes", notebook.cells[0].source)
        path.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")
