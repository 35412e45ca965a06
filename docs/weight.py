"""What each lesson asks of its reader:  python -m docs.weight [COMMIT]

A line per lesson, its exercises apart: the sections that its first cell links to, drawn pictures,
guesses, lines of code in sight and folded, links per 100 words, words, and the minutes it states.
Without a commit, it reads the lessons as they are now.
"""

import re
import sys

import nbformat
import pandas as pd

from course.lessons import lessons
from course.recordings.cells import code_cells
from docs.lesson_page import is_folded
from docs.lines import sources_at
from docs.minutes import STATED, prose

GUESS = re.compile(r"^guess\w* =", re.MULTILINE)


def lesson_counts(notebook: nbformat.NotebookNode) -> dict[str, float]:
    """The counts of one lesson."""
    text = re.sub(r"`[^`]*`", "code", prose(notebook))
    words = len(re.findall(r"\S*\w\S*", re.sub(r"\]\([^)]*\)", "]", text)))
    lines = {True: 0, False: 0}  # folded, in sight
    guesses = 0
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for cell, counted in zip(cells, code_cells(notebook), strict=True):
        if counted.kind != "exercise":
            lines[is_folded(cell)] += len(counted.source.splitlines())
        if counted.kind == "guess":
            guesses += len(GUESS.findall(counted.source))
    return {
        "sections": len(re.findall(r"\]\(#", notebook.cells[0].source)),
        "pictures": len(re.findall(r"!\[[^\]]+\]\([^)\s]+\.svg\)", text)),
        "guesses": guesses,
        "lines": lines[False],
        "folded": lines[True],
        "links": round(100 * len(re.findall(r"(?<!!)\[[^\]]+\]\(", text)) / words, 1),
        "words": words,
        "minutes": int(found[1]) if (found := STATED.search(text)) else 0,
    }


def lessons_at(commit: str = "") -> dict[str, nbformat.NotebookNode]:
    """The lessons by file stem, now or at a commit."""
    if commit:
        found = [one for one in sources_at(commit) if one[0].match("notebooks/[0-9]*.ipynb")]
        texts = {path.stem: text for path, text in found}
    else:
        texts = {path.stem: path.read_text() for path in lessons()}
    return {stem: nbformat.reads(text, as_version=4) for stem, text in sorted(texts.items())}


if __name__ == "__main__":
    rows = {stem: lesson_counts(notebook) for stem, notebook in lessons_at(*sys.argv[1:2]).items()}
    print(pd.DataFrame.from_dict(rows, orient="index").to_string())
