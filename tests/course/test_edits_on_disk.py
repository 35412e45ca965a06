"""What a reader changes in the project's files: what a %%gpu cell reaches is noticed, what it does
not reach plays.
"""

import py_compile
import re
import shutil

import pytest

from course import paths
from course.recordings.reached_code import hashes, lost_files, lost_names, redefined, tool_changes
from course.recordings.statements import parsed

CELL = """
from capturable import preflight
from course.memory import free_gpu_memory
from examples.small_llama import load, split_text
from helpers.model import make_batches, make_model, training_step
from helpers.timing import measure
from helpers.trace import read_trace

preflight(training_step)
measure({"step": training_step})
make_model(), make_batches(), load(), split_text()
read_trace("trace.json").verdict()
free_gpu_memory()
"""
ROOMS = ("helpers", "course", "capturable", "examples", "trace_report")
MODEL = "helpers/model.py"
TIMING = "helpers/timing.py"


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A copy of the project as it is."""
    folder = tmp_path_factory.mktemp("kept")
    for room in ROOMS:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(paths.ROOT / room, folder / room, ignore=ignored)
    return folder


@pytest.fixture(scope="module")
def then(kept):
    """What the cell reaches of the project as it is."""
    return reached(kept)


@pytest.fixture
def root(kept):
    """A copy of it to change at will, always in one place: files with the same times are known."""
    work = kept.with_name("work")
    shutil.rmtree(work, ignore_errors=True)
    return shutil.copytree(kept, work)


def reached(root, cell=CELL):
    return hashes((one.node for one in parsed(cell).statements), root)


def noticed(root, then):
    return [*redefined(reached(root), then, root), *lost_files(then, root)]


def edit(file, old, new):
    def change(root):
        text = (root / file).read_text()
        assert re.search(old, text, re.MULTILINE), old
        (root / file).write_text(re.sub(old, new, text, count=1, flags=re.MULTILINE))

    return change


def append(file, text):
    return lambda root: (root / file).open("a").write(f"\n{text}\n")


def copy(old, new):
    return lambda root: shutil.copy(root / old, root / new)


def write(file, text):
    return lambda root: (root / file).write_text(text)


def link(old, new):
    def change(root):
        (root / old).unlink()
        (root / old).symlink_to(root / new)

    return change


def compiled(root):
    """A module's code without its source."""
    py_compile.compile(str(root / TIMING), str(root / "helpers/timing.pyc"))
    (root / TIMING).unlink()


def package_of(root):
    """A package takes the place of a module of its name."""
    (root / "helpers/timing").mkdir()
    (root / "helpers/timing/__init__.py").write_text("def measure(steps): ...")


IMPORTED = edit(  # in place of its definition
    TIMING, r"^def synchronize(.|\n)*?^(?=def)", "from helpers.stopwatch import synchronize\n"
)
APPENDED = {  # to the module that the cell reaches: what binds a name of it, or of another
    "a name deleted": "del measure",
    "names from elsewhere": "from mine import *",
    "a name bound by its text": "globals()['measure'] = print",
    "by a loop": "for measure in [print]: ...",
    "by a function": "def patch():\n    global measure\n    measure = print\npatch()",
    "where it is imported": "if __name__ != '__main__':\n    globals().update(measure=print)",
    "by an import that may fail": "try:\n    from math import fsum as measure\nfinally: ...",
    "a function's defaults": "measure.__defaults__ = (1, 1)",
    "a constant changed by another module": "import helpers.model as m\nm.BATCH = 3",
    "a name bound in an assertion": "assert not globals().update(measure=print)",
    "in an assignment": "mine = globals().update(measure=print)",
    "in a default": "def mine(x=globals().update(measure=print)): ...",
    "in a decorator": "@(lambda f: globals().update(measure=print))\ndef mine(): ...",
    "in a class": "class Mine:\n    globals()['measure'] = print",
    # what is called where a name is bound
    "its own function": "def patch():\n    global measure\n    measure = print\nmine = patch()",
    "the names of a module": "import helpers.model as m\nmine = m.__dict__.update(BATCH=3)",
    "setattr": "import sys\nmine = setattr(sys.modules[__name__], 'measure', print)",
    "a function's globals": "mine = synchronize.__globals__.update(measure=print)",
    "object": "import sys\nmine = object.__setattr__(sys.modules[__name__], 'measure', print)",
    "a class as it is made": "class Patch:\n    def __init__(self):\n        global measure\n"
    "        measure = print\nmine = Patch()",
}
NOTICED = {name: [append(TIMING, text)] for name, text in APPENDED.items()} | {
    "another clock": [edit(TIMING, "perf_counter", "monotonic")],
    "a backup, then a constant": [
        copy(MODEL, "helpers/model_old.py"),
        edit(MODEL, r"^WIDTHS = \(", "WIDTHS = (8, "),
    ],
    "a function wrapped below": [append(MODEL, "training_step = print(training_step)")],
    "a second function": [append(MODEL, "def make_model(): ...")],
    "a second function under a condition": [append(MODEL, "if True:\n    def make_batches(): ...")],
    "a package that patches its module": [
        append("helpers/__init__.py", "import helpers.timing\nhelpers.timing.measure = print")
    ],
    "a module that patches another": [
        write("helpers/patches.py", "import helpers.timing\nsetattr(helpers.timing, 'measure', 1)"),
        append(MODEL, "import helpers.patches"),
    ],
    "a package in a module's place": [package_of],
    "a decorator": [edit(MODEL, "^def make_model", "@print\ndef make_model")],
    "a setting for the whole process": [append(MODEL, "torch.use_deterministic_algorithms(True)")],
    "a method": [
        edit("examples/decoder.py", r"(def head_dim\(self\).*\n)", r"\1        return 3\n")
    ],
    "other weights, by a link": [
        link("examples/small_llama_model.pt", "examples/small_llama_drafter.pt")
    ],
    "a constant changed": [append(MODEL, "BATCH *= 2")],
    "a name imported from elsewhere": [
        write("helpers/mine.py", "def _time(*_): ..."),
        append(TIMING, "from helpers.mine import _time"),
    ],
    "another module's class as it is made": [
        write(
            "helpers/mine.py",
            "import helpers.timing\nclass Patch:\n    def __init__(self):\n"
            "        helpers.timing.measure = print",
        ),
        append(MODEL, "from helpers.mine import Patch\nmine = Patch()"),
    ],
    "another module's function, named with it": [
        write(
            "helpers/mine.py",
            "def patch():\n    from helpers import timing\n    setattr(timing, 'measure', print)",
        ),
        append(MODEL, "import helpers.mine\nmine = helpers.mine.patch()"),
    ],
    "a function moved, then changed": [
        write("helpers/stopwatch.py", "def synchronize(): ..."),
        IMPORTED,
    ],
    "a compiled module beside it": [write("helpers/timing.so", "")],
    "a compiled module in its place": [compiled],
    "a package that lies elsewhere": [append("helpers/__init__.py", "__path__ = ['/mine']")],
    "a name that the module makes when asked": [
        edit(TIMING, r"^def measure\(", "def _measure("),
        append(TIMING, "def __getattr__(name): return print"),
    ],
}
PLAYED = {
    "a comment": [append(MODEL, "# mine")],
    "a docstring": [edit(TIMING, '"""Wait for the GPU', '"""Wait for it')],
    "a type": [edit(TIMING, "rounds: int = 20", "rounds: object = 20")],
    "another function": [append(MODEL, "def mine(): ...")],
    "another constant, made by torch": [append(MODEL, "MINE = torch.ones(3)")],
    "another class": [append(MODEL, "class Mine:\n    size = 3\n\n    def f(self): self.x = 3")],
    "another module": [write("helpers/mine.py", "def measure(): ...")],
    "a verdict": [append("helpers/trace.py", "Trace.verdict = print")],
    "how times are reported": [edit(TIMING, "too close to call", "too near")],
    "a tool": [append("capturable/host_calls.py", "MINE = 3")],
    "a text that nothing reaches": [write("examples/mine.txt", "mine")],
    "a function moved": [copy(TIMING, "helpers/stopwatch.py"), IMPORTED],
    "a script's own part": [append(MODEL, 'if __name__ == "__main__":\n    make_model()')],
}


@pytest.mark.parametrize("changes", NOTICED.values(), ids=NOTICED)
def test_an_edit_that_a_cell_reaches_is_noticed(root, then, changes):
    for change in changes:
        change(root)
    assert noticed(root, then)


@pytest.mark.parametrize("changes", PLAYED.values(), ids=PLAYED)
def test_an_edit_that_a_cell_does_not_reach_plays(root, then, changes):
    for change in changes:
        change(root)
    assert noticed(root, then) == []


def test_what_a_star_brings_along_is_noticed(root):
    write("helpers/mine.py", "__all__ = []\ndef measure(): ...")(root)
    append(TIMING, "from helpers.mine import *")(root)
    then = reached(root)
    edit("helpers/mine.py", r"\[\]", "['measure']")(root)
    assert noticed(root, then) == ["helpers.mine.__all__"]


def test_another_copy_of_a_tool_is_told_by_its_version(root, then):
    edit("capturable/pyproject.toml", r'version = ".*"', 'version = "9.9"')(root)
    append("capturable/host_calls.py", "MINE = 3")(root)
    ((old, new),) = tool_changes(reached(root), then).values()
    assert old.startswith("0.") and new.startswith("9.9+")
    assert old.partition("+")[2] != new.partition("+")[2]


def test_a_tool_may_be_a_single_module(root):
    cell = "from helpers.capture import capture_step\ncapture_step(print)"
    write("pyproject.toml", '[project]\nversion = "0.1"')(root)
    then = reached(root, cell)
    append("helpers/capture.py", "MINE = 3")(root)
    now = reached(root, cell)
    assert [*redefined(now, then, root), *lost_names(now, then)] == []
    assert list(tool_changes(now, then)) == ["helpers.capture"]
