"""What the minutes of a lesson are counted from, and that `make readme` writes them."""

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from docs import minutes

FIRST = """# A title

| you need | takes | runs |
|---|---|---|
| x | 7 minutes + 5 minutes of exercises | y |"""
SIX_LINES = "\n".join(f"x{number} = {number}" for number in range(6))
PNG, TABLE = {"image/png": "x"}, {"text/html": "<table><tr><td>1</td></tr></table>"}
LISTING = {"text/html": '<div class="highlight">...</div>', "text/plain": SIX_LINES}


def counted(*cells):
    return minutes.count_minutes(new_notebook(cells=list(cells)))


@pytest.mark.parametrize(
    ("cell", "outputs", "takes"),
    [
        (new_markdown_cell("word " * 150), [], 1),
        (new_code_cell(SIX_LINES), [], 1),
        (new_code_cell("draw(x)"), [PNG, TABLE], 1 / 6 + 1),
        (new_code_cell("getsource(x)"), [LISTING], 1 / 6 + 1),
        (new_code_cell("print(1)"), [{"text/plain": "1"}], 1 / 6),
        (new_code_cell("guess_a = ...\nguess_b = ..."), [], 2 + 2 / 6),
    ],
)
def test_what_is_counted(cell, outputs, takes):
    if outputs:
        cell.outputs = [new_output("display_data", data) for data in outputs]
    assert counted(cell) == pytest.approx(takes)


def test_exercises_are_apart_and_what_follows_them_is_not():
    exercises = [new_markdown_cell("## Exercises\n\nwords"), new_code_cell(SIX_LINES)]
    assert counted(*exercises, new_markdown_cell("words\n\n## Recap")) == pytest.approx(1 / 150)


def test_the_minutes_are_written_and_those_of_the_exercises_stay(tmp_path, monkeypatch):
    path = tmp_path / "lesson.ipynb"
    nbformat.write(new_notebook(cells=[new_markdown_cell(FIRST)]), path)
    monkeypatch.setattr(minutes, "minutes", lambda path: 31)
    minutes.write_minutes(path)
    assert minutes.stated_minutes(path) == 31
    (first,) = nbformat.read(path, as_version=4).cells
    assert first.source == FIRST.replace("7 minutes", "31 minutes")
