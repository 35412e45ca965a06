"""Every notebook as a file: its form and its code; its links are those of the site."""

import json
import math
import re
import statistics

import nbformat

from course.lessons import by_parts
from course.paths import NOTEBOOKS, ROOT, lesson_name
from course.recordings.cells import handed_on, strip_whitespace
from course.recordings.recording import find_recording
from docs.minutes import count_minutes, stated_minutes
from docs.search import GALLERY
from exercises.unfinished import missing_parts
from tests.support.notebooks import ALL, LESSONS, code, code_cells, parametrize_paths, prose
from tests.support.processes import run_python

# of code cells: their longest, their median, and the share of comments; of In practice: its bullets
LONGEST, MEDIAN = 30, 9
COMMENTS, BULLETS = 0.08, 5


def test_contributing_says_what_is_tested_here():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    assert f"at most {LONGEST} lines, the median at most {MEDIAN}, and" in text
    assert f"fewer than {COMMENTS:.0%} of the lines are comments" in text and BULLETS == 5
    assert "*In practice* (five bullets at most)" in text


FOLDED = {"jupyter": {"source_hidden": True}}  # draws, reads, compares or asserts


@parametrize_paths(ALL)
def test_it_is_a_valid_stripped_notebook(path):
    content = json.loads(path.read_text())
    assert (content["nbformat"], content["nbformat_minor"]) == (4, 5)
    nbformat.validate(content)
    assert content["metadata"]["kernelspec"]["name"] == "python3"
    assert len({cell["id"] for cell in content["cells"]}) == len(content["cells"])
    for cell in code_cells(path):
        assert cell.outputs == [] and cell.execution_count is None
        assert cell.metadata in ({}, FOLDED), "no tags: expected errors are caught in the cell"


@parametrize_paths(LESSONS)
def test_it_keeps_the_form_of_a_lesson(path):
    cells = code_cells(path)
    lengths = [len(cell.source.splitlines()) for cell in cells]
    assert max(lengths) <= LONGEST and statistics.median(lengths) <= MEDIAN
    lines = "\n".join(cell.source for cell in cells).splitlines()
    assert sum(line.strip().startswith("#") for line in lines) < COMMENTS * len(lines)
    opening = cells[0].source.splitlines()[-1]
    assert re.search(rf'^lesson\("{lesson_name(path)}"(, \w+=.+)*\)$', opening)
    assert "  # if this fails, open the course's folder\n" in cells[0].source
    text = prose(path)
    parts = "After this lesson", "| you need | takes | runs |", "## Recap", "## Exercises"
    assert all(part in text for part in parts)
    practice = re.search(r"^## In practice.*?(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)[0]
    assert len(re.findall(r"^- ", practice, re.MULTILINE)) <= BULLETS
    assert text.count("<details><summary>Hint") >= 3
    exercises = re.search(r"^## Exercises.*?(?=^## )", text, re.MULTILINE | re.DOTALL)[0]
    numbers = [int(number) for number in re.findall(r"^### (\d+)\. \S", exercises, re.MULTILINE)]
    counted = list(range(1, len(numbers) + 1))
    assert len(numbers) >= 2 and numbers == counted, "a heading each, as ### 1. Idle share"


@parametrize_paths([path for path in LESSONS if lesson_name(path) != GALLERY], recorded=True)
def test_it_states_the_minutes_that_it_takes(path, played_lessons):
    counted = math.ceil(count_minutes(played_lessons[path]))
    assert stated_minutes(path) == counted, "run `make readme`"


@parametrize_paths(LESSONS)
def test_it_lacks_nothing(path):
    """Solutions, scenarios, cells of their own for checks, and titles of exhibits."""
    found = missing_parts(path)
    assert not found, " ".join(found)


def test_the_notebooks_code_is_clean(tmp_path):
    """ruff skips cells that start with a magic it does not know, so it gets %%gpu as a comment."""
    (tmp_path / "solutions").mkdir()
    for path in ALL:
        notebook = nbformat.read(path, as_version=4)
        for cell in notebook.cells:
            cell.source = re.sub(r"\A%%gpu", "# %%gpu", cell.source)
            if " of yours" in cell.source:  # a stub, whose imports the answer needs
                imports = re.compile(r"^((?:from|import) .*)", re.MULTILINE)
                cell.source = imports.sub(r"\1  # noqa: F401", cell.source)
        nbformat.write(notebook, tmp_path / path.relative_to(NOTEBOOKS))
    for command in (["check"], ["format", "--check", "--diff"]):
        options = ["--config", ROOT / "pyproject.toml", "--no-cache"]
        answer = run_python("-m", "ruff", *command, *options, tmp_path)
        assert answer.returncode == 0, answer.stdout + answer.stderr


@parametrize_paths(ALL)
def test_no_two_gpu_cells_are_alike(path):
    sources = [strip_whitespace(source) for source in code(path) if handed_on(source) is not None]
    assert len(set(sources)) == len(sources), "a recorded cell is found by its source"


@parametrize_paths(LESSONS, recorded=True)
def test_it_states_the_memory_that_its_recording_held(path):
    held = find_recording(lesson_name(path)).about["peak_gpu_mib"] / 1024
    stated = float(re.search(r"about ([\d.]+) GiB of its memory", prose(path))[1])
    assert held <= stated < 1.2 * held + 0.01


def test_each_lesson_has_a_number_of_its_own_and_the_readme_lists_them_in_order():
    """Gaps are kept for lessons to come."""
    numbers = [int(path.name[:2]) for path in LESSONS]
    assert len(set(numbers)) == len(numbers) and numbers[0] == 0
    assert [path for paths in by_parts().values() for path in paths] == LESSONS
