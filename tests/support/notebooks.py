"""Notebooks as files: written for a test, and read for one."""

from functools import cache

import nbformat
import pytest

from course.lessons import lessons
from course.paths import NOTEBOOKS, REFERENCE_GPU
from exercises.unfinished import missing_recording

LESSONS = lessons()
ALL = sorted(NOTEBOOKS.rglob("*.ipynb"))  # with their solutions
UNRECORDED = {path: said for path in LESSONS for said in missing_recording(path)}
RECORDED = [path for path in LESSONS if path not in UNRECORDED]


def parametrize_paths(paths, recorded=False):
    """A test for each path, called like the file, with its folder where that is no usual one.

    recorded: whether the test needs a lesson's recording; it is skipped for a lesson without one.
    """
    return pytest.mark.parametrize("path", [_param(path, recorded) for path in paths])


def _param(path, recorded):
    usual = path.parent.name in ("notebooks", REFERENCE_GPU)
    said = UNRECORDED.get(path) if recorded else None
    name = path.stem if usual else f"{path.parent.name}-{path.stem}"
    marks = [pytest.mark.skip(reason=said)] if said else []
    return pytest.param(path, id=name, marks=marks)


def write_notebook(path, *sources):
    """Write a notebook with a code cell per source, ready to run; return its path."""
    notebook = nbformat.v4.new_notebook(cells=list(map(nbformat.v4.new_code_cell, sources)))
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook.metadata = {"kernelspec": kernel}
    nbformat.write(notebook, path)
    return path


def cells(path, kind):
    """A notebook's cells of a kind; one that has not changed is read once."""
    return [cell for cell in _read(path, path.stat().st_mtime_ns).cells if cell.cell_type == kind]


@cache
def _read(path, changed):
    return nbformat.read(path, as_version=4)


def code_cells(path):
    return cells(path, "code")


def code(path):
    """The sources of a notebook's code cells."""
    return [cell.source for cell in code_cells(path)]


def prose(path):
    return "\n\n".join(cell.source for cell in cells(path, "markdown"))
