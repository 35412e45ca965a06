"""What each lesson asks of its reader:  python -m docs.weight [COMMIT]

A line per lesson, its exercises apart: the sections that its first cell links to, drawn pictures,
guesses, lines of code in sight and folded, links per 100 words, words, and the minutes it states.
Without a commit, it reads the lessons as they are now.
"""

import re
import subprocess
import sys
from pathlib import PurePath

import nbformat
import pandas as pd

from course.paths import NOTEBOOKS, ROOT
from course.recordings.cells import code_cells
from docs.minutes import STATED, prose

GUESS = re.compile(r"^guess\w* =", re.MULTILINE)


def weigh(notebook: nbformat.NotebookNode) -> dict[str, float]:
    """The counts of one lesson."""
    text = prose(notebook)
    words = len(re.findall(r"\S*\w\S*", re.sub(r"\]\([^)]*\)", "]", text)))
    shown, folded, guesses = 0, 0, 0
    hidden = [folds(cell) for cell in notebook.cells if cell.cell_type == "code"]
    for cell, is_hidden in zip(code_cells(notebook), hidden, strict=True):
        if cell.kind == "exercise":
            continue
        lines = len(cell.source.splitlines())
        shown += 0 if is_hidden else lines
        folded += lines if is_hidden else 0
        guesses += len(GUESS.findall(cell.source)) if cell.kind == "guess" else 0
    return {
        "sections": len(re.findall(r"\]\(#", notebook.cells[0].source)),
        "pictures": len(re.findall(r"!\[[^\]]+\]\([^)\s]+\.svg\)", text)),
        "guesses": guesses,
        "lines": shown,
        "folded": folded,
        "links": round(100 * len(re.findall(r"(?<!!)\[[^\]]+\]\(", text)) / words, 1),
        "words": words,
        "minutes": int(found[1]) if (found := STATED.search(text)) else 0,
    }


def folds(cell: nbformat.NotebookNode) -> bool:
    """Whether a code cell's source is folded."""
    return bool(cell.metadata.get("jupyter", {}).get("source_hidden"))


def lessons(commit: str = "") -> dict[str, nbformat.NotebookNode]:
    """The lessons by file stem, now or at a commit."""
    if not commit:
        texts = {path.stem: path.read_text() for path in NOTEBOOKS.glob("[0-9]*.ipynb")}
    else:
        git = ["git", "-C", str(ROOT)]
        listed = [*git, "ls-tree", "--name-only", commit, "notebooks/"]
        names = subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split()
        texts = {}
        for name in filter(re.compile(r"notebooks/\d+_\w+\.ipynb").fullmatch, names):
            show = [*git, "show", f"{commit}:{name}"]
            shown = subprocess.run(show, capture_output=True, text=True, check=True).stdout
            texts[PurePath(name).stem] = shown
    return {stem: nbformat.reads(text, as_version=4) for stem, text in sorted(texts.items())}


if __name__ == "__main__":
    rows = {stem: weigh(notebook) for stem, notebook in lessons(*sys.argv[1:2]).items()}
    print(pd.DataFrame.from_dict(rows, orient="index").to_string())
