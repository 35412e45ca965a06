"""Write the lessons as Colab opens them:  python -m docs.colab FOLDER ADDRESS

Colab brings one notebook and nothing beside it. So each lesson begins there with a cell that finds
the course's folder, or fetches it from ADDRESS, the repository's. The workflow colab.yml keeps
these notebooks on a branch of their own, to which the buttons lead.
"""

import sys
from pathlib import Path

import nbformat

from course.paths import NOTEBOOKS

FETCH = """# Colab brings this notebook alone: this cell fetches the rest of the course, once.
import os

if not os.path.isdir("course"):
    if not os.path.isdir("cuda-graphs-course"):
        !git clone --quiet --depth 1 {address} cuda-graphs-course
    %cd -q cuda-graphs-course
    %pip install --quiet --editable ."""


def for_colab(path: Path, address: str) -> nbformat.NotebookNode:
    """A lesson that begins by fetching the course, on a GPU where Colab has one."""
    notebook = nbformat.read(path, as_version=4)
    first = next(at for at, cell in enumerate(notebook.cells) if cell.cell_type == "code")
    fetch = nbformat.v4.new_code_cell(FETCH.format(address=address), id="fetch")
    notebook.cells.insert(first, fetch)
    notebook.metadata["accelerator"] = "GPU"
    return notebook


def write(folder: Path, address: str) -> None:
    """Write every lesson into the folder, which must exist."""
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        nbformat.write(for_colab(path, address), folder / path.name)


if __name__ == "__main__":
    write(Path(sys.argv[1]), sys.argv[2])
