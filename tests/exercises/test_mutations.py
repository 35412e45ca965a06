"""Every solution changed in one place: refused, or on the list of changes that are right."""

import ast
from functools import partial

import pytest

from course.paths import lesson_name
from exercises.answers import limits, runs
from tests.support import answers
from tests.support.captures import EXERCISES, verdict
from tests.support.mutants import ACCEPTED, mutants

SECONDS = 10  # of a mutant whose loop does not end


def changed(path, name):
    """The changes of an exercise's solution, and the function that each of them leads to; first ""
    and the solution itself.
    """
    source = answers.solution_source(path, name)
    for what, text in {"": source, **mutants(source)}.items():
        namespace = answers.namespace(path, name)
        exec(compile(ast.parse(text), f"<{name}: {what}>", "exec"), namespace)
        yield what, namespace[name]


@pytest.mark.weekly
@pytest.mark.parametrize("lesson", sorted({path for path, _ in EXERCISES}), ids=lesson_name)
def test_a_changed_solution_is_refused(monkeypatch, lesson):
    import torch._dynamo  # noqa: F401  seconds that would count for the first answer

    monkeypatch.setattr(
        runs, "limit_time_and_memory", partial(limits.limit_time_and_memory, seconds=SECONDS)
    )
    accepted = []
    for path, name in EXERCISES:
        for what, answer in changed(path, name) if path == lesson else ():
            change = f"{name}: {what}"
            if change not in ACCEPTED:
                outcome = verdict(monkeypatch, path, name, answer)
                assert outcome or what, f"the solution itself: {outcome}"
                accepted += [change] if outcome and what else []
    assert not accepted, "\n".join(accepted)


def test_the_list_names_changes_that_exist():
    listed = {change.partition(":")[0] for change in ACCEPTED}
    assert ACCEPTED.keys() <= {
        f"{name}: {change}"
        for path, name in EXERCISES
        if name in listed
        for change in mutants(answers.solution_source(path, name))
    }


def test_what_a_change_is():
    source = "def f(x):\n    y = x.clone()\n    y.add_(1)\n    return y"
    assert set(mutants(source)) == {
        "drop y = x.clone()",
        "swap y = x.clone()",
        "drop y.add_(1)",
        "no clone in y = x.clone()",
        "1 to 2 in y.add_(1)",
    }
