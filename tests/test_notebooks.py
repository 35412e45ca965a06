"""Every notebook as a file: its form, its links, its code, and whether its recording is still true."""

import gzip
import itertools
import json
import re
import statistics
import subprocess
import sys

import nbformat
import pytest

from course.recording import (
    NOTEBOOKS,
    REFERENCE_GPU,
    ROOT,
    TRACES,
    Recording,
    handed_on,
    lesson_name,
    lessons,
    normalise,
    stale,
)

ALL = sorted(NOTEBOOKS.rglob("*.ipynb"))
LESSONS = sorted(NOTEBOOKS.glob("*.ipynb"))
RECORDED = sorted((TRACES / REFERENCE_GPU).rglob("*.ipynb"))


def named(paths):
    return pytest.mark.parametrize(
        "path",
        paths,
        ids=[path.stem if path.parent == NOTEBOOKS else f"{path.parent.name}-{path.stem}" for path in paths],
    )


def code_cells(path):
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]


def prose(path):
    return "\n\n".join(cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "markdown")


def anchors(path):
    headings = re.findall(r"^#+ (.*)$", prose(path) if path.suffix == ".ipynb" else path.read_text(), re.MULTILINE)
    return {heading.strip().replace(" ", "-") for heading in headings}


def test_there_are_lessons():
    assert [path.name for path in LESSONS[:2]] == ["00_start_here.ipynb", "01_profile_eager_training.ipynb"]


@named(ALL)
def test_it_is_a_valid_stripped_notebook(path):
    content = json.loads(path.read_text())
    assert (content["nbformat"], content["nbformat_minor"]) == (4, 5)
    nbformat.validate(content)
    assert content["metadata"]["kernelspec"]["name"] == "python3"
    assert len({cell["id"] for cell in content["cells"]}) == len(content["cells"])
    for cell in code_cells(path):
        assert cell.outputs == [] and cell.execution_count is None
        assert cell.metadata == {}, "no tags: expected errors are caught and asserted in the cell"


@named(LESSONS)
def test_it_keeps_the_form_of_a_lesson(path):
    cells = code_cells(path)
    lengths = [len(cell.source.splitlines()) for cell in cells]
    assert max(lengths) <= 25 and statistics.median(lengths) <= 5
    lines = "\n".join(cell.source for cell in cells).splitlines()
    assert sum(line.strip().startswith("#") for line in lines) < 0.08 * len(lines)
    assert normalise(cells[0].source).endswith(f'lesson("{lesson_name(path)}")')
    text = prose(path)
    for part in ("After this lesson", "| you need | takes | runs |", "## Recap", "## Exercises", "## In practice"):
        assert part in text
    assert text.count("<details><summary>Hint") >= 3


@named(LESSONS)
def test_it_has_solutions_for_its_exercises(path):
    solutions = NOTEBOOKS / "solutions" / path.name
    asked = {call for cell in code_cells(path) for call in re.findall(r"\bcheck\(\s*(\w+)", cell.source)}
    solved = {name for cell in code_cells(solutions) for name in re.findall(r"^def (\w+)", cell.source, re.MULTILINE)}
    assert len(asked) >= 3 and asked <= solved


def linked(path, text):
    """Targets of the Markdown links and images of a text, outside of code."""
    text = re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.DOTALL)
    return [
        (path.parent / target.partition("#")[0], target.partition("#")[2])
        for target in re.findall(r"\]\(([^)\s]+)\)", text)
        if "://" not in target
    ]


@pytest.mark.parametrize(
    "path",
    [*ALL, ROOT / "README.md", ROOT / "CONTRIBUTING.md", TRACES / "README.md"],
    ids=lambda path: f"{path.parent.name}-{path.stem}",
)
def test_its_links_resolve_and_its_images_have_alt_text(path):
    text = prose(path) if path.suffix == ".ipynb" else path.read_text()
    for target, anchor in linked(path, text):
        target = path if target == path.parent else target
        assert target.exists(), f"{path.name} links to {target}"
        if anchor:
            assert anchor in anchors(target), f"{path.name} links to #{anchor}"
    assert re.findall(r"!\[\s*\]", text) == [] and re.findall(r"<img(?![^>]*\balt=\"[^\"]+)", text) == []


@named(ALL)
def test_its_code_is_clean(path, tmp_path):
    """ruff skips cells that start with a magic it does not know, so it gets %%gpu as a comment."""
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        cell.source = re.sub(r"\A%%gpu", "# %%gpu", cell.source)
    nbformat.write(notebook, tmp_path / path.name)
    # 100 characters are what fits beside JupyterLab's file browser
    ruff("--config", ROOT / "pyproject.toml", "--config", "line-length = 100", "--no-cache", tmp_path)


def test_the_helpers_and_tests_are_clean():
    ruff("capturable", "course", "cpu_graph", "helpers", "tests", "benchmarks")


def ruff(*arguments):
    """Assert that ruff has nothing to say, neither its linter nor its formatter."""
    for command in (["check"], ["format", "--check", "--diff"]):
        run = [sys.executable, "-m", "ruff", *command, *arguments]
        answer = subprocess.run(run, capture_output=True, text=True, cwd=ROOT)
        assert answer.returncode == 0, answer.stdout + answer.stderr


@named(ALL)
def test_no_two_gpu_cells_are_alike(path):
    sources = [normalise(cell.source) for cell in code_cells(path) if handed_on(cell.source) is not None]
    assert len(set(sources)) == len(sources), "a recorded cell is found by its source"


@named(lessons())
def test_its_recording_is_fresh(path):
    name = lesson_name(path)
    made = Recording.read(TRACES / REFERENCE_GPU / f"{name}.ipynb")
    changes = stale(nbformat.read(path, as_version=4), made)
    assert not changes, f"{path.name}: {'; '.join(changes)}. Run `make record` on the GPU."


def test_every_recording_belongs_to_a_lesson():
    assert {str(path.relative_to(TRACES / REFERENCE_GPU).with_suffix("")) for path in RECORDED} == {
        lesson_name(path) for path in lessons()
    }


@named(RECORDED)
def test_a_lessons_recordings_are_small_and_hold_no_paths(path):
    files = [path, *path.with_suffix("").glob("*")]
    assert sum(file.stat().st_size for file in files) < 1e6
    for file in files:
        content = file.read_bytes() if file.suffix == ".ipynb" else gzip.decompress(file.read_bytes())
        assert not re.search(rb"(?<![A-Za-z0-9_.+/-])/(?:root|home|tmp|opt|work|usr|Users)/", content), file.name


@named(RECORDED)
def test_a_recording_says_where_it_comes_from(path):
    about = Recording.read(path).about
    needed = {"gpu", "driver", "cuda", "torch", "python", "date", "seconds", "peak_gpu_mib", "versions", "modules"}
    assert needed <= about.keys() and all(about[key] for key in needed)
    assert about["peak_gpu_mib"] < 4096


@named(LESSONS)
def test_it_states_the_memory_that_its_recording_held(path):
    held = Recording.read(TRACES / REFERENCE_GPU / f"{lesson_name(path)}.ipynb").about["peak_gpu_mib"] / 1024
    stated = float(re.search(r"about ([\d.]+) GiB of its memory", prose(path))[1])
    assert held <= stated < 1.2 * held


def test_lessons_number_on_without_gaps():
    numbers = [int(path.name[:2]) for path in LESSONS]
    assert all(b - a == 1 for a, b in itertools.pairwise(numbers)) and numbers[0] == 0
