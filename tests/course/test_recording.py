"""Recording a lesson, playing it without a GPU, and noticing when it is no longer true."""

import contextlib
import copy
import json
import os
import random
import shutil
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
from nbclient.exceptions import CellExecutionError

from course import beside, lesson, paths
from course.commands import record
from course.recordings import fingerprints, recording
from course.recordings.cells import code_cells, handed_on
from course.recordings.recording import Recording, RecordingError, digest, recorded_lesson, stale
from tests.support.learner import CELLS, FACTOR, OPENING, OPTIONS, SCALE, SEED, SPEED, TRACED, TWICE
from tests.support.notebooks import write_notebook


def test_without_a_gpu_a_lesson_shows_its_recording_and_binds_its_values(learner):
    assert learner.run_all(*CELLS[:4]) == []
    assert learner.run(SPEED) is None
    texts = [
        output.data.get("text/markdown", output.data.get("text/plain"))
        for output in learner.seen.outputs
    ]
    assert texts == ["*recorded on NVIDIA H200, torch 2.11.0, " + _date(learner) + "*", "'shown'"]
    assert learner.run_all(*CELLS[5:]) == []
    assert (learner["speed"], learner["twice"]) == (41, 2)
    assert learner["table"].to_dict() == {"x": {0: 2}}
    assert learner["lesson"].__module__ == "course.lesson"


def _date(learner):
    return lesson.current().recording.about["date"]


def test_a_cell_that_showed_nothing_shows_nothing(learner):
    assert learner.run_all(*CELLS[:-2]) == []
    assert learner.run(TRACED) is None
    assert learner.seen.outputs == [] and learner.seen.stdout == ""


def test_white_space_does_not_matter(learner):
    assert learner.run_all(*[source.replace("\n", "  \n\n") for source in CELLS]) == []
    assert learner["speed"] == 41


@pytest.mark.parametrize("left_out", [1, 2, 5, 6])
def test_a_plain_cell_left_out_needs_a_gpu_and_is_named(learner, left_out):
    learner.run_all(OPENING)
    last_before = max(i for i in range(len(CELLS)) if i in (4, 7) and (i > left_out))
    for i in range(1, last_before):
        if i != left_out and CELLS[i][:5] != "%%gpu":
            learner.run(CELLS[i])
    if last_before == 7:
        learner.run(SPEED)
    error = learner.run(CELLS[last_before])
    assert type(error).__name__ == "NeedsGPU" and f"code cell {left_out + 1} (" in str(error)


def test_a_view_may_be_edited_and_added(learner):
    assert (
        learner.run_all(
            f"{OPENING}  # mine", "from course.exercise import guessed\n\nguessed(1)", *CELLS[1:]
        )
        == []
    )


def test_what_a_cell_shows_changes_nothing(learner, path):
    """Though a %%gpu cell may use IPython's name for it, `_`, for what it throws away."""
    notebook = nbformat.read(path, as_version=4)
    thrown_away = "%%gpu speed\nspeed, _ = 41, 0\nspeed + _"
    next(cell for cell in notebook.cells if cell.source == SPEED).source = thrown_away
    notebook.metadata["recording"]["digest"] = digest(notebook)
    nbformat.write(notebook, path)
    assert learner.run_all(*CELLS[:4], "1 + 1", thrown_away) == []


@pytest.mark.parametrize("edit, cell", [("factor = 3", 2), ("import random\n\nrandom.seed(4)", 7)])
@pytest.mark.parametrize("places", [True, False], ids=["with cell ids", "without"])
def test_a_plain_cell_edited_needs_a_gpu_and_is_named(learner, edit, cell, places):
    sources = [edit if number == cell else source for number, source in enumerate(CELLS[:8], 1)]
    errors = [
        learner.run(source, f"id{number}" if places else None)
        for number, source in enumerate(sources)
    ]
    assert f"code cell {cell} (" in str(next(filter(None, errors)))
    assert "twice" not in learner


def test_a_cell_edited_after_it_ran_needs_a_gpu_until_it_runs_as_recorded_again(learner):
    for number, source in enumerate(CELLS[:8]):
        assert learner.run(source, f"id{number}") is None
    learner.run("import random\n\nrandom.seed(4)", "id6")
    assert "code cell 7" in str(learner.run(TWICE, "id7"))
    learner.run(SEED, "id6")
    assert learner.run(TWICE, "id7") is None


@pytest.mark.parametrize(
    "cell",
    [
        "factor = 3",
        "for factor in range(5): pass",
        "globals()['factor'] = 5",
        "options['more'] = 2",
        "options.clear()",
        "def scale(x):\n    return 1",
        "del options",
        "import math as scale",
        "options |= {'more': 3}",
    ],
)
def test_a_cell_of_the_readers_own_that_changes_what_a_gpu_cell_uses_needs_a_gpu(learner, cell):
    learner.run_all(*CELLS[:8])
    learner.run(cell)
    error = learner.run(SPEED) or learner.run(TWICE)
    assert type(error).__name__ == "NeedsGPU" and cell.partition("\n")[0] in str(error)
    learner.run_all(FACTOR, SCALE, OPTIONS)
    assert learner.run_all(SPEED, TWICE) == []


@pytest.mark.parametrize(
    "cell",
    [
        "guess = 4",
        "1 + 1",
        "mine = options['more']",
        "scale(3)",
        "1 / 0",
        "options.copy().clear()",
        "def idle(a): ...",
        "import pandas as pd",
        "import math as pd",  # which the %%gpu cell imports itself
        "table = 'mine'",  # which the %%gpu cell binds
    ],
)
def test_a_cell_of_the_readers_own_that_touches_nothing_changes_nothing(learner, cell):
    for source in CELLS:
        learner.run(cell if source == "guess = ..." else source)
        learner.run(cell)
    assert (learner["speed"], learner["twice"]) == (41, 2)


@pytest.mark.parametrize(
    "change", [("20", "21"), ("speed = ", "speed += "), ("speed\n", "speed factor\n")]
)
def test_one_character_of_a_gpu_cell_changed_needs_a_gpu(learner, change):
    learner.run_all(*CELLS[:4])
    error = learner.run(SPEED.replace(*change, 1))
    assert type(error).__name__ == "NeedsGPU" and "is not one that was recorded" in str(error)
    assert "speed" not in learner


def test_a_recorded_script_does_not_run(learner, path):
    def attack(content):
        outputs = next(
            cell["outputs"] for cell in content["cells"] if "".join(cell["source"]) == TWICE
        )
        outputs[0]["data"]["text/html"] = (
            "<script>alert(1)</script><b onclick='alert(2)'>2</b><table border='1'></table>"
        )
        outputs[0]["data"]["application/javascript"] = "alert(3)"

    forge(path, attack)
    learner.run_all(*CELLS[:7])
    assert learner.run(TWICE) is None
    (shown,) = [output.data for output in learner.seen.outputs if "text/html" in output.data]
    assert shown["text/html"] == '<b>2</b><table border="1"></table>' and set(shown) == {
        "text/html",
        "text/plain",
    }


def forge(path, change):
    """Change a recording, and give it the digest that the changed one would have."""
    content = json.loads(path.read_text())
    change(content)
    notebook = nbformat.v4.reads(json.dumps(content))
    notebook.metadata["recording"]["digest"] = digest(notebook)
    path.write_text(nbformat.v4.writes(notebook))


@pytest.mark.parametrize("field", ["gpu", "torch", "date", "driver", "cuda", "python", "cpu"])
@pytest.mark.parametrize(
    "text", ["<script>go()</script>", "[x](javascript:go)", "*" * 9, "a" * 500, 7]
)
def test_markup_in_what_a_recording_says_of_itself_is_refused(learner, path, field, text):
    def attack(content):
        content["metadata"]["recording"][field] = text

    forge(path, attack)
    error = learner.run(OPENING)
    assert type(error).__name__ == "RecordingError" and "speed.ipynb" in str(error)


@pytest.mark.parametrize("table", ["traces", "definitions"])
def test_tables_of_another_kind_are_refused(learner, path, table):
    def attack(content):
        content["metadata"]["recording"][table] = {"eager": None}

    forge(path, attack)
    assert type(learner.run(OPENING)).__name__ == "RecordingError"


def test_an_output_without_a_text_is_one_sentence(learner, path):
    def attack(content):
        for cell in content["cells"]:
            if "".join(cell["source"]) == SPEED:
                cell["outputs"] = [{"output_type": "display_data", "data": {}, "metadata": {}}]

    forge(path, attack)
    learner.run_all(*CELLS[:4])
    assert type(learner.run(SPEED)).__name__ == "RecordingError"


def test_a_folder_name_of_any_length_is_one_sentence(learner, monkeypatch):
    monkeypatch.setenv("CUDA_GRAPHS_RECORDED_ON", "x" * 5000)
    error = learner.run(OPENING)
    assert type(error).__name__ == "RecordingError" and len(str(error)) < 200


def test_only_names_on_the_gpu_line_are_bound(learner, path):
    def add(content):
        for cell in content["cells"]:
            for output in cell.get("outputs", []):
                output.get("data", {}).get(recording.MIME, {})["print"] = "not print"

    forge(path, add)
    assert learner.run_all(*CELLS) == []
    assert "print" not in learner


def nodes(value, path=()):
    """Every place in JSON, as the keys that lead there."""
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, inner in items:
        yield (*path, key)
        yield from nodes(inner, (*path, key))


def tampered(content, rng):
    """A copy of a recording with one place dropped, or
    given a value of another type, nesting or content.
    """
    content = copy.deepcopy(content)
    *way, last = rng.choice(list(nodes(content)))
    holder = content
    for key in way:
        holder = holder[key]
    if rng.random() < 0.3:
        del holder[last]
    else:
        holder[last] = rng.choice(
            [None, 7, "x", [], {}, [[]], {"$dict": 3}, float("nan"), holder[last], [holder[last]]]
        )
    return content


def test_no_tampering_shows_anything_false_or_a_traceback(learner, path):
    """300 seeded tamperings, in what lies in the recording:
    each plays the truth or says one sentence.
    """
    rng, good = random.Random(12), json.loads(path.read_text())
    refused = 0
    for _ in range(300):
        for name in ("speed", "twice", "table"):
            learner.shell.user_ns.pop(name, None)
        path.write_text(json.dumps(tampered(good, rng)))
        errors = [learner.run(source) for source in CELLS]
        first = next((type(error).__name__ for error in errors if error), None)
        assert first in (None, "RecordingError"), errors
        refused += first is not None
        assert (
            learner.shell.user_ns.get("speed", 41) == 41
            and learner.shell.user_ns.get("twice", 2) == 2
        )
        if first:
            assert "speed" not in learner
    assert refused > 200


def test_no_tampering_with_a_new_digest_gives_a_traceback(learner, path):
    """150 seeded tamperings by somebody who also writes the digest anew: each opening and each
    %%gpu cell plays something or says one sentence. What plain cells make of it is their own.
    """
    rng, good = random.Random(36), json.loads(path.read_text())
    refused = 0
    for _ in range(150):
        content = tampered(good, rng)
        try:
            notebook = nbformat.v4.reads(json.dumps(content))
            notebook.metadata["recording"]["digest"] = digest(notebook)
            path.write_text(nbformat.v4.writes(notebook))
        except Exception:  # no notebook at all: nothing to write
            path.write_text(json.dumps(content))
        errors = {source: learner.run(source) for source in CELLS}
        kinds = {
            type(error).__name__
            for source, error in errors.items()
            if error and (source == OPENING or source.startswith("%%gpu"))
        }
        assert kinds <= {"RecordingError", "NeedsGPU"}, errors
        refused += bool(kinds)
    assert refused > 50


@pytest.mark.parametrize(
    "kind", ["missing", "empty", "truncated", "folder", "loop", "outside", "other json", "binary"]
)
def test_a_missing_or_damaged_recording_is_one_sentence(kind, path, learner):
    content = path.read_bytes()
    path.unlink()
    if kind == "folder":
        path.mkdir()
    elif kind == "loop":
        path.symlink_to(path)
    elif kind == "outside":
        path.parent.parent.parent.joinpath("elsewhere.ipynb").write_bytes(content)
        path.symlink_to(path.parent.parent.parent / "elsewhere.ipynb")
    elif kind != "missing":
        damaged = {
            "empty": b"",
            "truncated": content[:500],
            "other json": b'{"cells": 3}',
            "binary": b"\xff\x00",
        }
        path.write_bytes(damaged[kind])
    error = learner.run(OPENING)
    assert (
        type(error).__name__ == "RecordingError"
        and "speed.ipynb" in str(error)
        and "make record" in str(error)
    )


def relabelled(path, gpu, folder):
    """A copy of a recording as if it had been made on
    another GPU; recordings themselves are never edited.
    """
    notebook = nbformat.read(path, as_version=4)
    notebook.metadata["recording"]["gpu"] = gpu
    notebook.metadata["recording"]["digest"] = digest(notebook)
    folder.mkdir()
    nbformat.write(notebook, folder / path.name)
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
    assert (
        learner.run_all(*CELLS) == [] and lesson.current().recording.about["gpu"] == "NVIDIA H200"
    )
    assert lesson.current().recording.path == path


def test_every_gpus_recording_is_laid_beside(tmp_path, shell, monkeypatch):
    for gpu in ("NVIDIA H200", "Other GPU"):
        relabelled(
            recorded_lesson("start_here").path, gpu, tmp_path / gpu.lower().replace(" ", "-")
        )
    (tmp_path / "local").mkdir()
    shutil.copy(tmp_path / "nvidia-h200" / "start_here.ipynb", tmp_path / "local")
    monkeypatch.setattr(lesson, "TRACES", tmp_path)
    monkeypatch.setattr(lesson, "_open", lesson.Lesson("start_here", live=False))
    table = beside.every_gpu("timings")
    names = [name.partition(",")[0] for name in table.index.get_level_values(0)]
    assert names == ["NVIDIA H200"] * 2 + ["Other GPU"] * 2
    shell.user_ns["timings"] = recorded_lesson("start_here").value("timings")
    monkeypatch.setattr(lesson, "_open", lesson.Lesson("start_here", live=True))
    assert len(beside.every_gpu("timings")) == 6
    with pytest.raises(RecordingError, match="no value 'other'"):
        shell.user_ns["other"] = shell.user_ns["timings"]
        beside.every_gpu("other")


@pytest.mark.parametrize(
    "gpu", ["../nvidia-h200", "", ".", "..", "/etc", "nvidia-h200/x", "nvidia-h2000"]
)
def test_nothing_outside_of_traces_is_read(gpu, learner, monkeypatch):
    monkeypatch.setenv("CUDA_GRAPHS_RECORDED_ON", gpu)
    error = learner.run(OPENING)
    assert type(error).__name__ == "RecordingError" and "is no folder of traces/" in str(error)


def test_line_ends_do_not_matter(path, learner):
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert learner.run_all(*CELLS) == []


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


def test_a_gpu_cell_before_the_lesson_is_open_is_told(learner):
    with pytest.raises(paths.LessonError, match="No lesson is open"):
        lesson.trace_file("eager")


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
    live_shell.run_cell(
        "%%gpu\nimport asyncio\nwaited = await asyncio.sleep(0, 'done')"
    ).raise_error()
    assert live_shell.user_ns["waited"] == "done"
    live_shell.run_cell("%%gpu\nfiles = %pwd").raise_error()
    assert live_shell.user_ns["files"]


def test_gpu_is_a_word():
    assert handed_on("%%gpus x") is None
    assert handed_on("%%gpu a b") == ["a", "b"]
    assert handed_on("x = '%%gpu'") is None


def test_cells_have_kinds():
    cells = [
        nbformat.v4.new_code_cell(source)
        for source in ("guess_a = 1\nguess_b = ...", "x = 1", "%%gpu\nx", "y = 2")
    ]
    cells.insert(3, nbformat.v4.new_markdown_cell("text\n\n## Exercises\n\nmore"))
    cells += [nbformat.v4.new_markdown_cell("## Recap"), nbformat.v4.new_code_cell("%%gpu\nfree()")]
    kinds = [cell.kind for cell in code_cells(nbformat.v4.new_notebook(cells=cells))]
    assert kinds == ["guess", "plain", "gpu", "exercise", "gpu"]


@pytest.mark.parametrize(
    "end",
    ["show(x, y=[1])", "show(x.y);", "x", "show(f(x))", "show((x := 1))", "y = show(x)", "f(x)"],
)
@pytest.mark.parametrize(
    "start",
    ["from course.exercise import show\n", "from helpers.charts import show\n", "x = 2\n", ""],
)
def test_a_view_only_shows(start, end):
    cell = nbformat.v4.new_code_cell(start + end)
    (found,) = code_cells(nbformat.v4.new_notebook(cells=[cell]))
    assert (found.kind == "view") == ("course" in start and end in ("show(x, y=[1])", "show(x.y);"))


def test_a_recording_says_where_it_comes_from_and_holds_no_paths(made):
    text = (made / "traces" / "nvidia-h200" / "speed.ipynb").read_text()
    about = Recording.read(made / "traces" / "nvidia-h200" / "speed.ipynb").about
    needed = {
        "format",
        "gpu",
        "driver",
        "cuda",
        "torch",
        "date",
        "seconds",
        "peak_gpu_mib",
        "versions",
        "definitions",
    }
    assert needed | {"traces"} <= about.keys() and about["format"] == 1
    assert "UserWarning: old" in text
    assert "ipykernel_" not in text and str(paths.ROOT) not in text


@pytest.mark.parametrize(
    "source, message",
    [
        ("%%gpu speed\n1 / 0", "ZeroDivisionError"),
        ("%%gpu speed\nspeed = object()", "speed is a object, which a recording does not take"),
        ("%%gpu speed weight\nspeed = 1", "hands on weight, which its cell does not define"),
    ],
)
def test_a_lesson_that_fails_leaves_the_earlier_recording_as_it_was(
    traces, tmp_path, monkeypatch, source, message
):
    monkeypatch.setattr(paths, "NOTEBOOKS", tmp_path)
    monkeypatch.setattr(record, "gpu_slug", lambda: "nvidia-h200")
    before = everything(traces)
    with pytest.raises(CellExecutionError, match=message):
        record.record(write_notebook(tmp_path / "03_speed.ipynb", OPENING, source), traces)
    assert everything(traces) == before


def everything(folder):
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file()
    }


def test_a_recorder_killed_at_any_moment_leaves_a_whole_recording(
    traces, path, tmp_path, monkeypatch
):
    """Stop before every replacement and removal of a file
    in turn: the old recording plays, or the new one.
    """
    new = nbformat.read(path, as_version=4)
    new.cells[4].outputs[0].data["text/plain"] = "'newer'"
    monkeypatch.setattr(paths, "NOTEBOOKS", tmp_path)
    monkeypatch.setattr(record, "gpu_slug", lambda: "nvidia-h200")

    def run(_, staged):
        (staged / "eager.json.gz").write_bytes(b"newer trace")
        return copy.deepcopy(new)

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
                record.record(tmp_path / "03_speed.ipynb", traces)
        recording = Recording.read(path)
        seen.add(
            (
                recording.trace("eager").read_bytes(),
                recording.cells[4].outputs[0].data["text/plain"],
            )
        )
    assert seen == {(b"trace", "'shown'"), (b"newer trace", "'newer'")}
    assert len(list(path.with_suffix("").iterdir())) == 1


def test_without_a_gpu_the_recorder_says_so(capsys, monkeypatch):
    monkeypatch.setattr(record.torch.cuda, "is_available", lambda: False)
    assert record.main([]) == 2
    assert "needs a CUDA GPU" in capsys.readouterr().err


@pytest.fixture
def copied(tmp_path, monkeypatch):
    """A lesson with measure in a %%gpu cell and compare beside
    it, its recording, and the rooms to change at will.
    """
    for room in ("helpers", "course"):
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(paths.ROOT / room, tmp_path / room, ignore=ignore)
    sources = (
        "from helpers.timing import compare, measure",
        "%%gpu rounds\nrounds = measure(steps())",
        "compare(rounds)",
        "def steps():\n    return {}",
        "%%gpu more\nmore = 1",
        "last = 2",
    )
    content = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(source) for source in sources]
    )

    def now():
        fingerprints._module.cache_clear()
        found = fingerprints.hashes(code_cells(content), tmp_path)
        monkeypatch.setattr(recording, "hashes", lambda cells: found)
        return found

    made = Recording(tmp_path, code_cells(content), {"definitions": now()})
    content = copy.deepcopy(content)
    return SimpleNamespace(
        root=tmp_path, content=content, stale=lambda: now() and stale(content, made)
    )


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_an_unchanged_lesson_is_fresh(copied):
    assert copied.stale() == []


@pytest.mark.parametrize(
    "old, new, changed",
    [
        ("rounds: int = 20", "rounds: int = 19", ["helpers.timing.measure has changed"]),
        ("issued = clock()", "issued = clock() + 1", ["helpers.timing._time has changed"]),
        ("Time variants, a dict", "Time some variants, a dict", []),
        ("too close to call", "too near", []),
        ("rows = []\n", "rows = []  # of the table\n\n", []),
    ],
)
def test_what_a_gpu_cell_reaches_makes_its_recording_stale(copied, old, new, changed):
    edit(copied.root / "helpers" / "timing.py", old, new)
    assert copied.stale() == changed


READER = """from pathlib import Path

WORDS = Path(__file__).with_name("words.txt")


def words():
    return WORDS.read_text()
"""


@pytest.fixture
def words(tmp_path):
    """A text beside a module that reads it."""
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / "reader.py").write_text(READER)
    (tmp_path / "examples" / "words.txt").write_text("to be\n")
    return tmp_path / "examples" / "words.txt"


def test_a_text_that_a_gpu_cell_reaches_counts(words):
    source = "%%gpu\nfrom examples.reader import words\n\nwords()"
    cells = code_cells(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)]))
    before = fingerprints.hashes(cells, words.parent.parent)
    assert list(before) == ["examples.reader.WORDS", "examples.reader.words", "examples/words.txt"]
    words.write_bytes(b"to be\r\n")
    assert fingerprints.hashes(cells, words.parent.parent) == before
    words.write_text("or not\n")
    after = fingerprints.hashes(cells, words.parent.parent)
    assert [name for name in before if before[name] != after[name]] == ["examples/words.txt"]


def test_nothing_plays_that_was_made_with_another_text(words, path, monkeypatch):
    monkeypatch.setattr(recording, "ROOT", words.parent.parent)
    notebook = nbformat.read(path, as_version=4)
    about = notebook.metadata["recording"]
    about["definitions"]["examples/words.txt"] = fingerprints.text_hash(words)
    about["digest"] = digest(notebook)
    nbformat.write(notebook, path)
    assert Recording.read(path)
    for change in (lambda: words.write_text("or not\n"), words.unlink):
        change()
        with pytest.raises(
            RecordingError, match="examples/words.txt is not the text .* restore it with git"
        ):
            Recording.read(path)


@pytest.mark.parametrize(
    "number, source, changed",
    [
        (1, "from helpers.timing import compare, measure  \n\n", []),
        (
            1,
            "from helpers.timing import measure",
            ["code cell 1 (from helpers.timing import measure) has changed"],
        ),
        (4, "def steps():\n    return {1: 2}", ["code cell 4 (def steps(): ...) has changed"]),
        (6, "last = 3", []),
    ],
)
def test_a_changed_cell_before_a_gpu_cell_is_named(copied, number, source, changed):
    copied.content.cells[number - 1].source = source
    assert copied.stale() == changed


def test_a_guess_or_an_exercise_makes_nothing_stale(copied):
    copied.content.cells.insert(2, nbformat.v4.new_code_cell("guess_it = 3"))
    assert copied.stale() == []


def test_a_gpu_cell_taken_out_or_added_is_noticed(copied):
    del copied.content.cells[4]
    assert copied.stale() == ["a %%gpu cell was taken out"]
    copied.content.cells += [
        nbformat.v4.new_code_cell(f"%%gpu\n{name}") for name in ("more = 1", "new = 1")
    ]
    assert len(copied.stale()) == 1


def test_an_unreadable_folder_is_one_sentence(path, learner):
    if os.geteuid() == 0:
        pytest.skip("root reads everything")
    path.chmod(0)
    assert type(learner.run(OPENING)).__name__ == "RecordingError"
