"""What a learner without a GPU changes in a running notebook: what counts is noticed, what does
not count plays.
"""

import ast

import nbformat
import pytest

from course import lesson
from course.recordings.cells import code_cells
from course.recordings.free_names import reads
from course.recordings.recording import code_hashes, json_text

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
    """The recordings of the lesson "edits", as the recorder would write its recording."""
    traces = tmp_path_factory.mktemp("traces")
    cells = [nbformat.v4.new_code_cell(source) for source in CELLS]
    about = {"gpu": "NVIDIA H200", "torch": "2.11.0", "date": "2026-01-01", "traces": {}}
    measured = [{"values": {"result": 12}}, {"values": {"later": 8}}]
    code = code_hashes(code_cells(nbformat.v4.new_notebook(cells=cells)))
    (traces / "nvidia-h200").mkdir()
    (traces / "nvidia-h200/edits.json").write_text(json_text(about, code, measured))
    return traces


@pytest.fixture
def traces(edits, monkeypatch):
    """Where conftest.py's learner plays from."""
    monkeypatch.setattr(lesson, "TRACES", edits)


def refusal(learner, before=(), between=(), plain=PLAIN):
    """What the first refused %%gpu cell says, with cells of the learner's above
    the lesson's first or above its first %%gpu cell; "" if all of them play.
    """
    assert [learner.run(cell, "above") for cell in before] == [None] * len(before)
    assert learner.run_all(OPENING, *plain) == []
    learner.run_all(*between)
    error = learner.run(RESULT) or learner.run(LATER)
    assert error is None or type(error).__name__ == "NeedsGPU"
    return str(error or "")


@pytest.mark.parametrize(
    "cell, names",
    [
        ("model.scale = 3", "model"),
        ("plans[8][0] += 8", "plans"),
        ("def build(x):\n    return 1", "build"),
        ("for model in (1, 2): pass", "model"),
        ("from math import fsum as quartiles", "quartiles"),
        ("del model", "model"),
        ("sum = max", "sum"),
        ("quartiles.x = 1 / 0", "quartiles"),
    ],
)
def test_a_name_bound_anew_is_noticed_and_undone_by_the_lessons_own_cells(learner, cell, names):
    said = refusal(learner, between=[cell])
    assert f"has changed `{names}`, on which" in said and "run the lesson's own cells" in said
    learner.run("del sum") if names == "sum" else None
    if names != "sum":
        assert learner.run_all(*PLAIN, RESULT, LATER) == []


REBINDING = (  # without a statement of the cell that assigns the name
    "exec('build = print')",
    "%reset -f",
    "try:\n    1 / 0\nexcept ZeroDivisionError as build:\n    pass",
    "match (1, print):\n    case (1, build):\n        pass",
    "from {mine} import *",
    "%run {mine}.py",
    "def patch():\n    global build\n    build = print\npatch()",
    "%%prun\ndef build(x):\n    return 1",
    "[build := print for _ in range(1)];",
    "from threading import Thread\nown = globals()\n"
    "late = Thread(target=lambda: own.update(build=print))\nlate.start()\nlate.join()",
    "%%capture build\nprint(1)",
    "build = %pwd",
    "import builtins\nbuiltins.mine = print\nget_ipython().user_ns.pop('build');",
)


@pytest.mark.parametrize("cell", REBINDING)
def test_a_name_bound_in_another_way_is_noticed_by_its_object(learner, cell, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    mine = f"mine_{REBINDING.index(cell)}"  # modules stay imported
    (tmp_path / f"{mine}.py").write_text("build = print\n")
    said = refusal(learner, between=[cell.replace("{mine}", mine)])
    assert "`build`" in said and "run the lesson's own cells" in said
    assert learner.run_all(*PLAIN, RESULT, LATER) == []


def test_another_dict_at_the_same_address_is_noticed(learner):
    """The ids of objects say nothing: a dict made after another one has gone may have its id."""
    said = refusal(learner, between=["exec('del plans\\nplans = {8: [2, print]}')"])
    assert "has changed `plans`" in said


@pytest.mark.parametrize("file", ["random.py", "pandas.py", "torch/__init__.py"])
def test_a_module_that_takes_the_place_of_a_library_is_noticed(
    learner, tmp_path, monkeypatch, file
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).touch()
    (tmp_path / "mine.py").touch()
    taken = file.partition("/")[0]
    name = taken.removesuffix(".py")
    assert f"{taken} takes the place of the library {name}: rename it" in refusal(learner)


def test_an_object_that_comes_between_two_cells_is_noticed(learner):
    learner.run_all(OPENING, *PLAIN)
    learner.shell.user_ns["build"] = print
    assert "`something between two cells` has changed `build`" in str(learner.run(RESULT))


def test_what_is_looked_at_may_still_be_freed(learner):
    learner.run_all(OPENING, *PLAIN, "import weakref\nheld = weakref.ref(model)", "del model")
    assert learner.run("assert held() is None") is None


@pytest.mark.parametrize("cell", ["sum = max", "import math as sum", "exec('sum = max')"])
def test_a_name_bound_above_the_lesson_is_noticed(learner, cell):
    assert "has changed `sum`" in refusal(learner, before=[cell])


def test_a_name_that_only_a_plain_cell_uses_spoils_what_that_cell_makes(learner):
    said = refusal(learner, plain=[*PLAIN[:3], "histogram = {8: 1}", *PLAIN[3:]])
    assert "`histogram = {8: 1}` has changed `histogram`" in said
    assert learner.run_all(*PLAIN, RESULT, LATER) == []


@pytest.mark.parametrize(
    "plain",
    [
        [line for cell in PLAIN[3:4] for line in cell.split("\n")],
        [PLAIN[3] + "\nprint(plans)"],
        ["assert histogram", "\n\n".join([PLAIN[3], "plans"])],
        [
            "plans = {\n    size: [count, Attention,]\n"
            "    for size, count in histogram.items()\n}\n"
            "model: object = (Attention())"
        ],
    ],
    ids=["split in two", "a print added", "joined with others", "in other lines, with a hint"],
)
def test_a_plain_cell_in_another_form_plays(learner, plain):
    assert refusal(learner, plain=[*PLAIN[:3], *plain, PLAIN[4]]) == ""


def test_a_class_without_its_docstring_and_cells_in_another_order_play(learner):
    documented = PLAIN[1].replace(":\n", ':\n    """Mine."""\n\n', 1)
    assert refusal(learner, plain=[PLAIN[2], PLAIN[0], documented, *PLAIN[3:], PLAIN[0]]) == ""


@pytest.mark.parametrize(
    "cell",
    [
        "losses = 'mine'",
        "build: int",
        "%%capture mine\nprint(3)",
        "mine = 3\ndel mine",
        "globals()['build'] = build",
        "def patch():\n    global mine\n    mine = 3\npatch()",
        "histogram = {8: 1}",  # plans are made already
        "name = result = later = 3",
        "model.forward(3); build(2)",
        "import copy; copy.deepcopy(model)",
        "class Mine(Attention): pass",
        "with torch.no_grad(): torch.ones(2) + 1",
    ],
)
def test_what_changes_nothing_plays(learner, cell):
    assert refusal(learner, between=[cell]) == ""
    assert learner["result"] == 12


def test_comments_and_a_timer_change_nothing(learner):
    assert learner.run_all(OPENING, *[f"# mine\n{source}  # mine" for source in PLAIN]) == []
    for timed in (RESULT, LATER):
        commented = timed.replace("\n", "  \n# mine\n", 1)
        assert learner.run_all(f"%%time\n{commented}", commented) == []
    assert learner.run_all(OPENING, *[f"%%time\n{cell}" for cell in PLAIN], RESULT, LATER) == []


def test_a_lesson_opened_again_keeps_what_was_run(learner):
    learner.run_all(OPENING, *PLAIN)
    assert learner.run_all(OPENING, RESULT, OPENING, LATER) == []
    assert learner.run_all(OPENING, "plans = {}") == []
    assert "has changed `plans`" in str(learner.run(RESULT))


def test_after_a_restart_the_way_out_is_named(learner):
    learner.run(OPENING)
    assert "run it first" in str(learner.run(LATER))
    assert "Run All Above Selected Cell" in str(learner.run(RESULT))
    learner.run_all(*PLAIN[:-1])
    assert "reads build, which no cell has bound here" in str(learner.run(RESULT))


@pytest.mark.parametrize("source", ["x = x", "x: int = x", "(x := x)", "x += 1"])
def test_a_statement_reads_a_name_before_it_binds_it(source):
    assert reads(ast.parse(source).body[0]) == {"x"}
