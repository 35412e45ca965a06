"""Whether a broken script is repaired: the lesson's own
check, on the stand-in and, where there is one, on a GPU.
"""

import sys
from collections.abc import Callable
from functools import partial

from course.answers.outcome import Outcome
from course.answers.runs import first_problem
from course.answers.scripts import SCRIPTS, judge
from course.answers.solutions import asked


def repaired(script: Callable, gpu: bool | None = None) -> Outcome:
    """Run a script of the lesson with fresh inputs and compare it with an eager one.

    A long run and a short one, with several seeds, on the stand-in and on a GPU if there is one.
    Results, weights, gradients and random numbers must be eager's; each further step must replay a
    graph, capture none, and launch and read little beside it. Says what is wrong by its symptom;
    when nothing is, which lesson teaches the fault. gpu says where alone. Raises nothing but
    KeyboardInterrupt, and LookupError if there is no such script.
    """
    exercise = asked(
        script, sys._getframe(1), if_empty="is empty: fetch the script from the lesson again"
    )
    name = exercise.name
    if exercise.problem:
        return Outcome(False, exercise.problem)
    known = SCRIPTS[name]
    on_gpu, problem = first_problem(script, partial(judge, known), gpu)
    if problem:
        return Outcome(False, f"✗ {name} on {'the GPU' if on_gpu else 'the stand-in'}: {problem}")
    lesson = known.lesson.replace("_", " ")
    said = f"✓ {name} is repaired. The fault: {known.fault}. It is taught in: {lesson}."
    return Outcome(True, said + exercise.solved())
