"""What a learner without a GPU changes in a running notebook: what counts is noticed, what does
not count plays.
"""

import nbformat
import pytest

from course import lesson
from tests.support.learner import Learner, recorded_here

OPENING = 'from course.lesson import lesson\n\nlesson("edits")'
PLAIN = (
    "import torch\nfrom helpers.timing import quartiles",
    "class Attention:\n    scale = 2\n\n    def forward(self, x):\n        return self.scale * x",
    "histogram = {8: 3}",
    "plans = {size: [count, Attention] for size, count in histogram.items()}\nmodel = Attention()",
    "def build(x):\n    return model.forward(x) + plans[8][0]",
)
RESULT = (
    '%%gpu result\nlosses = []\nfor name in ("a", "b"):\n    losses.append(build(len(name)))\n'
    "result = sum(losses) + quartiles.__code__.co_argcount\nresult"
)
LATER = "%%gpu later\nlater = max(losses) + plans[8][0]\nlater"
CELLS = (OPENING, *PLAIN, RESULT, LATER)


@pytest.fixture(scope="module")
def edits(tmp_path_factory):
    """The lesson "edits", recorded here on the CPU: the folder of its recordings."""
    return recorded_here(tmp_path_factory.mktemp("edits"), "01_edits.ipynb", *CELLS) / "traces"


@pytest.fixture
def learner(shell, edits, monkeypatch):
    monkeypatch.setattr(lesson, "TRACES", edits)
    monkeypatch.setattr(lesson, "gpu_name", lambda: None)
    monkeypatch.setattr(lesson, "_open", None)
    return Learner(shell)


def refusal(learner, before=(), between=()):
    """What the first refused %%gpu cell says, with cells of the learner's above
    the lesson's first or above its first %%gpu cell; "" if all of them play.
    """
    assert learner.run_all(*before) == []
    errors = [learner.run(source) for source in (OPENING, *PLAIN)]
    assert errors == [None] * len(errors)
    assert learner.run_all(*between) == []
    error = learner.run(RESULT) or learner.run(LATER)
    assert error is None or type(error).__name__ == "NeedsGPU"
    return str(error or "")


@pytest.mark.parametrize(
    "cell, name",
    [
        ("Attention.forward = lambda self, x: x", "Attention"),
        ("Attention.scale = 3", "Attention"),
        ("build.__code__ = (lambda x: 1).__code__", "build"),
        ("build.__defaults__ = (3,)", "build"),
        ("type(model).scale = 3", "model"),
        ("model.scale = 3", "model"),
        ("plans[8][0] += 8", "plans"),
        ("plans.popitem()", "plans"),
        ("plans[8][1] = print", "plans"),
        ("del model", "model"),
        ("model.forward = print", "model"),
    ],
)
def test_a_change_in_place_is_noticed_and_undone_by_the_lessons_own_cells(learner, cell, name):
    said = refusal(learner, between=[cell])
    assert cell[:60] in said and name in said.partition("has changed ")[2].partition(" on ")[0]
    assert learner.run_all(*PLAIN, RESULT, LATER) == []


@pytest.mark.parametrize(
    "cell", ["torch.set_default_dtype(torch.float64)", "torch.set_grad_enabled(False)"]
)
def test_a_setting_of_torch_is_noticed_until_it_is_set_back(learner, cell):
    import torch

    try:
        said = refusal(learner, between=[cell])
        assert "has changed a setting of torch" in said
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_grad_enabled(True)
    assert learner.run_all(RESULT, LATER) == []


@pytest.mark.parametrize("above", [True, False], ids=["above the lesson", "inside of it"])
def test_a_function_replaced_in_its_module_is_noticed(learner, above, monkeypatch):
    import helpers.timing

    monkeypatch.setattr(helpers.timing, "quartiles", helpers.timing.quartiles)  # undone later
    cell = "import helpers.timing\nhelpers.timing.quartiles = lambda *a: None"
    said = refusal(learner, **{"before" if above else "between": [cell]})
    assert "has changed helpers.timing.quartiles" in said and "restart the kernel" in said


def test_a_builtin_replaced_above_the_lesson_is_noticed(learner):
    assert "has changed sum" in refusal(learner, before=["sum = max"])


def test_a_name_that_only_a_plain_cell_uses_spoils_what_that_cell_makes(learner):
    cells = [*PLAIN[:3], "histogram = {8: 1}", *PLAIN[3:]]
    learner.run_all(OPENING, *cells)
    error = learner.run(RESULT)
    assert "histogram = {8: 1}" in str(error) and "has changed" in str(error)
    assert learner.run_all(*PLAIN, RESULT, LATER) == []


def test_what_changes_between_two_cells_is_noticed(learner):
    """As by a widget's callback, of which the shell says nothing."""
    learner.run_all(OPENING, *PLAIN)
    learner.shell.user_ns["build"] = print
    assert "something that ran outside of the cells has changed build" in str(learner.run(RESULT))


@pytest.mark.parametrize(
    "cell",
    [
        "losses = 'mine'",
        "name = result = later = 3",
        "x = size = count = 3",
        "import torch.nn.functional as F",
        "model.forward(3); build(2)",
        "mine = dict(plans)",
        "import copy; copy.deepcopy(model)",
        "class Mine(Attention): pass",
        "torch.manual_seed(3)",
        "import helpers.charts",
        "with torch.no_grad(): torch.ones(2) + 1",
    ],
)
def test_what_changes_nothing_plays(learner, cell):
    assert refusal(learner, between=[cell]) == ""
    assert learner["result"] == 2 * (2 + 3) + 2


def test_comments_and_a_timer_change_nothing(learner):
    cells = [f"# mine\n{source}  # mine" for source in PLAIN]
    assert learner.run_all(OPENING, *cells) == []
    for timed in (RESULT, LATER):
        commented = timed.replace("\n", "  \n# mine\n", 1)
        assert learner.run_all(f"%%time\n{commented}", commented) == []
    assert learner.run_all(OPENING, *[f"%%time\n{cell}" for cell in PLAIN], RESULT, LATER) == []


def test_a_lesson_opened_again_keeps_what_was_run(learner):
    learner.run_all(OPENING, *PLAIN)
    assert learner.run_all(OPENING, RESULT, OPENING, LATER) == []
    learner.run("plans.clear()")
    assert learner.run_all(OPENING) == [] and "has changed plans" in str(learner.run(RESULT))


def test_after_a_restart_the_way_out_is_named_once(learner):
    learner.run(OPENING)
    assert str(learner.run(LATER)).count("Run All Above Selected Cell") == 1
    learner.run_all(*PLAIN)
    assert "Run All Above" not in str(learner.run(LATER))  # one cell is missing, and it is named


def test_a_recording_of_other_code_is_refused_when_the_lesson_opens(learner, edits, monkeypatch):
    from course.recordings import recording

    known = recording.hashes

    def edited(cells):
        return known(cells) | {"helpers.timing.quartiles": "other"}

    monkeypatch.setattr(recording, "hashes", edited)
    error = learner.run(OPENING)
    assert type(error).__name__ == "RecordingError"
    assert "quartiles in helpers/timing.py is not the code that" in str(error)
    learner.run_all(*PLAIN)
    assert learner.run(RESULT) is not None and "result" not in learner
    monkeypatch.setattr(recording, "hashes", known)
    assert learner.run_all(*CELLS) == []


def test_the_recorded_cells_are_what_was_written(edits):
    cells = nbformat.read(edits / "nvidia-h200" / "edits.ipynb", as_version=4).cells
    assert [cell.source for cell in cells] == list(CELLS)
