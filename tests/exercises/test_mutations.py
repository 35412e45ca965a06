"""Every solution changed in one place: refused, or on the list of changes that are right."""

import ast
from functools import partial

import pytest

from course.paths import lesson_name
from exercises.answers import limits, runs
from tests.exercises.accepted_mutants import RIGHT
from tests.exercises.test_capture_exercises import verdict
from tests.exercises.test_rules import CASES as EXERCISES  # of lessons from 12 on
from tests.support import answers
from tests.support.mutants import mutants

each = pytest.mark.parametrize(("path", "name"), EXERCISES, ids=[name for _, name in EXERCISES])
SECONDS = 10  # of a mutant whose loop does not end


def changed(path, name):
    """The changes of an exercise's solution, and the function that each of them leads to."""
    source = answers.alone(path, name)
    for what, text in mutants(source).items():
        namespace = answers.namespace(path, name)
        exec(compile(ast.parse(text), f"<{name}: {what}>", "exec"), namespace)
        yield what, namespace[name]


@pytest.mark.weekly
@pytest.mark.parametrize("lesson", sorted({path for path, _ in EXERCISES}), ids=lesson_name)
def test_a_changed_solution_is_refused(monkeypatch, lesson):
    monkeypatch.setattr(runs, "limited", partial(limits.limited, seconds=SECONDS))
    accepted = [
        f"{name}: {what}"
        for path, name in EXERCISES
        if path == lesson
        for what, answer in changed(path, name)
        if what not in RIGHT.get(name, {}) and verdict(monkeypatch, path, name, answer)
    ]
    assert not accepted, "\n".join(accepted)


@each
def test_the_list_names_changes_that_exist(path, name):
    assert RIGHT.get(name, {}).keys() <= mutants(answers.alone(path, name)).keys()


def test_what_a_change_is():
    source = "def f(x):\n    y = x.clone()\n    y.add_(1)\n    return y"
    assert set(mutants(source)) == {
        "drop y = x.clone()",
        "swap y = x.clone()",
        "drop y.add_(1)",
        "no clone in y = x.clone()",
        "1 to 2 in y.add_(1)",
    }
