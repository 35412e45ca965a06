"""Checks that answer: exercises against their solutions, guesses against measurements."""

import html
import math
import sys
from collections import ChainMap
from collections.abc import Callable
from typing import Any

from course.comparison import brief, differences, plain
from course.lesson import current
from course.progress import mark
from course.solutions import copies, empty, name_of, place, solution, unfit, words

# of the mark, on a light and on a dark page: right, close, wrong, still to do
COLOURS = {"✓": "#1a8f4c", "~": "#b0700a", "✗": "#dc4040", "○": "#7c7c7c"}


class Outcome:
    """What a check found: true if the answer is right; shows its message as a cell's last value."""

    def __init__(self, right: bool, message: str):
        self.right = bool(right)
        self.message = message if message[:1] in COLOURS else f"{'✓' if right else '✗'} {message}"

    def __bool__(self):
        return self.right

    def __repr__(self):
        return self.message

    def _repr_html_(self):
        sign, text = self.message[0], html.escape(self.message[1:])
        style = "margin: 0; white-space: pre-wrap"
        return f'<pre style="{style}"><b style="color: {COLOURS[sign]}">{sign}</b>{text}</pre>'


def check(answer: Callable, *cases: Any) -> Outcome:
    """Compare a function of the learner's with the solution of the same name, on each case.

    A case is a tuple of arguments, or one argument; answer and solution get copies of their own. The
    solution is the function of that name in the open lesson's notebook under notebooks/solutions.
    Returns an Outcome: right, still to do, or yours, expected and where they part. Whatever the answer
    does, it raises nothing but KeyboardInterrupt, so that a lesson can be run to its end. Raises
    LookupError if there is no such solution.
    """
    caller = sys._getframe(1)
    names = ChainMap(caller.f_locals, caller.f_globals)
    name = name_of(answer, names)
    if problem := unfit(name, answer):
        return Outcome(False, problem)
    try:
        expected_of = solution(name, names)
    except Exception as error:
        return Outcome(False, _lost(error))
    for case in cases or ((),):
        arguments = case if isinstance(case, tuple) else (case,)
        problem = _problem(answer, expected_of, arguments, name, caller.f_globals)
        if problem:
            return Outcome(False, problem)
    count = f"{len(cases)} case{'s' * (len(cases) > 1)}"
    return Outcome(True, f"✓ {name} is right ({count}).{mark(current().name, name)}")


def _problem(answer, expected_of, arguments, name, notebook):
    """What is wrong with the answer in one case, or ""."""
    try:
        expected = expected_of(*copies(arguments))
    except Exception as error:
        return _lost(error)
    try:
        yours = plain(answer(*copies(arguments)))
        if yours is ... or (yours is None and empty(answer)):
            return f"○ {name} gives nothing yet: yours to write."
        if yours is None and expected is not None:
            return f"✗ {_call(name, arguments)} gives None: is a `return` missing?"
        parts = differences(yours, expected)
        return parts and f"✗ {_call(name, arguments)}: {parts}"
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit too
        if isinstance(error, NotImplementedError) and not error.args:
            return f"○ {name} is not implemented yet: yours to write."
        return f"✗ {_call(name, arguments)} raised {words(error)}{place(error, notebook)}"


def _call(name, arguments):
    return f"{name}({', '.join(map(brief, arguments))})"


def _lost(error):
    return f"○ The solution does not run here ({words(error)}): run the lesson's cells again, from the first."


def compare_guess(guess: Any, measured: Any, unit: str = "") -> Outcome:
    """Lay a guess beside the measurement: spot on (within 10%), close (within 50%), or how far off.

    Where a word or a truth value was measured, the guess is right or not. No guess gets a sentence.
    """
    measured = plain(measured)
    if isinstance(measured, str | bool):
        right = plain(guess) == measured
        usable = isinstance(plain(guess), type(measured))
        return Outcome(right, f"your guess {brief(guess)}, found {measured}") if usable else _unusable(guess, measured)
    number, found = guessed(guess), f"measured {measured:.3g}{unit}"
    if number is None:
        return _unusable(guess, found)
    low, high = sorted((abs(number), abs(measured)))
    same_side = low > 0 and (number > 0) == (measured > 0)
    factor = 1 if number == measured else high / low if same_side else math.inf
    far = f"off by a factor of {factor:.1f}" if factor < 1e6 else "far off"
    sign, word = ("✓", "spot on") if factor < 1.1 else ("~", "close") if factor < 1.5 else ("✗", far)
    asked = _percent(number, measured, unit)
    return Outcome(factor < 1.5, f"{sign} your guess {number:g}{unit}, {found}: {word}{asked}")


def guessed(guess: Any, convert: Callable | None = None) -> Any:
    """The guess, or what convert makes of it; None for a guess that is empty, text, or no finite number."""
    try:
        number = plain(guess)
        if isinstance(number, bool) or not math.isfinite(number):
            return None
        value = convert(number) if convert else number
        return value if not isinstance(value, float) or math.isfinite(value) else None
    except Exception:
        return None


def _unusable(guess, found):
    if guess is ... or guess is None:
        return Outcome(False, f"○ no guess yet: put yours in place of `...`, as in `guess = 3`; {found}")
    return Outcome(False, f"○ your guess {brief(guess)} is no number: write it without quotes or unit; {found}")


def _percent(number, measured, unit):
    """A question, if the guess looks like a percent for a share, or the other way round."""
    slips = []
    if "%" in unit or "percent" in unit:
        slips = [("a share for a percent", measured / 100)]
    elif abs(measured) <= 1:
        slips = [("a percent for a share", 100 * measured)]
    return "".join(f" ({slip}?)" for slip, value in slips if abs(number - value) < 0.1 * abs(value))
