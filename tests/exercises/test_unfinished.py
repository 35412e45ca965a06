"""Each addition to a lesson that was left half-way is told in one sentence."""

import nbformat
import pytest

from course.lessons import lesson_file
from course.paths import REFERENCE_GPU
from exercises.unfinished import missing_parts, missing_recording
from tests.support.notebooks import write_notebook

FILE = lesson_file("capture_and_replay").name
EXHIBIT = "A value read in a capture"
NAME = "Value read on the CPU, error 900"
STUB = "def make_predictor(net, sample): ..."
SOLVED = "def make_predictor(net, sample):\n    return net"
LESSON = {
    "opening": 'from course.lesson import lesson\n\nlesson("capture_and_replay")',
    "gpu": f'%%gpu x\nx = 1\nwith fails("{EXHIBIT}", 900):\n    x.item()',
    "stub": STUB,
    "check": "check_capture(make_predictor)",
    "heading": f"### {NAME}",
}


def lesson(folder, recorded=True, solutions=(SOLVED,), **cells):
    """What a small lesson lacks of which all is there but for what is said; a cell that is None is
    left out.
    """
    notebook = folder / FILE
    cells = {name: source for name, source in (LESSON | cells).items() if source}
    heading = cells.pop("heading")
    write_notebook(notebook, *cells.values())
    content = nbformat.read(notebook, as_version=4)
    content.cells.append(nbformat.v4.new_markdown_cell(heading))
    content.metadata["course"] = {"part": "The core course"}
    nbformat.write(content, notebook)
    (folder / "solutions").mkdir()
    if solutions:
        write_notebook(folder / "solutions" / notebook.name, *solutions)
    if recorded:
        recording = folder / "traces" / REFERENCE_GPU / "capture_and_replay.json"
        recording.parent.mkdir(parents=True)
        recording.touch()
    return [*missing_parts(notebook), *missing_recording(notebook, folder / "traces")]


def test_a_whole_lesson_lacks_nothing(tmp_path):
    assert lesson(tmp_path) == []


HALF_DONE = {  # what a lesson lacks, and what is said
    "no scenario": (
        {
            "stub": "def double_graph(x): ...",
            "check": "check_capture(double_graph)",
            "solutions": ["def double_graph(x):\n    return x"],
        },
        "double_graph has no scenario: write judge_double_graph(answer) in "
        "exercises/scenarios/capture_and_replay.py.",
    ),
    "stub and check in one cell": (
        {"stub": None, "check": f"{STUB}\n\n\ncheck_capture(make_predictor)"},
        "The stub of make_predictor and its check are in one cell: put "
        "check_capture(make_predictor) into a cell "
        "of its own, for the tests put the solution between the two.",
    ),
    "no recording": (
        {"recorded": False},
        "The lesson capture_and_replay has no recording "
        "{folder}/traces/nvidia-h200/capture_and_replay.json: "
        'make it on a machine with a CUDA GPU by `make record ARGS="capture_and_replay"`.',
    ),
    "no solutions": (
        {"solutions": ()},
        "There is no {folder}/solutions/{file}: write it, with a function for each exercise "
        "(make_predictor).",
    ),
    "an exercise without a solution": (
        {"solutions": ["def another():\n    pass"]},
        "The exercise make_predictor has no solution: define make_predictor in "
        "{folder}/solutions/{file}.",
    ),
    "an exhibit without a heading": (
        {"heading": "### Another failure"},
        "The exhibit 'A value read in a capture' has no heading: write ### Value read on the "
        "CPU, error 900 above its cell.",
    ),
    "an exhibit without a title": (
        {"gpu": "%%gpu x\nx = 1\nwith fails(says=900):\n    x.item()"},
        "An exhibit has no title: give fails(title, ...) one, and an entry of this title to "
        "capturable/causes.json.",
    ),
    "an exhibit that is not explained": (
        {"gpu": '%%gpu x\nx = 1\nsilent("New", "wrong", x, 1, 2)', "heading": "### New"},
        "The exhibit 'New' is not explained: add an entry of this title to capturable/causes.json.",
    ),
}


@pytest.mark.parametrize(("half_done", "sentence"), HALF_DONE.values(), ids=HALF_DONE)
def test_what_is_half_done_is_told_in_a_sentence(tmp_path, half_done, sentence):
    assert lesson(tmp_path, **half_done) == [sentence.format(folder=tmp_path, file=FILE)]
