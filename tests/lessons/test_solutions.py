"""Every lesson played in this process, and at each check its solution,
with and without its notebook's imports, its wrong answers and its empty stub.

All lessons share one process, each in an IPython of its own: a kernel takes seconds to start. The
wrong answers to captures and broken scripts, which run for long, are in test_capture_exercises.py
and test_ten_scripts.py.
"""

import matplotlib.pyplot as plt
import pytest
import torch

from course.paths import NOTEBOOKS
from course.recordings.cells import checks_in
from exercises.answers import runs
from exercises.checks import Outcome
from exercises.unfinished import missing_parts
from helpers.timing import OTHERWISE
from tests.support.answers import RIGHT, answers, solution_source
from tests.support.notebooks import LESSONS, code, parametrize_paths

STILL_TO_DO, WRONG = "○", "✗"


@pytest.fixture(autouse=True)
def played(monkeypatch):
    """Recordings are played even beside a GPU, and a lesson's settings end with it.

    Captures are tried with one seed: test_capture_exercises.py tries the same solutions with all.
    """
    monkeypatch.setattr(runs, "SEEDS", runs.SEEDS[:1])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.chdir(NOTEBOOKS)
    precision = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(precision)
    torch.set_default_device(None)
    torch.manual_seed(0)
    plt.close("all")


def run(shell, source):
    """Run a cell; give its last value. Raises what it raised."""
    answer = shell.run_cell(source)
    answer.raise_error()
    return answer.result


def outcome_of(shell, source, name, answer):
    """What the lesson's check cell says of an answer."""
    shell.user_ns[name] = answer
    outcome = run(shell, source)
    assert isinstance(outcome, Outcome), f"{source!r} does not end with a check"
    assert "\n" not in repr(outcome), "one sentence, no traceback"
    return outcome


@parametrize_paths(LESSONS, recorded=True)
def test_each_check_tells_right_from_wrong(path, shell, capsys):
    """And on the recorded times each claim holds."""
    assert missing_parts(path) == []
    for source in code(path):
        asked = checks_in(source)
        if not asked:
            run(shell, source)
            continue
        kind, name = asked[0]
        others = answers(path, name, shell.user_ns)
        solution = others.pop(name)
        given = shell.user_ns[name]
        stub = outcome_of(shell, source, name, given)
        sign = WRONG if kind == "repaired" else STILL_TO_DO
        assert not stub and repr(stub).startswith(sign), stub
        if kind == "check":
            assert outcome_of(shell, source, name, solution), shell.user_ns[name]
        run(shell, solution_source(path, name))
        assert run(shell, source), f"{name} needs a name that the played lesson lacks"
        wrong = [other for other in others if RIGHT not in other]
        assert len(wrong) >= 3, f"{name} needs three wrong answers, named {name}__what_is_wrong"
        if kind == "check":
            for other, answer in others.items():
                outcome = outcome_of(shell, source, name, answer)
                assert bool(outcome) == (RIGHT in other), f"{other}: {outcome}"
                assert outcome or repr(outcome).startswith(WRONG), f"{other}: {outcome}"
            again = outcome_of(shell, source, name, solution)
            assert again, "an answer has changed what the cases share"
    assert OTHERWISE not in capsys.readouterr().out
