"""Checks that answer: exercises against their solutions, guesses against measurements."""

import math
import sys
from collections.abc import Callable
from typing import Any

from course.answers.comparison import brief, differences, plain
from course.answers.errors import place, words
from course.answers.limits import Stopped, limited
from course.answers.outcome import Outcome
from course.answers.solutions import asked, copies, solution


def check(answer: Callable, *cases: Any) -> Outcome:
    """Compare a function of the learner's with the solution of the same name, on each case.

    A case is a tuple of arguments, or one argument; answer and solution get copies of their own.
    The solution is the function of that name in the open lesson's notebook under
    notebooks/solutions. Returns an Outcome: right, still to do, or yours, expected and where they
    part. Whatever the answer does, it raises nothing but KeyboardInterrupt, so that a lesson can be
    run to its end. Raises LookupError if there is no such solution.
    """
    exercise = asked(answer, sys._getframe(1))
    name = exercise.name
    if exercise.problem:
        return Outcome(False, exercise.problem)
    try:
        expected_of = solution(name, exercise.variables)
    except Exception as error:
        return Outcome(False, _lost(error))
    for case in cases or ((),):
        arguments = case if isinstance(case, tuple) else (case,)
        problem = _problem(answer, expected_of, arguments, name, exercise.notebook)
        if problem:
            return Outcome(False, problem)
    count = f"{len(cases)} cases" if len(cases) > 1 else "1 case"
    return Outcome(True, f"✓ {name} is right ({count}).{exercise.solved()}")


def _problem(answer, expected_of, arguments, name, notebook):
    """What is wrong with the answer in one case, or ""."""
    try:
        expected = expected_of(*copies(arguments))
    except Exception as error:
        return _lost(error)
    try:
        with limited():
            yours = plain(answer(*copies(arguments)))
        if yours is ...:
            return f"○ {name} gives nothing yet: yours to write."
        if yours is None and expected is not None:
            return f"✗ {_call(name, arguments)} gives None: is a `return` missing?"
        parts = differences(yours, expected)
        return parts and f"✗ {_call(name, arguments)}: {parts}"
    except KeyboardInterrupt:
        raise
    except Stopped as stopped:
        return f"✗ {_call(name, arguments)}: {stopped}"
    except BaseException as error:  # SystemExit too
        if isinstance(error, NotImplementedError) and not error.args:
            return f"○ {name} is not implemented yet: yours to write."
        return f"✗ {_call(name, arguments)} raised {words(error)}{place(error, notebook)}"


def _call(name, arguments):
    return f"{name}({', '.join(map(brief, arguments))})"


def _lost(error):
    return (
        f"○ The solution does not run here ({words(error)}): run the lesson's cells again, from "
        "the first."
    )


def compare_guess(guess: Any, measured: Any, unit: str = "") -> Outcome:
    """Lay a guess beside the measurement: spot on (within 10%), close (within 50%), or how far off.

    Where a word or a truth value was measured, the guess is right or not. No guess gets a sentence.
    """
    measured = plain(measured)
    if isinstance(measured, str | bool):
        right = plain(guess) == measured
        usable = isinstance(plain(guess), type(measured))
        return (
            Outcome(right, f"your guess {brief(guess)}, found {measured}")
            if usable
            else _unusable(guess, f"found: {measured}")
        )
    digits = ",.0f" if abs(measured) >= 1000 else ".3g"
    number, found = _number(guess), f"measured {measured:{digits}}{unit}"
    if number is None:
        return _unusable(guess, found)
    low, high = sorted((abs(number), abs(measured)))
    same_side = low > 0 and (number > 0) == (measured > 0)
    factor = 1 if number == measured else high / low if same_side else math.inf
    far = f"off by a factor of {factor:.1f}" if factor < 1e6 else "far off"
    sign, word = (
        ("✓", "spot on") if factor < 1.1 else ("~", "close") if factor < 1.5 else ("✗", far)
    )
    asked = _percent(number, measured, unit)
    return Outcome(factor < 1.5, f"{sign} your guess {number:g}{unit}, {found}: {word}{asked}")


def guessed(guess: Any, convert: Callable | None = None) -> Any:
    """The guess, or what convert makes of it; None for a guess
    that is empty, and, with a word, for one that is no finite number.
    """
    number = _number(guess, convert)
    if number is None and guess is not ... and guess is not None:
        print(f"Your guess {brief(guess)} is no number: write it without quotes or unit.")
    return number


def _number(guess: Any, convert: Callable | None = None) -> Any:
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
        return Outcome(False, f"○ no guess yet: put yours in place of `...`; {found}")
    return Outcome(
        False, f"○ your guess {brief(guess)} does not fit: a number has no quotes or unit; {found}"
    )


def _percent(number, measured, unit):
    """A question, if the guess looks like a percent for a share, or the other way round."""
    slips = []
    if "%" in unit or "percent" in unit:
        slips = [("a share for a percent", measured / 100)]
    elif abs(measured) <= 1:
        slips = [("a percent for a share", 100 * measured)]
    return "".join(f" ({slip}?)" for slip, value in slips if abs(number - value) < 0.1 * abs(value))
