"""What a check needs around an answer: its name, its solution, copies of arguments, and words for what it raised."""

import copy
import dis
import linecache
import re
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import FunctionType
from typing import Any

import nbformat

from course.lesson import current
from course.notebooks import NOTEBOOKS

IDLE = {"RESUME", "NOP", "LOAD_CONST", "RETURN_CONST", "RETURN_VALUE"}  # all that an empty function does


def solutions() -> dict[str, str]:
    """The source of the cell that defines it, for each function of the open lesson's solutions notebook."""
    found = {}
    for path in NOTEBOOKS.glob(f"solutions/[0-9]*_{current().name}.ipynb"):
        for cell in nbformat.v4.reads(path.read_text(encoding="utf-8")).cells:
            if cell.cell_type == "code":
                found |= dict.fromkeys(re.findall(r"^def (\w+)\(", cell.source, re.MULTILINE), cell.source)
    return found


def name_of(answer: Any, names: Mapping[str, Any]) -> str:
    """The exercise that an answer is for: what it is bound to in the notebook, or else its own name.

    names: the notebook's variables. "" if the answer has no name at all. Raises LookupError if the
    lesson has no solution of that name.
    """
    known, own = solutions(), answer.__name__ if isinstance(answer, FunctionType) else ""
    bound = [name for name in known if name in names and names[name] is answer]
    if own in bound or not bound:
        if own.isidentifier() and own not in known:
            raise LookupError(f"The lesson {current().name} has no solution of {own}, only of {', '.join(known)}.")
        return own if own in known else ""
    return bound[0]


def unfit(name: str, answer: Any) -> str:
    """What to say of an answer that cannot be run: it has no name, is still to do, or is no function; else ""."""
    if not name:
        return "✗ Give your function the name of the exercise, and check it by that name."
    if answer is ...:
        return f"○ {name} is empty yet: yours to write."
    kind = type(answer).__name__
    return "" if callable(answer) else f"✗ {name} is no function but of type {kind}: write `def {name}(...)`."


def solution(name: str, names: Mapping[str, Any]) -> Callable:
    """The function of that name from the open lesson's solutions notebook, among the notebook's variables."""
    namespace = dict(names)
    exec(compile(solutions()[name], f"<solution of {name}>", "exec"), namespace)
    return namespace[name]


def copies(arguments: tuple) -> tuple:
    """Deep copies that share what the arguments share; what cannot be copied deeply is cloned, or stays itself."""
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
    code = answer.__code__ if isinstance(answer, FunctionType) else None
    return code is not None and {instruction.opname for instruction in dis.get_instructions(code)} <= IDLE


def words(error: BaseException) -> str:
    """An error's type and the first line of its message; never raises, whatever its __str__ does."""
    try:
        first = str(error).strip().partition("\n")[0]
    except Exception:
        first = ""
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def place(error: BaseException, notebook: Mapping[str, Any]) -> str:
    """The innermost line of the notebook that the error went through; "" if there is none.

    notebook: its global variables, by which its frames are known from those of libraries.
    """
    frames = [(frame, line) for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_globals is notebook]
    if not frames:
        return ""
    frame, line = frames[-1]
    source = linecache.getline(frame.f_code.co_filename, line, frame.f_globals).strip()
    return f"  (at line {line}: {source})" if source else f"  (at line {line})"
