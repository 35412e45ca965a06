"""Notebooks as files: written for a test, read for one, linted."""

import subprocess
import sys

import nbformat

from course.paths import NOTEBOOKS, ROOT

LESSONS = sorted(NOTEBOOKS.glob("*.ipynb"))
ALL = sorted(NOTEBOOKS.rglob("*.ipynb"))  # with their solutions


def write_notebook(path, *sources):
    """Write a notebook with a code cell per source, ready to run; return its path."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    notebook.metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(notebook, path)
    return path


def code_cells(path):
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]


def code(path):
    """The sources of a notebook's code cells."""
    return [cell.source for cell in code_cells(path)]


def prose(path):
    return "\n\n".join(cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "markdown")


def ruff(*arguments):
    """Assert that ruff has nothing to say, neither its linter nor its formatter."""
    for command in (["check"], ["format", "--check", "--diff"]):
        run = [sys.executable, "-m", "ruff", *command, *arguments]
        answer = subprocess.run(run, capture_output=True, text=True, cwd=ROOT)
        assert answer.returncode == 0, answer.stdout + answer.stderr
