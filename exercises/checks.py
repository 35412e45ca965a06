"""Checks that answer: a function against its solution, and a capture against its scenario."""

import copy
import sys
from collections.abc import Callable
from typing import Any

import torch

from exercises import scenarios
from exercises.answers import runs
from exercises.answers.comparison import describe_difference, short_repr, to_plain_types
from exercises.answers.errors import error_summary, interruption_with_line, notebook_line
from exercises.answers.leftovers import undo_side_effects
from exercises.answers.limits import AnswerStopped, limit_time_and_memory
from exercises.answers.outcome import Outcome
from exercises.answers.solutions import exercise_of_answer, load_solution


def check(answer: Callable, *cases: Any) -> Outcome:
    """Compare a function of the learner's with the solution of the same name, on each case.

    A case is a tuple of arguments, or one argument; answer and solution get copies of their own.
    The solution is the function of that name in the open lesson's notebook under
    notebooks/solutions. Returns an Outcome: right, still to do, or yours, expected and where they
    part. Whatever the answer does, it raises nothing but KeyboardInterrupt, so that a lesson can be
    run to its end. Raises LookupError if there is no such solution.
    """
    exercise = exercise_of_answer(answer, sys._getframe(1))
    name = exercise.name
    if exercise.problem:
        return Outcome(False, exercise.problem)
    try:
        expected_of = load_solution(name, exercise.variables)
    except Exception as error:
        return Outcome(False, _solution_failed_message(error))
    for case in cases or ((),):
        arguments = case if isinstance(case, tuple) else (case,)
        problem = _problem(answer, expected_of, arguments, name, exercise.notebook)
        if problem:
            return Outcome(False, problem)
    count = f"{len(cases)} cases" if len(cases) > 1 else "1 case"
    return Outcome(True, f"✓ {name} is right ({count}).{exercise.mark_solved()}")


def check_capture(
    answer: Callable, scenario: Callable | None = None, gpu: bool | None = None
) -> Outcome:
    """Use a learner's function as its scenario does, with several seeds, and say what is wrong.

    scenario(answer) raises exercises.answers.wrong.Wrong; by default it is judge_<exercise> in
    exercises.scenarios.<lesson>. It runs on the stand-in and then, if there is one, on the GPU; gpu
    chooses one of the two. Where a broken function is to be repaired, the first two wrong runs say
    what is seen, and only the third what to do. Whatever the answer does, it raises nothing but
    KeyboardInterrupt. Raises LookupError if the open lesson has no solution of that name.
    """
    exercise = exercise_of_answer(answer, sys._getframe(1))
    name = exercise.name
    if exercise.problem:
        return Outcome(False, exercise.problem)
    scenario = scenario or scenarios.find_scenario(exercise.lesson, name)
    try:
        problem = runs.first_problem(answer, scenario, gpu)
    except KeyboardInterrupt as error:
        raise interruption_with_line(error, getattr(answer, "__globals__", {})) from None
    if problem:
        where = " on the GPU" if problem.on_gpu else ""
        return Outcome(False, f"✗ {name}{where}: {exercise.describe_problem(problem)}")
    where = "on the stand-in and on the GPU" if torch.cuda.is_available() else "on the stand-in"
    right = f"✓ {name} is right ({len(runs.SEEDS)} runs {where})."
    return Outcome(True, right + exercise.mark_solved())


def _problem(answer, expected_of, arguments, name, notebook):
    """What is wrong with the answer in one case, or ""."""
    try:
        expected = expected_of(*copy.deepcopy(arguments))
    except Exception as error:
        return _solution_failed_message(error)
    try:
        with undo_side_effects(), limit_time_and_memory():
            yours = to_plain_types(answer(*copy.deepcopy(arguments)))
        if yours is ...:
            return f"○ {name} gives nothing yet: yours to write."
        if yours is None and expected is not None:
            return f"✗ {_call_text(name, arguments)} gives None: is a `return` missing?"
        parts = describe_difference(yours, expected)
        return parts and f"✗ {_call_text(name, arguments)}: {parts}"
    except KeyboardInterrupt as error:
        raise interruption_with_line(error, notebook) from None
    except AnswerStopped as stopped:
        return f"✗ {_call_text(name, arguments)}: {stopped}"
    except BaseException as error:  # SystemExit too
        if isinstance(error, NotImplementedError) and not error.args:
            return f"○ {name} is not implemented yet: yours to write."
        where = notebook_line(error, notebook)
        return f"✗ {_call_text(name, arguments)} raised {error_summary(error)}{where}"


def _call_text(name, arguments):
    return f"{name}({', '.join(map(short_repr, arguments))})"


def _solution_failed_message(error):
    return (
        f"○ The solution does not run here ({error_summary(error)}): run the "
        "lesson's cells again, from the first."
    )
