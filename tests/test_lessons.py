"""Every notebook run from top to bottom through nbmake: recorded here, live on a machine with a GPU."""

import shutil
import subprocess
import sys

import nbformat
import pytest
from conftest import write_notebook

from course.recording import NOTEBOOKS

ALL = sorted(NOTEBOOKS.rglob("*.ipynb"))


@pytest.mark.parametrize("path", ALL, ids=[str(path.relative_to(NOTEBOOKS)) for path in ALL])
def test_nbmake_runs_every_cell(path, tmp_path):
    copy = shutil.copy(path, tmp_path)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--nbmake",
        "--nbmake-timeout=300",
        "--overwrite",
        "-p",
        "no:cacheprovider",
        copy,
    ]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert run.returncode == 0, run.stdout[-5000:] + run.stderr[-1000:]
    assert "1 passed" in run.stdout, "nbmake collected nothing"
    code = [cell for cell in nbformat.read(copy, as_version=4).cells if cell.cell_type == "code"]
    assert code and all(cell.execution_count for cell in code)


def test_a_notebook_that_fails_fails_here(tmp_path):
    wrong = write_notebook(tmp_path / "wrong.ipynb", "assert 1 == 2")
    (tmp_path / "copy").mkdir()
    with pytest.raises(AssertionError, match="assert 1 == 2"):
        test_nbmake_runs_every_cell(wrong, tmp_path / "copy")
