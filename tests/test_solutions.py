"""Every lesson played in this process, and at each check its solution, its wrong answers and its empty stub.

All lessons share one process, each in an IPython of its own: a kernel takes seconds to start. The wrong answers to
captures and broken scripts, which run for long, are in tests/test_capture_exercises.py and tests/test_ten_scripts.py.
"""

import re

import matplotlib.pyplot as plt
import nbformat
import pytest
import torch

from course.exercise import Outcome
from course.notebooks import NOTEBOOKS
from course.solutions import empty

LESSONS = sorted(NOTEBOOKS.glob("[0-9]*.ipynb"))
STILL_TO_DO, WRONG = "○", "✗"
RIGHT = "__right_"  # in the name of another answer that is right


@pytest.fixture(autouse=True)
def played(monkeypatch):
    """Recordings are played even beside a GPU, and a lesson's settings end with it."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.chdir(NOTEBOOKS)
    precision = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(precision)
    torch.set_default_device(None)
    torch.manual_seed(0)
    plt.close("all")


def code(path):
    return [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]


def run(shell, source):
    """Run a cell; give its last value. Raises what it raised."""
    answer = shell.run_cell(source)
    answer.raise_error()
    return answer.result


def exercises(path):
    """The solution of each exercise by name: the notebook's imports and its cell; and its wrong answers' cell."""
    cells, found = code(NOTEBOOKS / "solutions" / path.name), {}
    imports = "\n".join(re.findall(r"^(?:import|from) .*", "\n".join(cells[1:]), re.MULTILINE))
    for solved, after in zip(cells, [*cells[1:], ""], strict=True):
        for name in re.findall(r"^def (\w+)\(", solved, re.MULTILINE):
            found.setdefault(name, (f"{imports}\n\n{solved}", after))
    return found


def answers(shell, name, solved, after):
    """The solution of that name, and the other answers by theirs, with the lesson's variables."""
    namespace = dict(shell.user_ns)
    exec(solved, namespace)
    exec(after if f"def {name}__" in after else "", namespace)
    others = {key: value for key, value in namespace.items() if key.startswith(f"{name}__")}
    return namespace[name], others


def outcome_of(shell, source, name, answer):
    """What the lesson's check cell says of an answer."""
    shell.user_ns[name] = answer
    outcome = run(shell, source)
    assert isinstance(outcome, Outcome), f"{source!r} does not end with a check"
    assert "\n" not in repr(outcome), "one sentence, no traceback"
    return outcome


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_each_check_tells_right_from_wrong(path, shell, capsys):
    solved = exercises(path)
    for source in code(path):
        asked = re.search(r"^(check|check_capture|repaired)\(\s*(\w+)", source, re.MULTILINE)
        if not asked:
            run(shell, source)
            continue
        kind, name = asked.groups()
        solution, others = answers(shell, name, *solved[name])
        given = shell.user_ns[name]
        stub = outcome_of(shell, source, name, given)
        assert not stub and repr(stub).startswith(STILL_TO_DO if empty(given) else WRONG), stub
        assert outcome_of(shell, source, name, solution), shell.user_ns[name]
        broken = not empty(given)  # the lesson's own script is a wrong answer too
        assert sum(RIGHT not in other for other in others) + broken >= 3, (
            f"{name} needs three wrong answers, named {name}__what_is_wrong"
        )
        if kind == "check":
            for other, answer in others.items():
                outcome = outcome_of(shell, source, name, answer)
                assert bool(outcome) == (RIGHT in other), f"{other}: {outcome}"
                assert outcome or repr(outcome).startswith(WRONG), f"{other}: {outcome}"
            assert outcome_of(shell, source, name, solution), "an answer has changed what the cases share"


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_the_solutions_run_from_top_to_bottom(path, shell):
    for source in code(NOTEBOOKS / "solutions" / path.name):
        run(shell, source)
