import shutil

import nbformat
import pytest
from conftest import write_notebook
from IPython.utils.capture import capture_output
from nbclient.exceptions import CellExecutionError

from course import lesson as recording
from course import record
from course import recording as lessons
from course.recording import NOTEBOOKS, Recording, RecordingError, stale
from course.values import MIME, encode

SOURCE = "%%gpu speed\nspeed = 41\n'shown'"


def notebook(*sources, outputs=None):
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    for cell, output in (outputs or {}).items():
        cells[cell].outputs = [nbformat.v4.new_output("display_data", data) for data in output]
    return nbformat.v4.new_notebook(cells=cells)


def recorded_notebook(*sources, outputs=None):
    made = notebook(*sources, outputs=outputs)
    about = {"gpu": "NVIDIA H200", "torch": "2.11.0", "date": "2026-11-21", "modules": lessons.module_hashes()}
    made.metadata["recording"] = about
    return made


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(recording, "TRACES", tmp_path)
    (tmp_path / "nvidia-h200").mkdir()
    return tmp_path / "nvidia-h200"


@pytest.fixture
def recorded_shell(shell, folder):
    """A shell with the lesson "speed" open, recorded: speed is 41, and some text was shown."""
    values = [{"text/plain": "'shown'"}, {MIME: {"speed": encode("speed", 41)}, "text/plain": "handed on: speed"}]
    nbformat.write(recorded_notebook(SOURCE, outputs={0: values}), folder / "speed.ipynb")
    shell.run_cell("from course.lesson import lesson\nlesson('speed', live=False)", silent=True).raise_error()
    return shell


@pytest.fixture
def live_shell(shell):
    recording.lesson("speed", live=True)
    return shell


def test_without_a_gpu_a_cell_shows_its_recording_and_binds_its_values(recorded_shell):
    with capture_output() as shown:
        recorded_shell.run_cell(SOURCE).raise_error()
    assert recorded_shell.user_ns["speed"] == 41
    texts = [output.data.get("text/markdown", output.data.get("text/plain")) for output in shown.outputs]
    assert texts == ["*recorded on NVIDIA H200, torch 2.11.0, 2026-11-21*", "'shown'"]


def test_a_cell_that_showed_nothing_shows_nothing(shell, folder):
    nbformat.write(recorded_notebook("%%gpu\nspeed = 41"), folder / "speed.ipynb")
    shell.run_cell("from course.lesson import lesson\nlesson('speed', live=False)", silent=True).raise_error()
    with capture_output() as shown:
        shell.run_cell("%%gpu\nspeed = 41").raise_error()
    assert shown.outputs == [] and shown.stdout == ""


def test_white_space_at_line_ends_does_not_matter(recorded_shell):
    recorded_shell.run_cell(SOURCE.replace("\n", "  \n\n")).raise_error()
    assert recorded_shell.user_ns["speed"] == 41


@pytest.mark.parametrize("change", ["42", "4 1", "41 "])
def test_one_character_changed_needs_a_gpu(recorded_shell, change):
    recorded_shell.user_ns.pop("speed", None)
    result = recorded_shell.run_cell(SOURCE.replace("41", change, 1).replace("speed = 41 ", "speed  = 41"))
    assert type(result.error_in_exec).__name__ == "NeedsGPU"
    assert result.error_in_exec._render_traceback_() == [f"NeedsGPU: {result.error_in_exec}"]
    assert "speed" not in recorded_shell.user_ns


def test_other_cells_run_for_real(recorded_shell):
    recorded_shell.run_cell("speed = 2\nspeed *= 3").raise_error()
    assert recorded_shell.user_ns["speed"] == 6


def test_live_a_cell_runs_as_if_the_first_line_were_not_there(live_shell):
    live_shell.run_cell(SOURCE).raise_error()
    assert live_shell.user_ns["speed"] == 41


def test_live_tracebacks_keep_the_lines_of_the_cell(live_shell):
    result = live_shell.run_cell("%%gpu\nx = 1\n\n1 / 0")
    assert result.error_in_exec.__traceback__.tb_next.tb_lineno == 4


def test_live_other_magics_and_await_work(live_shell):
    live_shell.run_cell("%%gpu\n%%capture out\nprint('caught')").raise_error()
    assert live_shell.user_ns["out"].stdout == "caught\n"
    live_shell.run_cell("%%gpu\nimport asyncio\nwaited = await asyncio.sleep(0, 'done')").raise_error()
    assert live_shell.user_ns["waited"] == "done"
    live_shell.run_cell("%%gpu\nfiles = %pwd").raise_error()
    assert live_shell.user_ns["files"]


def test_gpu_is_a_word(live_shell):
    assert lessons.handed_on("%%gpus x") is None
    assert lessons.handed_on("%%gpu a b") == ["a", "b"]
    assert lessons.handed_on("x = '%%gpu'") is None


def test_recorded_fetches_a_value_by_name(recorded_shell):
    assert recording.recorded("speed") == 41
    with pytest.raises(RecordingError, match="no value 'width', only"):
        recording.recorded("width")


def damaged(kind, folder):
    path = folder / "speed.ipynb"
    if kind == "truncated":
        path.write_text(nbformat.writes(recorded_notebook(SOURCE))[:100])
    elif kind == "no provenance":
        nbformat.write(notebook(SOURCE), path)
    elif kind == "other json":
        path.write_text('{"cells": 3}')
    return path


@pytest.mark.parametrize("kind", ["missing", "truncated", "no provenance", "other json"])
def test_a_missing_or_damaged_recording_is_one_sentence(kind, folder, shell):
    damaged(kind, folder)
    with pytest.raises(RecordingError) as caught:
        recording.lesson("speed", live=False)
    assert "speed.ipynb" in str(caught.value) and "make record" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_value_of_unknown_type_is_one_sentence(folder, shell):
    outputs = {0: [{MIME: {"speed": {"$tensor": [1]}}}]}
    nbformat.write(recorded_notebook(SOURCE, outputs=outputs), folder / "speed.ipynb")
    recording.lesson("speed", live=False)
    error = shell.run_cell(SOURCE).error_in_exec
    assert "recorded value speed is of the unknown type 'tensor'" in str(error)


def test_a_missing_trace_is_named(recorded_shell):
    with pytest.raises(RecordingError, match="no recorded trace .*eager.json.gz"):
        recording.trace_file("eager")


def test_a_gpu_cell_before_the_lesson_is_open_is_told(monkeypatch):
    monkeypatch.setattr(recording, "_open", None)
    with pytest.raises(RuntimeError, match="No lesson is open"):
        recording.trace_file("eager")


@pytest.fixture
def write_lesson(tmp_path, monkeypatch):
    """Write the lesson "speed" with one %%gpu cell, which runs live even here; return its path."""
    monkeypatch.setattr(lessons, "NOTEBOOKS", tmp_path)
    monkeypatch.setattr(record, "gpu_slug", lambda: "nvidia-h200")

    def write(gpu_cell):
        opening = "from course.lesson import lesson\nlesson('speed', live=True)"
        return write_notebook(tmp_path / "03_speed.ipynb", opening, gpu_cell, "import warnings; warnings.warn('old')")

    return write


def test_a_recording_plays_what_was_executed(write_lesson, shell, monkeypatch, tmp_path):
    path = write_lesson(SOURCE)
    target = record.record(path, tmp_path / "traces")
    assert target == tmp_path / "traces" / "nvidia-h200" / "speed.ipynb"
    monkeypatch.setattr(recording, "TRACES", tmp_path / "traces")
    recording.lesson("speed", live=False)
    shell.run_cell(SOURCE).raise_error()
    assert shell.user_ns["speed"] == 41

    made = Recording.read(target)
    assert stale(nbformat.read(path, as_version=4), made) == []
    assert {
        "gpu",
        "driver",
        "cuda",
        "torch",
        "python",
        "date",
        "seconds",
        "peak_gpu_mib",
        "versions",
    } <= made.about.keys()
    text = target.read_text()
    assert "UserWarning: old" in text
    assert "ipykernel_" not in text and str(lessons.ROOT) not in text
    assert all(cell.metadata == {} for _, cell in made.cells)


@pytest.mark.parametrize(
    "source, message",
    [
        ("%%gpu speed\n1 / 0", "ZeroDivisionError"),
        ("%%gpu speed\nspeed = object()", "speed is a object, which a recording does not take"),
        ("%%gpu speed weight\nspeed = 1", "hands on weight, which its cell does not define"),
    ],
)
def test_a_lesson_that_fails_leaves_the_earlier_recording_as_it_was(write_lesson, tmp_path, source, message):
    folder = tmp_path / "traces" / "nvidia-h200"
    (folder / "speed").mkdir(parents=True)
    (folder / "speed" / "eager.json.gz").write_bytes(b"earlier")
    (folder / "speed.ipynb").write_bytes(b"earlier")
    with pytest.raises(CellExecutionError, match=message):
        record.record(write_lesson(source), tmp_path / "traces")
    assert (folder / "speed.ipynb").read_bytes() == b"earlier"
    assert sorted(p.name for p in folder.rglob("*")) == ["eager.json.gz", "speed", "speed.ipynb"]


def test_without_a_gpu_the_recorder_says_so(capsys, monkeypatch):
    monkeypatch.setattr(record.torch.cuda, "is_available", lambda: False)
    assert record.main([]) == 2
    assert "needs a CUDA GPU" in capsys.readouterr().err


@pytest.fixture
def copied(tmp_path, monkeypatch):
    """The profile lesson, a recording of it as it is now, and the helpers in a folder to change at will."""
    shutil.copytree(lessons.ROOT / "helpers", tmp_path / "helpers", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(lessons, "ROOT", tmp_path)
    lesson = nbformat.read(NOTEBOOKS / "01_profile_eager_training.ipynb", as_version=4)
    nbformat.write(
        recorded_notebook(*[c.source for c in lesson.cells if c.cell_type == "code"]), tmp_path / "made.ipynb"
    )
    return lesson, Recording.read(tmp_path / "made.ipynb")


def test_an_unchanged_lesson_is_fresh(copied):
    assert stale(*copied) == []


def test_a_changed_module_makes_recordings_stale(copied):
    timing = lessons.ROOT / "helpers" / "timing.py"
    timing.write_text(timing.read_text().replace("burst=10", "burst=9"))
    assert stale(*copied) == ["helpers/timing.py has changed"]


def test_a_changed_cell_before_a_gpu_cell_is_named(copied):
    lesson, made = copied
    code = [cell for cell in lesson.cells if cell.cell_type == "code"]
    (number,) = [i for i, cell in enumerate(code) if cell.source.startswith("options = {")]
    code[number].source += "\n"
    assert stale(lesson, made) == []
    code[number].source = code[number].source.replace("True", "False", 1)
    assert stale(lesson, made) == [f"code cell {number + 1} (options = {{ ...) has changed"]


def test_a_changed_cell_after_the_last_gpu_cell_changes_nothing(copied):
    lesson, made = copied
    lesson.cells.append(nbformat.v4.new_code_cell("new = 1"))
    assert stale(lesson, made) == []
