"""Where two results part, in words, and what may have gone wrong."""

import math
from collections.abc import Iterable
from itertools import islice
from numbers import Number
from typing import Any

NEAR, TINY = 1e-3, 1e-9  # how far floats may lie apart: relative, and absolute for what should be 0
MOST = 100_000  # entries that are taken from an iterator, which may be endless


def describe_difference(yours: Any, expected: Any) -> str:
    """Say where two results part, or "" if they agree (floats to 1 in 1000).

    Lists, tuples, arrays, tensors, columns and iterators of the same entries agree, and dicts with
    the same keys.
    """
    return _describe_items(to_plain_types(yours), to_plain_types(expected))


def to_plain_types(value: Any) -> Any:
    """The value in Python's own types, all the way down."""
    if hasattr(value, "detach"):  # a tensor, without importing torch
        value = value.detach().cpu()
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, dict):
        return {key: to_plain_types(item) for key, item in value.items()}
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        return value
    return [to_plain_types(item) for item in islice(value, MOST)]


def _describe_items(yours, expected):
    if isinstance(yours, list) and isinstance(expected, list) and len(yours) == len(expected):
        yours, expected = dict(enumerate(yours)), dict(enumerate(expected))
    if isinstance(yours, dict) and isinstance(expected, dict) and yours.keys() == expected.keys():
        parts = ((key, _describe_items(yours[key], expected[key])) for key in expected)
        return next((f"at {key!r}, {part}" for key, part in parts if part), "")
    if _same(yours, expected):
        return ""
    texts = short_repr(yours), short_repr(expected)
    if texts[0] == texts[1]:
        texts = f"{yours!r:.300}", f"{expected!r:.300}"
    return f"yours {texts[0]}, expected {texts[1]}{_likely_slip(yours, expected)}"


def _same(yours, expected):
    if isinstance(expected, Number) and isinstance(yours, Number):
        return _is_within(yours, expected, NEAR if isinstance(expected, float) else TINY)
    return (yours is expected or isinstance(yours, type(expected))) and bool(yours == expected)


def _is_within(yours, expected, share):
    if yours == expected or (yours != yours and expected != expected):  # nan is what nan should be
        return True
    try:
        return math.isclose(yours, expected, rel_tol=share, abs_tol=TINY)
    except (OverflowError, TypeError):  # too large for a float, or complex
        return False


def _likely_slip(yours, expected):
    """What may have gone wrong, as a question in brackets; "" if nothing typical has."""
    question = next((question for question, holds in SLIPS if holds(yours, expected)), "")
    if isinstance(yours, list) and isinstance(expected, list):
        question = f"length {len(yours)}, not {len(expected)}"
    return f" ({question})" if question else ""


def _differ_in_spelling(yours, expected):
    both_text = isinstance(yours, str) and isinstance(expected, str)
    return both_text and yours.strip().lower() == expected.strip().lower()


def _are_off_by_one(yours, expected):
    """Whether a number is one more or less than a whole number; neither is 0."""
    if type(yours) not in (int, float) or type(expected) is not int:
        return False
    return 0 not in (yours, expected) and abs(yours - expected) == 1


SLIPS = (  # the first that holds is asked about
    ("did you forget the brackets of a call?", lambda yours, _: callable(yours)),
    ("is it spelt exactly so?", _differ_in_spelling),
    ("off by one?", _are_off_by_one),
)


def short_repr(value: Any) -> str:
    """The value in at most 60 characters, or its type; never raises, whatever its __repr__ does."""
    try:
        text = (
            f"{value:.{4 if abs(value) < 1e4 else 6}g}" if isinstance(value, float) else repr(value)
        )
    except Exception:
        text = " " * 61
    cut = f"{text[:56]}...{text[-1]}" if isinstance(value, str) else f"a {type(value).__name__}"
    return text if len(text) <= 60 and "\n" not in text else cut
