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

    Lists, tuples, arrays, tensors and iterators of the same entries agree. A set counts as its sorted
    list. Labels matter where both sides have some: dicts, and tables with an index of their own.
    """
    yours, unordered = plain(yours), isinstance(expected, set | frozenset)
    return _part(_ordered(yours) if unordered and isinstance(yours, list) else yours, plain(expected))


def plain(value: Any) -> Any:
    """The value in Python's own types, all the way down; tables stay, for their labels may matter."""
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
    if isinstance(yours, dict | TABLE) and isinstance(expected, dict | TABLE) and _labelled(expected):
        return _part_by_label(_by_label(yours), _by_label(expected))
    yours, expected = (plain(side.to_numpy()) if isinstance(side, TABLE) else side for side in (yours, expected))
    if isinstance(yours, list) and isinstance(expected, list) and len(yours) == len(expected):
        parts = ((place, _part(*pair)) for place, pair in enumerate(zip(yours, expected, strict=True)))
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
    """A table as a dict: of columns, or of entries by index; repeated labels become entries themselves."""
    if isinstance(value, pd.DataFrame):
        return dict(value.items())
    if isinstance(value, pd.Series):
        pairs = zip(plain(value.index), plain(value.to_numpy()), strict=True)
        return dict(pairs) if value.index.is_unique and value.index.nlevels == 1 else dict(enumerate(pairs))
    return value


def _part_by_label(yours, expected):
    missing, extra = expected.keys() - yours.keys(), yours.keys() - expected.keys()
    if missing or extra:
        words = {"lacks": missing, "has too much": extra}
        return "yours " + " and ".join(f"{verb} {brief(_ordered(keys))}" for verb, keys in words.items() if keys)
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
        return math.isfinite(abs(expected)) and abs(yours - expected) <= share * abs(expected) + TINY
    except OverflowError:
        return False


def _asked(yours, expected):
    """What may have gone wrong, as a question in brackets; "" if nothing typical has."""
    question = ""
    if callable(yours) and not callable(expected):
        question = "did you forget the brackets of a call?"
    elif isinstance(yours, str) and isinstance(expected, str):
        question = "is it spelt exactly so?" if yours.strip().lower() == expected.strip().lower() else ""
    elif isinstance(yours, str) and isinstance(expected, Number):
        question = "a number is asked, not its text"
    elif isinstance(yours, list) and isinstance(expected, list):
        question = f"length {len(yours)}, not {len(expected)}"
    elif isinstance(yours, list) and len(yours) == 1 and not _part(yours[0], expected):
        question = "take the one entry out"
    elif all(type(side) in (int, float) and abs(side) < 1e15 for side in (yours, expected)):
        question = _slip(yours, expected)
    return f" ({question})" if question else ""


def _slip(yours, expected):
    """Which usual slip turns the expected number into yours, as a question."""
    slips = {}
    if isinstance(expected, int) and abs(yours - expected) <= 1:
        slips["off by one?" if yours == int(yours) else "a whole number is asked"] = yours
    elif yours in (math.floor(expected), math.ceil(expected), round(expected, 1), round(expected, 2)):
        slips["did you round it?"] = yours
    slips |= {
        "a percent for a share?": 100 * expected,
        "a share for a percent?": expected / 100,
        "us for ms, 1000 times too much?": 1000 * expected,
        "ms for us, 1000 times too little?": expected / 1000,
        "is the sign right?": -expected,
        "is the ratio upside down?": 1 / (expected or 1),
        "is it the other part, 1 minus yours?": 1 - expected if 0 < expected < 1 else 0,
    }
    return next((question for question, value in slips.items() if value and expected and _near(yours, value)), "")


def brief(value: Any) -> str:
    """The value in at most 60 characters, or its type; never raises, whatever its __repr__ does."""
    try:
        text = f"{value:.{4 if abs(value) < 1e4 else 6}g}" if isinstance(value, float) else repr(value)
    except Exception:
        text = " " * 61
    cut = f"{text[:56]}...{text[-1]}" if isinstance(value, str) else f"a {type(value).__name__}"
    return text if len(text) <= 60 and "\n" not in text else cut
