"""The values that a recorded cell hands on, as JSON: nothing is pickled, nothing else is taken.

None, booleans, finite numbers, strings, lists and dicts are their own JSON. Every other kind has a
row in CODECS, the one place to add a kind: it becomes {tag: content}, where the tag begins with $,
and comes back as an equal value.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

NAMES = ("index_names", "column_names")  # of a table; [None] where it has none


class Codec(NamedTuple):
    """A kind of value that JSON has no word for: how it becomes plain JSON, and how that becomes
    the value again.

    to_json(name, value) and from_json(name, content): name is the variable's, for errors.
    """

    tag: str
    holds: Callable[[Any], bool]
    to_json: Callable[[str, Any], Any]
    from_json: Callable[[str, Any], Any]


def encode(name: str, value: Any) -> Any:
    """Turn a value into plain JSON, from which decode() makes an equal value again.

    Floats keep every bit, dicts their order; numpy's scalars become Python's numbers. Raises
    TypeError, naming the variable and what a recording takes, for a kind that is neither plain nor
    in CODECS.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, int | str | None) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, list):
        return [encode(f"{name}[{i}]", item) for i, item in enumerate(value)]
    if isinstance(value, dict) and all(_is_key(key) for key in value):
        return {key: encode(f"{name}[{key!r}]", item) for key, item in value.items()}
    for codec in CODECS:
        if codec.holds(value):
            return {codec.tag: codec.to_json(name, value)}
    raise TypeError(
        f"{name} is a {type(value).__name__}, which a recording does not take: hand on numbers, "
        "strings, booleans, None, lists, dicts with string keys or DataFrames."
    )


def decode(name: str, value: Any) -> Any:
    """The value that encode() was given. Raises TypeError for a tag that no codec has."""
    if isinstance(value, list):
        return [decode(name, item) for item in value]
    if not isinstance(value, dict):
        return value
    if all(_is_key(key) for key in value):
        return {key: decode(name, item) for key, item in value.items()}
    tag, content = next(iter(value.items()))
    for codec in CODECS:
        if codec.tag == tag:
            return codec.from_json(name, content)
    raise TypeError(
        f"The recorded value {name} is of the unknown type {tag.lstrip('$')!r}: update the course "
        "or record again."
    )


def _is_key(key):
    return isinstance(key, str) and not key.startswith("$")


def _table(name, frame):
    parts = frame.to_dict(orient="tight")
    parts = {key: encode(f"{name}.{key}", _lists(part)) for key, part in parts.items()}
    index, data = parts.pop("index"), parts.pop("data")
    names = {key: part for key in NAMES if (part := parts[key]) != [None]}
    counted = all(type(one) is int for one in index) and index == list(range(len(index)))
    fields = {"columns": parts["columns"], "dtypes": [str(dtype) for dtype in frame.dtypes]}
    return fields | names | ({} if counted else {"index": index}) | {"data": data}


def _lists(part):
    """Tuples (of a MultiIndex) as lists, all the way down."""
    return [_lists(item) for item in part] if isinstance(part, list | tuple) else part


def _from_table(name, content):
    parts = {key: [None] for key in NAMES} | {"index": list(range(len(content["data"])))}
    parts |= {key: decode(name, part) for key, part in content.items()}
    dtypes = parts.pop("dtypes")
    frame = pd.DataFrame.from_dict(parts, orient="tight")
    return frame.astype(dict(zip(frame.columns, dtypes, strict=True)))


CODECS = (
    Codec(  # infinities and NaN
        "$float",
        lambda value: isinstance(value, float),
        lambda _, value: str(value),
        lambda _, text: float(text),
    ),
    Codec("$dataframe", lambda value: isinstance(value, pd.DataFrame), _table, _from_table),
)
