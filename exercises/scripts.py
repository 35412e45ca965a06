"""The ten broken scripts: whether one is repaired, and what each shows as it is published."""

import re
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import nbformat

from course.lessons import lesson_file
from exercises.answers.outcome import Outcome
from exercises.answers.runs import first_problem
from exercises.answers.solutions import exercise_of_answer
from exercises.scenarios.repair_ten_scripts import SCRIPTS, judge


def repaired(script: Callable, gpu: bool | None = None) -> Outcome:
    """Run a script of the lesson with fresh inputs and compare it with an eager one.

    A long run and a short one, with several seeds, on the stand-in and on a GPU if there is one.
    Results, weights, gradients and random numbers must be eager's; each further step must replay a
    graph, capture none, and launch and read little beside it. Says what is wrong by its symptom,
    from the third wrong run on also the cause; when nothing is, which lesson teaches the fault.
    gpu says where alone. Raises nothing but
    KeyboardInterrupt, and LookupError if there is no such script.
    """
    exercise = exercise_of_answer(
        script,
        sys._getframe(1),
        if_empty="is empty: fetch the script from the lesson again",
        as_given=True,
    )
    name = exercise.name
    if exercise.problem:
        return Outcome(False, exercise.problem)
    known = SCRIPTS[name]
    problem = first_problem(script, partial(judge, known), gpu)
    if problem:
        where = "the GPU" if problem.on_gpu else "the stand-in"
        return Outcome(False, f"✗ {name} on {where}: {exercise.describe_problem(problem)}")
    lesson = known.lesson.replace("_", " ")
    said = f"✓ {name} is repaired. The fault: {known.fault}. It is taught in: {lesson}."
    return Outcome(True, said + exercise.mark_solved())


def symptoms_of_scripts(gpu: bool) -> dict[str, str]:
    """What is wrong with each of the ten scripts as published: name -> an error or a symptom.

    gpu: on the GPU, else on the stand-in. An error is its type and the first line of its message;
    left out are the line of the script and how many results there are, which may vary by chance.
    """
    return {
        name: _brief_problem(first_problem(script, partial(judge, SCRIPTS[name]), gpu).symptom)
        for name, script in published_scripts().items()
    }


def published_scripts() -> dict[str, Callable]:
    """The ten scripts by their names, as the lesson prints them."""
    notebook = nbformat.read(lesson_file("repair_ten_scripts"), as_version=4)
    namespace: dict[str, Any] = {}
    for cell in notebook.cells:
        if cell.cell_type == "code" and re.search(r"^def \w+\(", cell.source, re.MULTILINE):
            exec(cell.source, namespace)
    return {name: namespace[name] for name in SCRIPTS}


def _brief_problem(problem: str) -> str:
    """A problem without the place of an error and the number of results."""
    without_place = re.sub(r"  \(at line .*", "", problem, flags=re.DOTALL)
    return re.sub(r"(?<=result )(\d+) of \d+", r"\1", without_place)
