"""Checks that answer: exercises against their solutions, guesses against measurements."""

import traceback

import nbformat
import pandas as pd

from course.lesson import current
from course.notebooks import NOTEBOOKS
from course.progress import mark


class Outcome:
    """What a check found: true if the answer is right; shows its message as a cell's last value."""

    def __init__(self, right, message):
        self.right, self.message = right, message

    def __bool__(self):
        return self.right

    def __repr__(self):
        return self.message


def check(answer, *cases):
    """Compare a function of the learner's with the solution of the same name, on each case.

    A case is a tuple of arguments, or one argument. The solution is the function of that name in
    the open lesson's notebook under notebooks/solutions. Returns an Outcome: right, still to do
    (the function gives None), or yours, expected and where they part. It never raises for a wrong
    answer, so that a lesson can be run to its end. Raises LookupError if there is no such solution.
    """
    expected_of = solution(answer)
    for case in cases:
        arguments = case if isinstance(case, tuple) else (case,)
        call = f"{answer.__name__}({', '.join(_brief(argument) for argument in arguments)})"
        try:
            yours = answer(*arguments)
        except Exception as error:
            line = traceback.extract_tb(error.__traceback__)[-1]
            return Outcome(False, f"✗ {call} raised {type(error).__name__}: {error}  (at: {line.line})")
        if yours is None:
            return Outcome(False, f"○ {answer.__name__} gives nothing yet: yours to write.")
        parts = differences(yours, expected_of(*arguments))
        if parts:
            return Outcome(False, f"✗ {call}: {parts}")
    noted = mark(current().name, answer.__name__)
    return Outcome(True, f"✓ {answer.__name__} is right ({len(cases)} case{'s' * (len(cases) > 1)}).{noted}")


def compare_guess(guess, measured, unit=""):
    """Lay a guess beside the measurement: spot on (within 10%), close (within 50%), or how far off."""
    low, high = sorted((guess, measured))
    factor = 1 if low == high else high / low if low > 0 else float("inf")
    far = f"off by a factor of {factor:.1f}" if factor < 1e6 else "far off"
    word = "spot on" if factor < 1.1 else "close" if factor < 1.5 else far
    return Outcome(factor < 1.5, f"your guess {guess:g}{unit}, measured {measured:.3g}{unit}: {word}")


def differences(yours, expected):
    """Say where two results part, or "" if they agree (floats to 1 in 1000)."""
    if isinstance(expected, pd.DataFrame | pd.Series):
        yours = yours.to_dict() if isinstance(yours, pd.DataFrame | pd.Series) else yours
        return differences(yours, expected.to_dict())
    if isinstance(expected, dict) and isinstance(yours, dict):
        missing, extra = expected.keys() - yours.keys(), yours.keys() - expected.keys()
        if missing or extra:
            return f"yours lacks {sorted(missing)}, has {sorted(extra)} too much"
        parts = {key: differences(yours[key], expected[key]) for key in expected}
        return next((f"at {key!r}, {part}" for key, part in parts.items() if part), "")
    if isinstance(expected, list | tuple) and isinstance(yours, list | tuple) and len(yours) == len(expected):
        return differences(dict(enumerate(yours)), dict(enumerate(expected)))
    if isinstance(expected, float):
        try:
            near = abs(yours - expected) <= 1e-3 * abs(expected)
        except TypeError:
            near = False
    else:
        near = bool(yours == expected)
    return "" if near else f"yours {_brief(yours)}, expected {_brief(expected)}"


def solution(answer):
    """The function with the answer's name in the open lesson's solutions notebook."""
    name = current().name
    for path in NOTEBOOKS.glob(f"solutions/*_{name}.ipynb"):
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.cell_type == "code" and f"def {answer.__name__}(" in cell.source:
                namespace = dict(answer.__globals__)
                exec(compile(cell.source, f"solution of {answer.__name__}", "exec"), namespace)
                return namespace[answer.__name__]
    raise LookupError(f"notebooks/solutions holds no {answer.__name__} for the lesson {name}.")


def _brief(value):
    text = f"{value:.4g}" if isinstance(value, float) else repr(value)
    return text if len(text) <= 60 else f"a {type(value).__name__}"
