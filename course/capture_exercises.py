"""Exercises that ask for a capture: the answer is used
on the stand-in, and on the GPU if there is one.
"""

import sys
from collections.abc import Callable

import torch

from course import scenarios
from course.answers import runs
from course.answers.outcome import Outcome
from course.answers.solutions import asked


def check_capture(
    answer: Callable, scenario: Callable | None = None, gpu: bool | None = None
) -> Outcome:
    """Use a learner's function as its scenario does,
    with several seeds, and say what is wrong with it.

    scenario(answer) raises course.answers.graph_use.Wrong; if none is given it is the one of the
    exercise's name in course.scenarios.<lesson>. It runs on the stand-in and then, if there is one,
    on the GPU; gpu says where alone. Whatever the answer does, it raises nothing but
    KeyboardInterrupt. Raises LookupError if the open lesson has no solution of that name.
    """
    exercise = asked(answer, sys._getframe(1))
    name = exercise.name
    if exercise.problem:
        return Outcome(False, exercise.problem)
    scenario = scenario or scenarios.scenario(exercise.lesson, name)
    on_gpu, problem = runs.first_problem(answer, scenario, gpu)
    if problem:
        return Outcome(False, f"✗ {name}{' on the GPU' if on_gpu else ''}: {problem}")
    where = "on the stand-in and on the GPU" if torch.cuda.is_available() else "on the stand-in"
    return Outcome(True, f"✓ {name} is right ({len(runs.SEEDS)} runs {where}).{exercise.solved()}")
