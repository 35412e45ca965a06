"""Draw the pictures of the puzzles, from what their solutions capture:  python -m docs.puzzles

Each is docs/static/puzzles/<puzzle>.svg: what shall be reached, without the code that does. For the
README, one is of a puzzle that nobody has solved yet.
"""

from pathlib import Path
from typing import Any

import nbformat
from IPython.core.interactiveshell import InteractiveShell

from course.lessons import PUZZLES, lesson_file
from course.paths import NOTEBOOKS, ROOT

PICTURES = ROOT / "docs/static/puzzles"
UNSOLVED = "make_shifted"


def pictures() -> dict[str, str]:
    """Each picture as SVG, by the name of its file."""
    unsolved = drawn(lesson_file(PUZZLES), UNSOLVED)
    solved = drawn(lesson_file(PUZZLES, NOTEBOOKS / "solutions"))
    return solved | {f"{name}_unsolved": svg for name, svg in unsolved.items()}


def drawn(path: Path, name: str = "") -> dict[str, str]:
    """What the checks of a notebook draw, of one puzzle or of all."""
    shell: Any = InteractiveShell.instance()
    found = {}
    for cell in nbformat.read(path, as_version=4).cells:
        check = cell.source.removeprefix("assert ")
        if check.startswith("check_capture(") and name in check:
            shell.run_cell(f"outcome = {check}").raise_error()
            found[check[len("check_capture(") : -1]] = shell.user_ns["outcome"].picture.svg
        elif cell.cell_type == "code" and not check.startswith("check_capture("):
            shell.run_cell(cell.source, store_history=True).raise_error()
    return found


def write(folder: Path = PICTURES) -> None:
    """Write the pictures into a folder."""
    folder.mkdir(exist_ok=True)
    for name, svg in pictures().items():
        (folder / f"{name}.svg").write_text(svg + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
