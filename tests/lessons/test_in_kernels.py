"""Notebooks in real kernels, as `pytest --nbmake notebooks`
runs them: some on recordings, all live on a GPU.

Every lesson with its solutions, on recordings and without kernels: test_solutions.py.
"""

import shutil

import nbformat
import pytest
import torch

from course.commands.works_on import through_nbmake
from course.paths import NOTEBOOKS
from tests.support.notebooks import write_notebook

ALL = sorted(NOTEBOOKS.rglob("*.ipynb"))
NAMES = ("start_here", "share_memory_pools")
SOME = (
    ALL
    if torch.cuda.is_available()
    else [path for path in ALL if path.stem.partition("_")[2] in NAMES]
)


def run_every_cell(paths, folder):
    """Run copies of notebooks, all in one pytest, and assert that every code cell ran."""
    (folder / "solutions").mkdir()
    copies = [shutil.copy(path, folder / path.relative_to(NOTEBOOKS)) for path in paths]
    run, cases = through_nbmake(copies, "--overwrite")
    assert run.returncode == 0, run.stdout[-5000:] + run.stderr[-1000:]
    assert [passed for _, passed in cases] == [True] * len(paths), "nbmake collected less"
    for copy in copies:
        code = [
            cell for cell in nbformat.read(copy, as_version=4).cells if cell.cell_type == "code"
        ]
        assert code and all(cell.execution_count for cell in code)


def test_nbmake_runs_every_cell(tmp_path):
    run_every_cell(SOME, tmp_path)


def test_a_notebook_that_fails_fails_here(tmp_path, monkeypatch):
    wrong = write_notebook(tmp_path / "wrong.ipynb", "assert 1 == 2")
    monkeypatch.setitem(run_every_cell.__globals__, "NOTEBOOKS", tmp_path)
    (tmp_path / "copies").mkdir()
    with pytest.raises(AssertionError, match="assert 1 == 2"):
        run_every_cell([wrong], tmp_path / "copies")
