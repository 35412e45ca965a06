"""Recording a lesson, playing it without a GPU, and noticing when it is no longer true."""

import contextlib
import importlib
import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
import torch

from course import lesson, paths, recorded_gpus
from course.commands import record
from course.lessons import lesson_file
from course.recordings import reached_code
from course.recordings.cells import code_cells, handed_on
from course.recordings.kernel_history import closest_cell_hint
from course.recordings.recording import (
    Recording,
    RecordingError,
    changes_since,
    code_hashes,
    digest,
    find_recording,
)
from course.recordings.statements import parsed
from tests.support.learner import CELLS, OPENING, SPEED, TWICE
from tests.support.notebooks import code, write_notebook


def test_without_a_gpu_a_lesson_shows_its_recording_and_binds_its_values(learner):
    assert learner.run_all(*CELLS[:4]) == []
    assert learner.run(SPEED) is None
    date = lesson.current().recording.about["date"]
    shown = [output.data for output in learner.seen.outputs]
    texts = [data.get("text/markdown", data.get("text/plain")) for data in shown]
    assert texts == [f"*recorded on NVIDIA H200, torch 2.11.0, {date}*", "'shown'"]
    assert learner.run_all(*CELLS[5:]) == []
    assert (learner["speed"], learner["twice"]) == (41, 2)
    assert learner["table"].to_dict() == {"x": {0: 2}}
    assert learner["lesson"].__module__ == "course.lesson"


@pytest.mark.parametrize("left_out, name", [(1, "factor"), (2, "scale"), (5, "options")])
def test_a_plain_cell_left_out_needs_a_gpu_and_its_name_is_told(learner, left_out, name):
    errors = [learner.run(cell) for number, cell in enumerate(CELLS[:8]) if number != left_out]
    (error,) = [error for error in errors if type(error).__name__ == "NeedsGPU"][:1]
    assert f"reads {name}, which no cell has bound" in str(error)


def test_a_gpu_cell_left_out_is_named(learner):
    error = learner.run_all(*CELLS[:4], *CELLS[5:8])[0]
    assert "the %%gpu cell with the line `speed = scale(20) + 1`" in str(error)
    assert learner.run_all(SPEED, TWICE, SPEED) == []


@pytest.mark.parametrize(
    "change", [("20", "21"), ("speed = ", "speed += "), ("speed\n", "speed factor\n")]
)
def test_one_character_of_a_gpu_cell_changed_needs_a_gpu(learner, change):
    learner.run_all(*CELLS[:4])
    error = learner.run(SPEED.replace(*change, 1))
    assert type(error).__name__ == "NeedsGPU" and "is not one that was recorded" in str(error)
    assert "speed" not in learner


def test_an_edited_gpu_cell_is_told_the_lessons_own():
    own = next(cell for cell in code(lesson_file("start_here")) if cell.startswith("%%gpu"))
    assert closest_cell_hint(f"{own} + 1", "start_here").endswith(f"\n\n{own}")


@pytest.mark.parametrize("kind", ["missing", "truncated", "folder", "other json"])
def test_a_missing_or_damaged_recording_is_one_sentence(kind, path, learner):
    content = path.read_bytes()
    path.unlink()
    if kind == "folder":
        path.mkdir()
    elif kind != "missing":
        path.write_bytes(content[:500] if kind == "truncated" else b'{"cells": 3}')
    error = learner.run(OPENING)
    assert type(error).__name__ == "RecordingError"
    assert "speed.json" in str(error) and "make record" in str(error)


def test_a_changed_figure_is_noticed(path, learner):
    text = path.read_text()
    assert text.count('"speed": 41') == 1
    path.write_text(text.replace('"speed": 41', '"speed": 42'))
    assert "was changed after it was recorded" in str(learner.run(OPENING))


def test_a_recording_of_another_format_is_one_sentence(path, learner):
    path.write_text(path.read_text().replace('"format": 3', '"format": 4'))
    assert "has format 4, and this course reads 3" in str(learner.run(OPENING))


def relabelled(path, gpu, folder):
    """A copy of a recording as if it had been made on another GPU; recordings themselves are never
    edited.
    """
    content = json.loads(path.read_text()) | {"gpu": gpu}
    del content["digest"]
    folder.mkdir(exist_ok=True)
    (folder / path.name).write_text(json.dumps(content | {"digest": digest(content)}))
    shutil.copytree(path.with_suffix(""), folder / path.stem, dirs_exist_ok=True)


@pytest.mark.parametrize("way", ["the environment", "the opening cell"])
def test_another_gpus_recording_is_played_where_asked_for(path, learner, monkeypatch, way):
    relabelled(path, "Other GPU", path.parent.parent / "other-gpu")
    if way == "the environment":
        monkeypatch.setenv("CUDA_GRAPHS_RECORDED_ON", "other-gpu")
    opening = OPENING if way == "the environment" else OPENING[:-1] + ', recorded_on="other-gpu")'
    assert learner.run_all(opening, *CELLS[1:]) == []
    assert lesson.current().recording.about["gpu"] == "Other GPU" and learner["speed"] == 41
    assert lesson.trace_file("eager").parent.parent.name == "other-gpu"


def test_a_lesson_that_the_other_gpu_lacks_is_the_reference_gpus(path, learner, monkeypatch):
    (path.parent.parent / "other-gpu").mkdir()
    monkeypatch.setenv("CUDA_GRAPHS_RECORDED_ON", "other-gpu")
    assert learner.run_all(*CELLS) == []
    assert lesson.current().recording.about["gpu"] == "NVIDIA H200"
    assert lesson.current().recording.path == path


def test_every_gpus_recording_is_laid_beside(tmp_path, shell, monkeypatch):
    for gpu in ("NVIDIA H200", "Other GPU"):
        folder = gpu.lower().replace(" ", "-")
        relabelled(find_recording("start_here").path, gpu, tmp_path / folder)
    (tmp_path / "local").mkdir()
    shutil.copy(tmp_path / "nvidia-h200" / "start_here.json", tmp_path / "local")
    monkeypatch.setattr(lesson, "TRACES", tmp_path)
    monkeypatch.setattr(lesson, "_open", lesson.LessonSession("start_here", live=False))
    table = recorded_gpus.compare_gpus("timings")
    names = [name.partition(",")[0] for name in table.index.get_level_values(0)]
    assert names == ["NVIDIA H200"] * 2 + ["Other GPU"] * 2
    shell.user_ns["timings"] = find_recording("start_here").value("timings")
    monkeypatch.setattr(lesson, "_open", lesson.LessonSession("start_here", live=True))
    assert len(recorded_gpus.compare_gpus("timings")) == 6
    with pytest.raises(RecordingError, match="no value 'other'"):
        shell.user_ns["other"] = shell.user_ns["timings"]
        recorded_gpus.compare_gpus("other")


@pytest.mark.parametrize(
    "gpu", ["../nvidia-h200", "", ".", "..", "/etc", "nvidia-h200/x", "nvidia-h2000", "x" * 5000]
)
def test_nothing_outside_of_traces_is_read(gpu, learner, monkeypatch):
    monkeypatch.setenv("CUDA_GRAPHS_RECORDED_ON", gpu)
    error = learner.run(OPENING)
    assert type(error).__name__ == "RecordingError" and "is no folder of traces/" in str(error)
    assert len(str(error)) < 200


def test_a_trace_is_the_recorded_one(path, learner):
    learner.run_all(*CELLS)
    file = lesson.trace_file("eager")
    assert file.read_bytes() == b"trace" and file.parent == path.with_suffix("")
    file.write_bytes(b"edited")
    with pytest.raises(RecordingError, match="is not the trace that was recorded"):
        lesson.trace_file("eager")
    file.unlink()
    with pytest.raises(RecordingError, match="no recorded trace .*eager"):
        lesson.trace_file("eager")
    with pytest.raises(RecordingError, match="no recorded trace .*other.json.gz"):
        lesson.trace_file("other")


def test_recorded_fetches_a_value_by_name(learner):
    learner.run_all(*CELLS)
    assert lesson.recorded("speed") == 41
    with pytest.raises(RecordingError, match="no value 'width', only speed, table, twice"):
        lesson.recorded("width")


@pytest.fixture
def live_shell(shell):
    lesson.lesson("speed", live=True)
    return shell


def test_live_a_cell_runs_as_if_the_first_line_were_not_there(live_shell):
    live_shell.run_cell("%%gpu speed\nspeed = 41").raise_error()
    assert live_shell.user_ns["speed"] == 41
    result = live_shell.run_cell("%%gpu\nx = 1\n\n1 / 0")
    assert result.error_in_exec.__traceback__.tb_next.tb_lineno == 4


def test_live_other_magics_and_await_work(live_shell):
    live_shell.run_cell("%%gpu\n%%capture out\nprint('caught')").raise_error()
    assert live_shell.user_ns["out"].stdout == "caught\n"
    waiting = "%%gpu\nimport asyncio\nwaited = await asyncio.sleep(0, 'done')"
    live_shell.run_cell(waiting).raise_error()
    assert live_shell.user_ns["waited"] == "done"
    live_shell.run_cell("%%gpu\nfiles = %pwd").raise_error()
    assert live_shell.user_ns["files"]


def test_gpu_is_a_word():
    assert handed_on("%%gpus x") is None
    assert handed_on("%%gpu a b") == ["a", "b"]
    assert handed_on("x = '%%gpu'") is None


def test_cells_have_kinds():
    sources = ("guess_a = 1\nguess_b = ...", "x = 1", "%%gpu\nx", "y = 2")
    cells = list(map(nbformat.v4.new_code_cell, sources))
    cells.insert(3, nbformat.v4.new_markdown_cell("text\n\n## Exercises\n\nmore"))
    cells += [nbformat.v4.new_markdown_cell("## Recap"), nbformat.v4.new_code_cell("%%gpu\nfree()")]
    kinds = [cell.kind for cell in code_cells(nbformat.v4.new_notebook(cells=cells))]
    assert kinds == ["guess", "plain", "gpu", "exercise", "gpu"]


def test_a_recording_says_where_it_comes_from_and_holds_no_paths(made):
    path = made / "traces" / "nvidia-h200" / "speed.json"
    about, text = Recording.read(path).about, path.read_text()
    needed = {"format", "gpu", "driver", "cuda", "torch", "date", "seconds", "peak_gpu_mib"}
    assert needed | {"versions", "definitions", "traces"} <= about.keys() and about["format"] == 3
    assert "UserWarning: old" in text
    assert "ipykernel_" not in text and str(paths.ROOT) not in text


def test_a_recording_holds_what_was_measured_and_nothing_else(made):
    recording = Recording.read(made / "traces" / "nvidia-h200" / "speed.json")
    speed, twice, traced, warned = recording.cells
    found = (speed.begins, speed.values, speed.outputs)
    assert found == ("speed = scale(20) + 1", {"speed": 41}, [{"text": ["'shown'"]}])
    assert set(twice.values) == {"twice", "table"}
    assert twice.outputs == [{"table": twice.values["table"]}]
    assert not traced.values and not traced.outputs
    assert [[*output] for output in warned.outputs] == [["stderr"]]
    assert recording.statements.keys() == {"factor", "scale", "options"}


@pytest.mark.parametrize("parent", ["elsewhere", "a b", str(paths.ROOT / "t")])
def test_paths_of_any_temporary_folder_are_taken_out(tmp_path, monkeypatch, parent):
    folder = tmp_path / parent
    monkeypatch.setattr(record.tempfile, "tempdir", str(folder))
    said = [f"{folder}/ipykernel_12/34.py:5: old", f"{folder}/tmpx_1/eager.json.gz"]
    assert record.without_paths(said, "speed") == ["34.py:5: old", "speed/eager.json.gz"]


def test_a_name_that_its_cell_does_not_define_is_told(shell):
    shell.user_ns["speed"] = object()
    with pytest.raises(NameError, match="hands on weight, which its cell does not define"):
        record.publish_values(["speed", "weight"])
    with pytest.raises(TypeError, match="speed is a object, which a recording does not take"):
        record.publish_values(["speed"])


def test_a_gpu_cell_shows_text_and_tables():
    chart = nbformat.v4.new_output("display_data", {"text/html": "<b>2</b>", "text/plain": "2"})
    with pytest.raises(TypeError, match="shows text/html, text/plain, which a recording does not"):
        record.recorded_output(chart)
    profiler = nbformat.v4.new_output("stream", name="stderr", text="USDT: 1 profiler_start\n")
    assert record.recorded_output(profiler) is None


def test_a_recorder_killed_at_any_moment_leaves_a_whole_recording(
    traces, path, tmp_path, monkeypatch
):
    """Stop before every replacement and removal of a file in turn: the old recording plays, or the
    new one.
    """
    notebook = write_notebook(tmp_path / "03_speed.ipynb", OPENING, "%%gpu speed\nspeed = 42")
    about = {"gpu": "NVIDIA H200", "torch": "2.11.0", "date": "2026-01-01"}
    monkeypatch.setattr(paths, "NOTEBOOKS", tmp_path)
    monkeypatch.setattr(record, "gpu_slug", lambda: "nvidia-h200")

    def run(_, staged):
        (staged / "eager.json.gz").write_bytes(b"newer trace")
        return about, [{"values": {"speed": 42}, "outputs": []}]

    monkeypatch.setattr(record, "run", run)
    calls = SimpleNamespace(left=0)

    def dying(method):
        def call(*arguments, **options):
            if calls.left == 0:
                raise KeyboardInterrupt
            calls.left -= 1
            return method(*arguments, **options)

        return call

    seen = set()
    for moment in range(4):
        calls.left = moment
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Path, "replace", dying(Path.replace))
            patch.setattr(Path, "unlink", dying(Path.unlink))
            with contextlib.suppress(KeyboardInterrupt):
                record.record(notebook, traces)
        recording = Recording.read(path)
        seen.add((recording.trace("eager").read_bytes(), recording.value("speed")))
    assert seen == {(b"trace", 41), (b"newer trace", 42)}
    assert len(list(path.with_suffix("").iterdir())) == 1


@pytest.mark.parametrize("command", ["record", "works_on"])
def test_without_a_gpu_a_command_says_so(command, capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert importlib.import_module(f"course.commands.{command}").main([]) == 2
    assert "needs a CUDA GPU" in capsys.readouterr().err


@pytest.fixture
def timed():
    """The cells of a lesson with measure in a %%gpu cell and compare beside it, to change at will,
    and what they then make stale.
    """
    sources = (
        "from helpers.timing import compare, measure",
        "def steps():\n    return {}",
        "%%gpu rounds\nrounds = measure(steps())",
        "compare(rounds)",
        "%%gpu more\nmore = 1",
        "last = 2",
    )
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    content = nbformat.v4.new_notebook(cells=cells)
    recording = Recording.from_content(Path("timed.json"), code_hashes(code_cells(content)))
    return SimpleNamespace(cells=content.cells, stale=lambda: changes_since(content, recording))


@pytest.mark.parametrize(
    "now, then, differing",
    [
        ({"n.A": "1", "n.B": "1"}, {"m.A": "1", "m.B": "1"}, []),
        ({"m.f": "2", "n.f": "1"}, {"m.f": "1", "n.f": "1"}, ["m.f"]),
        ({"n.f": "2"}, {"m.f": "1"}, ["n.f"]),
        # helpers.timing still has a measure
        ({"n.measure": "1"}, {"helpers.timing.measure": "1"}, ["n.measure"]),
        ({"capturable": "0.2.0+2"}, {"capturable": "0.2.0+1"}, []),
    ],
)
def test_a_definition_differs_by_its_text_and_may_move_once_its_name_is_free(now, then, differing):
    assert reached_code.redefined(now, then) == differing


@pytest.mark.parametrize("reads", ['f"{name}.bin"', '"a.bin"', "name"])
def test_a_file_counts_also_where_a_part_of_its_name_is_put_in(tmp_path, reads):
    (tmp_path / "examples").mkdir()
    module = f"def words(name='a.bin'):\n    return open({reads}).read()\n"
    (tmp_path / "examples/reader.py").write_text(module)
    file = tmp_path / "examples/a.bin"
    file.write_bytes(b"to be\n")
    nodes = [one.node for one in parsed("from examples.reader import words\nwords()").statements]
    before = reached_code.hashes(nodes, tmp_path)
    assert list(before) == ["examples.reader.words", "examples/a.bin"]
    file.write_bytes(b"to be\r\n")
    assert reached_code.hashes(nodes, tmp_path) == before
    file.write_bytes(b"\xff\x01\x02")
    assert reached_code.hashes(nodes, tmp_path) != before
    file.unlink()
    assert reached_code.lost_files(before, tmp_path) == ["examples/a.bin"]


@pytest.mark.parametrize(
    "number, source, changed",
    [
        (1, "from helpers.timing import measure, compare  \n\n# mine", []),
        (1, "from helpers.timing import compare", ["cell 3 (rounds", "on other statements"]),
        (1, "from helpers.timing import compare as measure", ["compare as measure", "was not"]),
        (4, "compare(rounds).T\nassert rounds is not None\nmine = 3", []),
        (2, "def steps():\n    return {1: 2}", ["depends on `def steps():` before it"]),
        (2, "def steps() -> dict:\n    'Mine.'\n    return (\n        {}\n    )\nmine = 3", []),
        (6, "last = 3", []),
    ],
)
def test_a_changed_statement_on_which_a_gpu_cell_depends_is_named(timed, number, source, changed):
    timed.cells[number - 1].source = source
    said = " ".join(timed.stale())
    assert bool(said) == bool(changed) and all(part in said for part in changed), said


def test_a_guess_or_an_exercise_makes_nothing_stale(timed):
    timed.cells.insert(2, nbformat.v4.new_code_cell("guess_it = 3"))
    assert timed.stale() == []


def test_a_gpu_cell_taken_out_or_added_is_noticed(timed):
    del timed.cells[4]
    assert timed.stale() == ["the %%gpu cell that begins with `more = 1` was taken out"]
    timed.cells.append(nbformat.v4.new_code_cell("%%gpu\nmore = 1"))
    timed.cells.append(nbformat.v4.new_code_cell("%%gpu\nnew = 1"))
    assert len(timed.stale()) == 1
