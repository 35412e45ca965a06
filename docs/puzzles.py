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
from course.recordings.cells import checks_in
from exercises.puzzles import check_capture

PICTURES = ROOT / "docs/static/puzzles"
UNSOLVED = "make_shifted"


def puzzle_svgs() -> dict[str, str]:
    """Each picture as SVG, by the name of its file."""
    sources = [cell.source for cell in nbformat.read(lesson_file(PUZZLES), as_version=4).cells]
    names = [name for source in sources for _, name in checks_in(source)]
    solved = svgs_of(lesson_file(PUZZLES, NOTEBOOKS / "solutions"), names)
    unsolved = svgs_of(lesson_file(PUZZLES), [UNSOLVED])
    return solved | {f"{name}_unsolved": svg for name, svg in unsolved.items()}


def svgs_of(path: Path, names: list[str]) -> dict[str, str]:
    """What the check draws of functions of a notebook."""
    shell: Any = InteractiveShell.instance()
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "code" and not checks_in(cell.source):
            shell.run_cell(cell.source, store_history=True).raise_error()
    shown: dict[str, Any] = {name: check_capture(shell.user_ns[name]).picture for name in names}
    return {name: picture.svg for name, picture in shown.items()}


def write(folder: Path = PICTURES) -> None:
    """Write the pictures into a folder."""
    folder.mkdir(exist_ok=True)
    for name, svg in puzzle_svgs().items():
        (folder / f"{name}.svg").write_text(svg + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
