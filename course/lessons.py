"""The lessons by name. Numbers exist in file names only: whoever needs a file asks for it here."""

import re
from pathlib import Path

from course.paths import NOTEBOOKS


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


def unnumbered(file: str) -> str:
    """A file name without its number, which may change: 02_capture.ipynb -> capture.ipynb."""
    return re.sub(r"^\d+_", "", file)
