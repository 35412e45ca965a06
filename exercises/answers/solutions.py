"""An answer and its exercise: its name and solution, and what may be said before it runs."""

import ast
import dis
import re
from collections import ChainMap, Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import nbformat
from IPython import get_ipython

from course.lesson import current
from course.paths import NOTEBOOKS
from course.progress import mark
from course.recordings.cells import python
from exercises.answers.outcome import Problem

# all that an empty function does
IDLE = {"RESUME", "NOP", "LOAD_CONST", "RETURN_CONST", "RETURN_VALUE"}
SYMPTOM_ALONE = 2  # wrong runs of a repair that show no cause
wrong_runs: Counter = Counter()  # of each (lesson, exercise) since it was last right


@dataclass
class CheckedExercise:
    """An exercise as a cell checks it: its name and its lesson's, the cell's variables and the
    notebook's own dict.

    problem: why the answer need not be run, in a sentence, else "". is_repair: whether the lesson
    gives a function that runs, and is broken.
    """

    name: str
    lesson: str
    variables: Mapping[str, Any]
    notebook: dict[str, Any]
    problem: str
    is_repair: bool = False

    def mark_solved(self) -> str:
        """Mark the exercise as solved; returns "", or a sentence if the disk refuses the mark."""
        wrong_runs.pop((self.lesson, self.name), None)
        return mark(self.lesson, self.name)

    def describe_problem(self, problem: Problem) -> str:
        """A problem in words. Of a repair, the first wrong runs show the symptom alone."""
        wrong_runs[self.lesson, self.name] += 1
        if self.is_repair and wrong_runs[self.lesson, self.name] <= SYMPTOM_ALONE:
            return problem.symptom
        return str(problem)


def exercise_of_answer(
    answer: Any,
    caller: FrameType,
    if_empty: str = "gives nothing yet: yours to write",
    as_given: bool = False,
) -> CheckedExercise:
    """The exercise that an answer is for, by the frame of the cell that checks it.

    as_given: whether the function as the lesson gives it is run, too. Raises LookupError if the
    open lesson has no solution of that name.
    """
    variables = ChainMap(caller.f_locals, caller.f_globals)
    name = exercise_name(answer, variables)
    stub = stub_of(current().name, name)
    own = answer.__code__ if isinstance(answer, FunctionType) else None
    problem = unrunnable_answer_message(name, answer) or syntax_error_message(name)
    if not problem and is_stub(answer):
        problem = f"○ {name} {if_empty}."
    known = stub and own and code_fingerprint(stub) == code_fingerprint(own)
    if known and not problem and not as_given:
        problem = f"○ {name} is as the lesson gives it: yours to change."
    is_repair = stub is not None and not does_nothing(stub)
    return CheckedExercise(name, current().name, variables, caller.f_globals, problem, is_repair)


def syntax_error_message(name: str) -> str:
    """A sentence if the cell that should define the function last did not compile; else "".

    Such a cell runs nothing, so the function is still the one before it.
    """
    shell = get_ipython()
    cells = shell.history_manager.input_hist_raw if shell else []
    cell = next((one for one in reversed(cells) if re.search(rf"^def {name}\(", one, re.M)), "")
    try:
        ast.parse(shell.transform_cell(cell) if cell else "")
    except SyntaxError as error:
        return (
            f"✗ The cell that defines {name} is not valid Python (line {error.lineno}: "
            f"{error.msg}), so it was not run: correct it first."
        )
    return ""


def code_fingerprint(code: CodeType) -> tuple:
    """What tells a function from another: no names of files, lines or comments."""
    constants = [
        code_fingerprint(one) if isinstance(one, CodeType) else repr(one) for one in code.co_consts
    ]
    return code.co_code, code.co_names, code.co_varnames, code.co_freevars, tuple(constants)


def lesson_cells(lesson: str, folder: Path = NOTEBOOKS) -> Iterator[str]:
    """The sources of the code cells of a lesson's notebook in the folder, if there is one."""
    for path in folder.glob(f"[0-9]*_{lesson}.ipynb"):
        for cell in nbformat.v4.reads(path.read_text(encoding="utf-8")).cells:
            if cell.cell_type == "code":
                yield cell.source


@cache
def stub_of(lesson: str, name: str) -> CodeType | None:
    """The code that the lesson gives of an exercise; None if it gives no function."""
    for source in lesson_cells(lesson):
        if re.search(rf"^def {name}\(", source, re.M):
            for node in ast.parse(python(source)).body:
                # alone, as IPython compiles it: calls of what its cell imports differ
                for code in compile(ast.Module([node], []), "<stub>", "exec").co_consts:
                    if isinstance(code, CodeType) and code.co_name == name:
                        return code
    return None


def solution_sources() -> dict[str, str]:
    """The source of the cell that defines it, for each function of the open lesson's solutions
    notebook.
    """
    found = {}
    for source in lesson_cells(current().name, NOTEBOOKS / "solutions"):
        found |= dict.fromkeys(re.findall(r"^def (\w+)\(", source, re.MULTILINE), source)
    return found


def exercise_name(answer: Any, names: Mapping[str, Any]) -> str:
    """The exercise that an answer is for: what it is bound to in the notebook, or else its own
    name.

    names: the notebook's variables. "" if the answer has no name at all. Raises LookupError if the
    lesson has no solution of that name.
    """
    known, own = solution_sources(), answer.__name__ if isinstance(answer, FunctionType) else ""
    bound = [name for name in known if name in names and names[name] is answer]
    if own in bound or not bound:
        if own.isidentifier() and own not in known:
            raise LookupError(
                f"The lesson {current().name} has no solution of {own}, only of {', '.join(known)}."
            )
        return own if own in known else ""
    return bound[0]


def unrunnable_answer_message(name: str, answer: Any) -> str:
    """What to say of an answer that cannot be run: it has no name, is still to do, or is no
    function; else "".
    """
    if not name:
        return "✗ Give your function the name of the exercise, and check it by that name."
    if answer is ...:
        return f"○ {name} is empty yet: yours to write."
    if callable(answer):
        return ""
    kind = type(answer).__name__
    return f"✗ {name} is no function but of type {kind}: write `def {name}(...)`."


def load_solution(name: str, names: Mapping[str, Any]) -> Callable:
    """The function of that name from the open lesson's solutions notebook, among the notebook's
    variables.
    """
    namespace = dict(names)
    exec(compile(solution_sources()[name], f"<solution of {name}>", "exec"), namespace)
    return namespace[name]


def is_stub(answer: Any) -> bool:
    """Whether a function's body does nothing: a docstring, pass, ... or a bare return."""
    return isinstance(answer, FunctionType) and does_nothing(answer.__code__)


def does_nothing(code: CodeType) -> bool:
    """Whether the code of a function has no statement that does something."""
    instructions = list(dis.get_instructions(code))
    loaded = [one.argval for one in instructions if one.opname in ("LOAD_CONST", "RETURN_CONST")]
    return {one.opname for one in instructions} <= IDLE and all(
        value in (None, ...) for value in loaded
    )
