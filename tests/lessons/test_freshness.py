"""Are the recordings in traces/ whole, and still true to the lessons?"""

import copy
import gzip
import hashlib
import re
from types import SimpleNamespace

import nbformat
import pytest

from course.commands.unfinished import unrecorded
from course.distributed import TWO_GPUS
from course.lesson import playing
from course.paths import NOTEBOOKS, REFERENCE_GPU, TRACES, lesson_name
from course.recordings.cells import code_cells, lessons
from course.recordings.kernel_history import History, NeedsGPU
from course.recordings.player import play
from course.recordings.recording import Recording, recorded_lesson, stale

LESSONS = [path for path in lessons() if path.parent == NOTEBOOKS]
GPUS = sorted(path for path in TRACES.iterdir() if path.is_dir() and path.name != "local")
RECORDED = sorted(path for gpu in GPUS for path in gpu.glob("*.ipynb"))
LARGE = {"use_transformer_engine", "graph_megatron"}  # they measure layers of width 4,096
BESIDE = {
    "README.md",
    "works_on.json",
    "conformance.json",
}  # what else lies in traces/ and in a GPU's folder
OF_TWO_GPUS = {
    "eager_0.json.gz": "a96b683f6c2d",
    "eager_1.json.gz": "ad9eb6e9f907",
    "graph_0.json.gz": "f7310edf2032",
    "graph_1.json.gz": "bcad3c548797",
    "split_decoder.json": "17fe8dfa163b",
    "train_on_several_gpus.json": "efd3078970bc",
}  # file -> the beginning of its SHA-256: no recording's digest covers them
MACHINE_PATH = re.compile(rb"(?<![A-Za-z0-9_.+/-])/(?:root|home|tmp|opt|work|usr|Users)/")


def named(paths):
    ids = [
        path.stem
        if path.parent.name in ("notebooks", REFERENCE_GPU)
        else f"{path.parent.name}-{path.stem}"
        for path in paths
    ]
    return pytest.mark.parametrize("path", paths, ids=ids)


def lesson_of(recording):
    return next(path for path in LESSONS if lesson_name(path) == recording.stem)


def test_every_lesson_is_recorded_on_the_reference_gpu():
    assert [sentence for path in LESSONS for sentence in unrecorded(path)] == []
    names = {lesson_name(path) for path in lessons()}
    assert {path.stem for path in RECORDED if path.parent.name == REFERENCE_GPU} == names
    assert {path.stem for path in RECORDED} == names, "other GPUs may have fewer"


@named(RECORDED)
def test_a_recording_is_fresh(path):
    changes = stale(nbformat.read(lesson_of(path), as_version=4), Recording.read(path))
    assert not changes, (
        f"{path.stem}: {'; '.join(changes)}. Run `make record` on the GPU of {path.parent.name}."
    )


@named([path for path in RECORDED if path.parent.name != REFERENCE_GPU])
def test_the_plain_cells_hold_on_another_gpus_values(path):
    """Charts, tables and asserts; on the reference GPU's, test_solutions.py runs them."""
    recording = Recording.read(path)
    with playing(recording):
        assert all(play(nbformat.read(lesson_of(path), as_version=4), recording))


def test_nothing_else_lies_in_traces():
    known = {gpu / name for gpu in [TRACES, *GPUS] for name in BESIDE}
    known |= {TWO_GPUS / name for name in OF_TWO_GPUS}
    for path in RECORDED:
        names = Recording.read(path).about["traces"].values()
        known |= {path, *(path.with_suffix("") / name for name in names)}
    files = {
        file
        for file in TRACES.rglob("*")
        if not file.is_dir() and TRACES / "local" not in file.parents
    }
    left = sorted(str(file.relative_to(TRACES)) for file in files - known)
    assert not left, (
        f"no recording names {', '.join(left)}: `make record` of that lesson removes it"
    )
    assert GPUS and {path.parent for path in RECORDED} == set(GPUS)


@named(RECORDED)
def test_a_recording_is_as_it_was_recorded(path):
    """Its digest and those of its traces; reading them checks both."""
    recording = Recording.read(path)
    traces = [recording.trace(name) for name in recording.about["traces"]]
    assert sum(file.stat().st_size for file in [path, *traces]) < 1e6
    contents = [path.read_bytes(), *(gzip.decompress(trace.read_bytes()) for trace in traces)]
    assert not any(map(MACHINE_PATH.search, contents))


@pytest.mark.parametrize("name", OF_TWO_GPUS)
def test_what_two_gpus_measured_is_as_it_was_kept(name):
    content = (TWO_GPUS / name).read_bytes()
    assert hashlib.sha256(content).hexdigest().startswith(OF_TWO_GPUS[name])
    text = gzip.decompress(content) if name.endswith(".gz") else content
    assert not MACHINE_PATH.search(text)


@named(RECORDED)
def test_a_recording_says_where_it_comes_from(path):
    about = Recording.read(path).about
    needed = {
        "gpu",
        "driver",
        "cuda",
        "torch",
        "python",
        "date",
        "seconds",
        "peak_gpu_mib",
        "versions",
    }
    assert needed <= about.keys() and all(about[key] for key in needed)
    assert about["gpu"].lower().replace(" ", "-") == path.parent.name
    limit_gib = 8 if path.stem in LARGE else 6  # 6 fit beside CUDA itself on a GPU of 8 GB
    assert about["peak_gpu_mib"] <= limit_gib * 1024


class Played:
    """A kernel in which a lesson's recorded cells are
    run by name only: what would %%gpu cells say?
    """

    def __init__(self, recording):
        self.shell = SimpleNamespace(user_ns={}, events=SimpleNamespace(register=lambda *_: None))
        self.history = History(self.shell, recording)

    def run(self, source):
        info = SimpleNamespace(raw_cell=source, cell_id=None)
        self.history.after(SimpleNamespace(info=info, success=True))

    def branch(self):
        """Another kernel in which the same cells were run."""
        other = copy.copy(self)
        other.history = copy.copy(self.history)
        for state in ("last_run", "changed", "values"):
            setattr(other.history, state, dict(getattr(self.history, state)))
        return other

    def first_error(self, cells):
        """What the first %%gpu cell says that does not play,
        of cells run in order; None if all of them play.
        """
        for cell in cells:
            if cell.kind == "gpu" and (error := _error(self, cell)):
                return error
            self.run(cell.source)
        return None


@named(LESSONS)
def test_no_plain_cell_can_be_edited_or_left_out_before_a_gpu_cell(path):
    """Nor any %%gpu cell; guesses, exercises, views
    and cells of the reader's own change nothing.
    """
    cells = code_cells(nbformat.read(path, as_version=4))
    as_recorded = Played(recorded_lesson(lesson_name(path)))
    last = max(cell.number for cell in cells if cell.kind == "gpu")
    for tested in cells[: last - 1]:
        edited = as_recorded.branch()
        edited.run("edited = 1")
        error = edited.first_error(cells[tested.number : last])
        assert as_recorded.first_error([tested]) is None
        assert (error is not None) == (tested.kind in ("plain", "gpu")), f"{tested}: {error}"
        if tested.kind == "plain":
            assert str(error).startswith("this %%gpu cell was recorded after code cell ")
            assert str(tested).split(" ", 3)[3] in str(error)  # the number is as recorded


def _error(played, cell):
    try:
        played.history.allows(cell.source)
    except NeedsGPU as error:
        return error
    return None
