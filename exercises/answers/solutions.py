"""An answer and its exercise: its name and solution, and what may be said before it runs."""

import copy
import dis
import re
from collections import ChainMap
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType, FunctionType
from typing import Any

import nbformat

from course.lesson import current
from course.paths import NOTEBOOKS
from course.progress import mark

IDLE = {
    "RESUME",
    "NOP",
    "LOAD_CONST",
    "RETURN_CONST",
    "RETURN_VALUE",
}  # all that an empty function does


@dataclass
class Asked:
    """An exercise as a cell checks it: its name and its
    lesson's, the cell's variables and the notebook's own dict.

    problem: why the answer need not be run, in a sentence, else "".
    """

    name: str
    lesson: str
    variables: Mapping[str, Any]
    notebook: dict[str, Any]
    problem: str

    def solved(self) -> str:
        """Mark the exercise as solved; returns "", or a sentence if the disk refuses the mark."""
        return mark(self.lesson, self.name)


def asked(
    answer: Any, caller: FrameType, if_empty: str = "gives nothing yet: yours to write"
) -> Asked:
    """The exercise that an answer is for, by the frame of the cell that checks it.

    Raises LookupError if the open lesson has no solution of that name.
    """
    variables = ChainMap(caller.f_locals, caller.f_globals)
    name = name_of(answer, variables)
    problem = unfit(name, answer) or (f"○ {name} {if_empty}." if empty(answer) else "")
    return Asked(name, current().name, variables, caller.f_globals, problem)


def solutions() -> dict[str, str]:
    """The source of the cell that defines it, for each
    function of the open lesson's solutions notebook.
    """
    found = {}
    for path in NOTEBOOKS.glob(f"solutions/[0-9]*_{current().name}.ipynb"):
        for cell in nbformat.v4.reads(path.read_text(encoding="utf-8")).cells:
            if cell.cell_type == "code":
                found |= dict.fromkeys(
                    re.findall(r"^def (\w+)\(", cell.source, re.MULTILINE), cell.source
                )
    return found


def name_of(answer: Any, names: Mapping[str, Any]) -> str:
    """The exercise that an answer is for: what it is
    bound to in the notebook, or else its own name.

    names: the notebook's variables. "" if the answer has no name at all. Raises LookupError if the
    lesson has no solution of that name.
    """
    known, own = solutions(), answer.__name__ if isinstance(answer, FunctionType) else ""
    bound = [name for name in known if name in names and names[name] is answer]
    if own in bound or not bound:
        if own.isidentifier() and own not in known:
            raise LookupError(
                f"The lesson {current().name} has no solution of {own}, only of {', '.join(known)}."
            )
        return own if own in known else ""
    return bound[0]


def unfit(name: str, answer: Any) -> str:
    """What to say of an answer that cannot be run: it has
    no name, is still to do, or is no function; else "".
    """
    if not name:
        return "✗ Give your function the name of the exercise, and check it by that name."
    if answer is ...:
        return f"○ {name} is empty yet: yours to write."
    kind = type(answer).__name__
    return (
        ""
        if callable(answer)
        else f"✗ {name} is no function but of type {kind}: write `def {name}(...)`."
    )


def solution(name: str, names: Mapping[str, Any]) -> Callable:
    """The function of that name from the open lesson's
    solutions notebook, among the notebook's variables.
    """
    namespace = dict(names)
    exec(compile(solutions()[name], f"<solution of {name}>", "exec"), namespace)
    return namespace[name]


def copies(arguments: tuple) -> tuple:
    """Deep copies that share what the arguments share; what
    cannot be copied deeply is cloned, or stays itself.
    """
    memo = {}
    return tuple(_copied(value, memo) for value in arguments)


def _copied(value, memo):
    trial, copied = dict(memo), value
    try:
        copied = copy.deepcopy(value, trial)
        memo |= trial
    except Exception:
        with suppress(Exception):
            copied = value.clone()  # a tensor with a history
    memo[id(value)] = copied
    return copied


def empty(answer: Any) -> bool:
    """Whether a function's body does nothing: a docstring, pass, ... or a bare return."""
    if not isinstance(answer, FunctionType):
        return False
    instructions = list(dis.get_instructions(answer.__code__))
    loaded = [one.argval for one in instructions if one.opname in ("LOAD_CONST", "RETURN_CONST")]
    return {one.opname for one in instructions} <= IDLE and all(
        value in (None, ...) for value in loaded
    )
