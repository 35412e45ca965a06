"""Are the recordings in traces/ whole, and still true to the lessons?"""

import gzip
import re
from collections import Counter
from types import SimpleNamespace

import nbformat
import pytest

from course.commands.due import changed_trace_readings, recording_paths
from course.paths import REFERENCE_GPU, TRACES, lesson_name
from course.recordings import kernel_history
from course.recordings.cells import code_cells
from course.recordings.kernel_history import History, NeedsGPU
from course.recordings.recording import Recording, changes_since, find_recording
from course.recordings.statements import IMPORT, cell_needs, parsed
from exercises.unfinished import missing_recording
from tests.support.notebooks import LESSONS, parametrize_paths

GPUS = sorted(path for path in TRACES.iterdir() if path.is_dir() and path.name != "local")
RECORDED = recording_paths()
LARGE = {  # GiB
    "use_transformer_engine": 14,  # layers of width 4,096
    "graph_megatron": 8,
}
BESIDE = {"README.md", "works_on.json", "conformance.json"}  # what else lies there
MACHINE_PATH = re.compile(rb"(?<![A-Za-z0-9_.+/-])/(?:root|home|tmp|opt|work|usr|Users)/")


def lesson_of(recording):
    return next(path for path in LESSONS if lesson_name(path) == recording.stem)


def test_every_lesson_is_recorded_on_the_reference_gpu():
    assert [sentence for path in LESSONS for sentence in missing_recording(path)] == []
    names = {lesson_name(path) for path in LESSONS}
    assert {path.stem for path in RECORDED if path.parent.name == REFERENCE_GPU} == names
    assert {path.stem for path in RECORDED} == names, "other GPUs may have fewer"


@parametrize_paths(RECORDED)
def test_a_recording_is_fresh(path):
    changes = changes_since(nbformat.read(lesson_of(path), as_version=4), Recording.read(path))
    assert not changes, (
        f"{path.stem}: {'; '.join(changes)}. Run `make record` on the GPU of {path.parent.name}."
    )


@parametrize_paths([path for path in RECORDED if Recording.read(path).about["traces"]])
def test_the_same_is_read_out_of_a_recorded_trace(path):
    """What only reads traces does not count for a recording; what it reads does."""
    assert changed_trace_readings(path) == []


def test_nothing_else_lies_in_traces():
    known = {gpu / name for gpu in [TRACES, *GPUS] for name in BESIDE}
    for path in RECORDED:
        names = Recording.read(path).about["traces"].values()
        known |= {path, *(path.with_suffix("") / name for name in names)}
    own = TRACES / "local"
    files = {file for file in TRACES.rglob("*") if not file.is_dir() and own not in file.parents}
    left = ", ".join(sorted(str(file.relative_to(TRACES)) for file in files - known))
    assert not left, f"no recording names {left}: `make record` of that lesson removes it"
    assert GPUS and {path.parent for path in RECORDED} == set(GPUS)


@parametrize_paths(RECORDED)
def test_a_recording_is_as_it_was_recorded(path):
    """Its digest and those of its traces; reading them checks both."""
    recording = Recording.read(path)
    traces = [recording.trace(name) for name in recording.about["traces"]]
    assert sum(file.stat().st_size for file in [path, *traces]) < 1e6
    contents = [path.read_bytes(), *(gzip.decompress(trace.read_bytes()) for trace in traces)]
    assert not any(map(MACHINE_PATH.search, contents))


@parametrize_paths(RECORDED)
def test_a_recording_says_where_it_comes_from(path):
    about = Recording.read(path).about
    needed = ["gpu", "driver", "cuda", "torch", "python", "date", "seconds", "versions"]
    assert all(about[key] for key in needed)
    assert about["gpu"].lower().replace(" ", "-") == path.parent.name
    limit_gib = LARGE.get(path.stem, 6)  # 6 fit beside CUDA itself on a GPU of 8 GB
    assert about["peak_gpu_mib"] <= limit_gib * 1024


@pytest.fixture
def kernel(monkeypatch):
    """A kernel in which cells are run by name only: what would %%gpu cells say of its statements?

    Whether the project's code is as recorded, test_a_recording_is_fresh asks once.
    """
    monkeypatch.setattr(kernel_history, "_check_reached_code", lambda *_: {})
    manager = SimpleNamespace(input_hist_raw=[])
    events = SimpleNamespace(register=lambda *_: None)
    names = {"user_ns": {}, "user_ns_hidden": {}}
    return History(SimpleNamespace(history_manager=manager, events=events, **names))


def run(history, source):
    info = SimpleNamespace(raw_cell=source)
    history.note_finished_cell(SimpleNamespace(info=info, success=True))


def first_refusal(history, recording, cells):
    """What the first %%gpu cell says that does not play, of cells run in order; "" if all play."""
    for cell in cells:
        if cell.kind == "gpu":
            try:
                history.find_playable_cell(parsed(cell.source), recording)
            except NeedsGPU as error:
                return str(error)
        run(history, cell.source)
    return ""


def edits(cells, recording):
    """One cell of each kind before the last %%gpu cell, by the kind: of the plain ones, one on
    which a %%gpu cell depends ("needed") and one on which none does ("free").
    """
    last = max(cell.number for cell in cells if cell.kind == "gpu")
    known = {one for hashed in recording.statements.values() for one in hashed}
    times = Counter(one.hash for cell in cells for one in parsed(cell.source).statements)
    found = {cell.kind: cell for cell in cells[: last - 1]}
    found.pop("plain", None)
    for cell in cells[: last - 1]:
        if cell.kind == "plain":
            needed = {one.hash for one in parsed(cell.source).statements} & known
            if not needed:
                found["free"] = cell
            elif any(times[one] == 1 for one in needed):  # else it stands below once more
                found["needed"] = cell
    return found


@parametrize_paths(LESSONS, recorded=True)
def test_what_a_gpu_cell_depends_on_cannot_be_edited_and_everything_else_can(path, kernel):
    cells = code_cells(nbformat.read(path, as_version=4))
    recording = find_recording(lesson_name(path))
    assert first_refusal(kernel, recording, cells) == ""
    for kind, cell in edits(cells, recording).items():
        kernel.statements, kernel.played = [], set()
        names = sorted({name for one in parsed(cell.source).statements for name in one.binds})
        edited = "\n".join(f"{name} = 'edited'" for name in names)
        other = cell._replace(source=edited, kind="plain")
        refused = first_refusal(kernel, recording, [other if one is cell else one for one in cells])
        assert bool(refused) == (kind in ("needed", "gpu")), f"{kind} {cell}: {refused}"


@parametrize_paths(LESSONS, recorded=True)
def test_no_gpu_cell_depends_on_a_guess_or_an_exercise(path):
    """These are the reader's own; what they import is imported elsewhere too."""
    cells = code_cells(nbformat.read(path, as_version=4))
    sources = [cell.source for cell in cells if cell.kind in ("guess", "exercise")]
    own = [one for source in sources for one in parsed(source).statements]
    own = {one.hash for one in own if not isinstance(one.node, IMPORT)}
    assert not own & {one.hash for _, needs in cell_needs(cells) for one in needs}
