"""Update links, or give lessons new numbers:  python -m course.commands.renumber [LESSON NUMBER]

A lesson's number is in its file name, and links contain file names, so that they can be clicked in
JupyterLab and on GitHub. Without arguments this writes each lesson's present file name into every
link to it. With a lesson's name and a number it first gives the lesson and its solutions that
number; a lesson that has it already moves up.
"""

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import nbformat

from course.lessons import FORMER_NAMES, former_names, lesson_file, unnumbered
from course.paths import ROOT

FILE = re.compile(r"\b\d+_\w+\.(?:ipynb|html|md)\b")
# what names lessons, besides the notebooks
TEXTS = ("*.md", "*/README.md", "docs/*.md", "jupyter/*.json")


def renumber(name: str, number: int, root: Path = ROOT) -> None:
    """Give a lesson and its solutions a number; a lesson that has it moves up by one, and so on.

    Gaps between numbers stay: they are kept for lessons to come. update_links does the links.
    Raises LookupError if there is no such lesson, or no such number.
    """
    notebooks = root / "notebooks"
    lesson_file(name, notebooks)
    if not 0 <= number < 100:
        raise LookupError(f"Lessons are numbered from 0 to 99: there is no {number}.")
    numbers = {}
    for path in sorted(notebooks.glob("[0-9]*.ipynb")):
        numbers[unnumbered(path.stem)] = int(path.stem.partition("_")[0])
    del numbers[name]
    moving = name
    while moving:
        at_place = [lesson for lesson, taken in numbers.items() if taken == number]
        numbers[moving] = number
        moving = at_place[0] if at_place else ""
        number += 1
    move_notebooks({lesson: f"{place:02}_{lesson}" for lesson, place in numbers.items()}, root)


def move_notebooks(stems: dict[str, str], root: Path = ROOT) -> None:
    """Give lessons and their solutions other file names: a lesson's name -> its new stem.

    notebooks/former_names.json keeps the old ones, for readers' copies and addresses of pages.
    """
    notebooks = root / "notebooks"
    moves = {
        lesson_file(lesson, folder): folder / f"{stem}.ipynb"
        for folder in (notebooks, notebooks / "solutions")
        for lesson, stem in stems.items()
    }
    names = {lesson: unnumbered(stem) for lesson, stem in stems.items()}
    former = {stem: names.get(name, name) for stem, name in former_names(notebooks).items()}
    for old, new in moves.items():
        if old != new:
            old.rename(new)
            former[old.stem] = unnumbered(new.stem)
    present = {path.stem for path in notebooks.glob("*.ipynb")}
    kept = {stem: name for stem, name in sorted(former.items()) if stem not in present}
    (notebooks / FORMER_NAMES).write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def update_links(root: Path = ROOT) -> list[Path]:
    """Write the lessons' present file names into all Markdown; return the files that changed."""
    files = stems(root)
    update = partial(renamed, files=files)
    # of notebooks the prose alone: code is compared with recordings
    return [*update_cells(root, update), *update_texts(root, TEXTS, update)]


def update_texts(root: Path, patterns: Iterable[str], update: Callable[[str], str]) -> list[Path]:
    """Update the texts and modules that these patterns find; return what changed."""
    changed = []
    for path in sorted({path for pattern in patterns for path in root.glob(pattern)}):
        if path.suffix in (".md", ".json", ".py", ".toml"):
            text = path.read_text(encoding="utf-8")
            if (updated := update(text)) != text:
                path.write_text(updated, encoding="utf-8")
                changed.append(path)
    return changed


def update_cells(
    root: Path, update: Callable[[str], str], code: Callable[[str], bool] = lambda source: False
) -> list[Path]:
    """Update the Markdown of all notebooks, and the code that is chosen; return what changed."""
    changed = []
    for path in sorted(root.glob("notebooks/**/*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        before = [cell.source for cell in notebook.cells]
        for cell in notebook.cells:
            if cell.cell_type == "markdown" or code(cell.source):
                cell.source = update(cell.source)
        if [cell.source for cell in notebook.cells] != before:
            path.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")
            changed.append(path)
    return changed


def stems(root: Path = ROOT) -> dict[str, str]:
    """The stem of each lesson's file, by the lesson's name: verb_object -> NN_verb_object."""
    return {unnumbered(path.stem): path.stem for path in root.glob("notebooks/[0-9]*.ipynb")}


def renamed(text: str, files: dict[str, str]) -> str:
    """The text with today's number in the name of every lesson's file; other names stay.

    files: what stems returns.
    """

    def today(match: re.Match) -> str:
        stem, _, suffix = match[0].rpartition(".")
        return f"{files.get(unnumbered(stem), stem)}.{suffix}"

    return FILE.sub(today, text)


def main(arguments: list[str] | None = None) -> int:
    """Renumber if asked to, and update all links; return 1, after a sentence, after a mistake."""
    parser = argparse.ArgumentParser(prog="make renumber", description=__doc__.splitlines()[0])
    parser.add_argument("lesson", nargs="?", help="its name without a number, such as choose_api")
    parser.add_argument("number", nargs="?", type=int, help="its new number")
    options = parser.parse_args(arguments)
    if options.lesson and options.number is None:
        parser.error(f"which number shall {options.lesson} get?")
    try:
        if options.lesson:
            renumber(options.lesson, options.number)
    except LookupError as error:
        print(error, file=sys.stderr)
        return 1
    changed = update_links()
    print(f"Links changed in {len(changed)} files." if changed else "All links are up to date.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
