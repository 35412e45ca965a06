"""Recordings are notebooks that people open: they carry
the lessons' present text, and nothing that runs.
"""

import shutil

import nbformat
import pytest

from course.commands.refresh import refresh
from course.lessons import lesson_file
from course.paths import TRACES
from course.recordings.recording import Recording

RECORDINGS = sorted(path for path in TRACES.glob("*/*.ipynb") if path.parent.name != "local")


def markdown(path):
    cells = nbformat.read(path, as_version=4).cells
    return [cell.source for cell in cells if cell.cell_type == "markdown"]


def measured(recording):
    return [(cell.source, cell.outputs) for cell in recording.cells if cell.kind == "gpu"]


@pytest.mark.parametrize(
    "recording", RECORDINGS, ids=lambda path: f"{path.parent.name}-{path.stem}"
)
def test_a_recording_has_the_prose_of_its_lesson(recording):
    lesson = lesson_file(recording.stem)
    assert markdown(recording) == markdown(lesson), "run `make refresh`"


@pytest.mark.parametrize(
    "recording", RECORDINGS, ids=lambda path: f"{path.parent.name}-{path.stem}"
)
def test_a_recording_holds_no_script(recording):
    for cell in nbformat.read(recording, as_version=4).cells:
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            assert "application/javascript" not in data
            assert "<script" not in data.get("text/html", "").lower()
            assert "USDT:" not in output.get("text", ""), "what the profiler prints is no result"


@pytest.fixture
def edited(tmp_path):
    """A lesson whose prose has changed since its recording
    was made, and that recording, both copies.
    """
    lesson = lesson_file("share_memory_pools")
    notebook = nbformat.read(lesson, as_version=4)
    notebook.cells[0].source += "\n\nA sentence that is new."
    nbformat.write(notebook, tmp_path / lesson.name)
    traces = tmp_path / "traces" / "nvidia-h200"
    traces.mkdir(parents=True)
    shutil.copy(TRACES / "nvidia-h200" / "share_memory_pools.ipynb", traces)
    return tmp_path / lesson.name, traces / "share_memory_pools.ipynb"


def test_refresh_changes_the_prose_and_nothing_that_was_measured(edited):
    lesson, recording = edited
    before = Recording.read(recording)
    assert refresh(lesson, recording)
    assert markdown(recording) == markdown(lesson)
    after = Recording.read(recording)
    assert measured(after) == measured(before)
    assert {**after.about, "digest": ""} == {**before.about, "digest": ""}
    assert not refresh(lesson, recording)


def test_refresh_leaves_a_stale_recording_alone(edited):
    lesson, recording = edited
    notebook = nbformat.read(lesson, as_version=4)
    gpu = next(cell for cell in notebook.cells if cell.source.startswith("%%gpu"))
    gpu.source += "\nchanged = True"
    nbformat.write(notebook, lesson)
    content = recording.read_bytes()
    with pytest.raises(ValueError, match="has changed, so record the lesson again"):
        refresh(lesson, recording)
    assert recording.read_bytes() == content
