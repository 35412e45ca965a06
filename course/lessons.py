"""The lessons by name, and what each says of its place in the course.

Numbers exist in file names only: whoever needs a file asks for it here. The part of the course that
a lesson belongs to is in its notebook's metadata: "course": {"part": ..., "optional": true}. The
puzzles are no lesson: "course": {"puzzles": true}.
"""

import json
import re
from pathlib import Path

from course.paths import NOTEBOOKS, short

PARTS = ("The core course", "In practice", "Inside and at scale", "To finish", "Reference")
NO_PART = (
    '{path} names no part of the course: write "course": {{"part": ...}} into its metadata, with '
    "one of {parts}."
)
PUZZLES = "solve_puzzles"  # of twelve in one notebook
FORMER_NAMES = "former_names.json"  # in notebooks/: former file stem -> the lesson's present name


def lesson_file(name: str, folder: Path = NOTEBOOKS) -> Path:
    """The notebook of a lesson: verb_object -> notebooks/NN_verb_object.ipynb.

    folder: notebooks, or its solutions. Raises LookupError if it has no such lesson.
    """
    for path in folder.glob(f"[0-9]*_{name}.ipynb"):
        if unnumbered(path.name) == f"{name}.ipynb":
            return path
    raise LookupError(
        f"There is no lesson {name} in {folder}: notebooks are called NN_{name}.ipynb."
    )


def lessons(folder: Path = NOTEBOOKS) -> list[Path]:
    """The lessons in reading order: all notebooks but the puzzles, which stand alone."""
    return [one for one in sorted(folder.glob("[0-9]*.ipynb")) if not _about(one).get("puzzles")]


def unnumbered(file: str) -> str:
    """A file name without its number, which may change: 02_capture.ipynb -> capture.ipynb."""
    return re.sub(r"^\d+_", "", file)


def by_parts(folder: Path = NOTEBOOKS) -> dict[str, list[Path]]:
    """The lessons of each part of the course, all in reading order.

    Raises LookupError for a lesson that names no part, or whose number is among another part's.
    """
    parts: dict[str, list[Path]] = {name: [] for name in PARTS}
    last = PARTS[0]
    for path in lessons(folder):
        part = part_of(path)
        if part not in PARTS:
            raise LookupError(NO_PART.format(path=short(path), parts=", ".join(PARTS)))
        if PARTS.index(part) < PARTS.index(last):
            raise LookupError(
                f"{path.name} belongs to {part!r}, and its number follows those of {last!r}: "
                f'make rename ARGS="{unnumbered(path.stem)} NN_{unnumbered(path.stem)}" moves it.'
            )
        parts[part].append(path)
        last = part
    return parts


def following(path: Path) -> Path | None:
    """The lesson after this one in reading order; None after the last."""
    return next((one for one in lessons(path.parent) if one > path), None)


def title(path: Path) -> str:
    """A lesson's title: the first line of its first screen."""
    return first_screen(path).partition("\n")[0].removeprefix("# ")


def first_screen(path: Path) -> str:
    """A lesson's first cell: its title, its promise, what it takes."""
    return "".join(json.loads(path.read_bytes())["cells"][0]["source"])


def part_of(path: Path) -> str:
    """The part of the course that a lesson names, "" for none."""
    return str(_about(path).get("part", ""))


def is_optional(path: Path) -> bool:
    """Whether a lesson is one that most readers skip."""
    return bool(_about(path).get("optional"))


def _about(path):
    return json.loads(path.read_bytes())["metadata"].get("course", {})


def former_names(folder: Path = NOTEBOOKS) -> dict[str, str]:
    """The present name of each lesson whose file had another, by its stem: 04_old -> new."""
    path = folder / FORMER_NAMES
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def present_name(name: str) -> str:
    """The name that a lesson has today: readers' own copies contain the former one."""
    renamed = {unnumbered(stem): present for stem, present in former_names().items()}
    present = {unnumbered(path.stem) for path in NOTEBOOKS.glob("[0-9]*.ipynb")}
    return name if name in present else renamed.get(name, name)
