"""Where two results part, in words, and what may have gone wrong."""

import math
from collections.abc import Iterable, Mapping
from decimal import Decimal
from fractions import Fraction
from itertools import islice
from numbers import Number
from typing import Any

import numpy as np
import pandas as pd

NEAR, TINY = 1e-3, 1e-9  # how far floats may lie apart: relative, and absolute for what should be 0
MOST = 100_000  # entries that are taken from an iterator, which may be endless
TABLE = pd.Series | pd.DataFrame


def differences(yours: Any, expected: Any) -> str:
    """Say where two results part, or "" if they agree (floats to 1 in 1000).

    Lists, tuples, arrays, tensors and iterators of the same entries agree. A set counts as its
    sorted list. Labels matter where both sides have some: dicts, and tables with an index of their
    own.
    """
    yours, unordered = plain(yours), isinstance(expected, set | frozenset)
    return _part(
        _ordered(yours) if unordered and isinstance(yours, list) else yours, plain(expected)
    )


def plain(value: Any) -> Any:
    """The value in Python's own types, all the way down; tables stay, for their labels may
    matter.
    """
    if hasattr(value, "detach") and hasattr(value, "tolist"):  # a tensor, without importing torch
        value = value.detach().cpu().tolist()
    elif isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    elif isinstance(value, Decimal | Fraction):
        value = float(value)
    elif isinstance(value, set | frozenset):
        value = _ordered(value)
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, str | bytes | TABLE) or not isinstance(value, Iterable):
        return math.nan if value is pd.NA else value
    return [plain(item) for item in islice(value, MOST)]


def _ordered(items):
    try:
        return sorted(items)
    except TypeError:  # of several types
        return sorted(items, key=repr)


def _part(yours, expected):
    if (
        isinstance(yours, dict | TABLE)
        and isinstance(expected, dict | TABLE)
        and _labelled(expected)
    ):
        return _part_by_label(_by_label(yours), _by_label(expected))
    yours, expected = (
        plain(side.to_numpy()) if isinstance(side, TABLE) else side for side in (yours, expected)
    )
    if isinstance(yours, list) and isinstance(expected, list) and len(yours) == len(expected):
        parts = (
            (place, _part(*pair)) for place, pair in enumerate(zip(yours, expected, strict=True))
        )
        return next((f"at {place}, {part}" for place, part in parts if part), "")
    if _same(yours, expected):
        return ""
    texts = brief(yours), brief(expected)
    if texts[0] == texts[1]:
        texts = f"{yours!r:.300}", f"{expected!r:.300}"
    return f"yours {texts[0]}, expected {texts[1]}{_asked(yours, expected)}"


def _labelled(value):
    return not isinstance(value, pd.Series) or not isinstance(value.index, pd.RangeIndex)


def _by_label(value):
    """A table as a dict: of columns, or of entries by index; repeated labels become entries
    themselves.
    """
    if isinstance(value, pd.DataFrame):
        return dict(value.items())
    if isinstance(value, pd.Series):
        pairs = zip(plain(value.index), plain(value.to_numpy()), strict=True)
        return (
            dict(pairs)
            if value.index.is_unique and value.index.nlevels == 1
            else dict(enumerate(pairs))
        )
    return value


def _part_by_label(yours, expected):
    missing, extra = expected.keys() - yours.keys(), yours.keys() - expected.keys()
    if missing or extra:
        words = {"lacks": missing, "has too much": extra}
        return "yours " + " and ".join(
            f"{verb} {brief(_ordered(keys))}" for verb, keys in words.items() if keys
        )
    parts = ((key, _part(plain(yours[key]), plain(expected[key]))) for key in expected)
    return next((f"at {brief(key)}, {part}" for key, part in parts if part), "")


def _same(yours, expected):
    if isinstance(expected, Number) and isinstance(yours, Number):
        return _near(yours, expected, NEAR if isinstance(expected, float) else TINY)
    return (yours is expected or isinstance(yours, type(expected))) and bool(yours == expected)


def _near(yours, expected, share=NEAR):
    if yours == expected or (yours != yours and expected != expected):  # nan is what nan should be
        return True
    try:
        return (
            math.isfinite(abs(expected)) and abs(yours - expected) <= share * abs(expected) + TINY
        )
    except OverflowError:
        return False


def _asked(yours, expected):
    """What may have gone wrong, as a question in brackets; "" if nothing typical has."""
    question = next((question for question, holds in SLIPS if holds(yours, expected)), "")
    if isinstance(yours, list) and isinstance(expected, list):
        question = f"length {len(yours)}, not {len(expected)}"
    return f" ({question})" if question else ""


def _forgotten_call(yours, expected):
    return callable(yours) and not callable(expected)


def _spelt_otherwise(yours, expected):
    both_text = isinstance(yours, str) and isinstance(expected, str)
    return both_text and yours.strip().lower() == expected.strip().lower()


def _text_of_a_number(yours, expected):
    return isinstance(yours, str) and isinstance(expected, Number)


def _one_entry(yours, expected):
    return isinstance(yours, list) and len(yours) == 1 and not _part(yours[0], expected)


def _numbers(yours, expected):
    """Whether both are plain numbers that a slip can be read from: not 0, and not too large for
    floats.
    """
    return all(type(side) in (int, float) and 0 < abs(side) < 1e15 for side in (yours, expected))


def _next_to(yours, expected):
    return _numbers(yours, expected) and isinstance(expected, int) and abs(yours - expected) <= 1


def _rounded(yours, expected):
    if not _numbers(yours, expected) or isinstance(expected, int):
        return False
    return yours in (
        math.floor(expected),
        math.ceil(expected),
        round(expected, 1),
        round(expected, 2),
    )


def _computed(slip):
    """Whether slip(expected) is the learner's number."""

    def holds(yours, expected):
        return _numbers(yours, expected) and _near(yours, slip(expected))

    return holds


SLIPS = (  # the first that holds is asked about
    ("did you forget the brackets of a call?", _forgotten_call),
    ("is it spelt exactly so?", _spelt_otherwise),
    ("a number is asked, not its text", _text_of_a_number),
    ("take the one entry out", _one_entry),
    ("off by one?", lambda yours, expected: _next_to(yours, expected) and yours == int(yours)),
    ("a whole number is asked", _next_to),
    ("did you round it?", _rounded),
    ("a percent for a share?", _computed(lambda expected: 100 * expected)),
    ("a share for a percent?", _computed(lambda expected: expected / 100)),
    ("us for ms, 1000 times too much?", _computed(lambda expected: 1000 * expected)),
    ("ms for us, 1000 times too little?", _computed(lambda expected: expected / 1000)),
    ("is the sign right?", _computed(lambda expected: -expected)),
    ("is the ratio upside down?", _computed(lambda expected: 1 / expected)),
    (
        "is it the other part, 1 minus yours?",
        _computed(lambda expected: 1 - expected if 0 < expected < 1 else 0),
    ),
)


def brief(value: Any) -> str:
    """The value in at most 60 characters, or its type; never raises, whatever its __repr__ does."""
    try:
        text = (
            f"{value:.{4 if abs(value) < 1e4 else 6}g}" if isinstance(value, float) else repr(value)
        )
    except Exception:
        text = " " * 61
    cut = f"{text[:56]}...{text[-1]}" if isinstance(value, str) else f"a {type(value).__name__}"
    return text if len(text) <= 60 and "\n" not in text else cut
