"""The values that a recorded cell hands on, as JSON: nothing is pickled, nothing else is taken.

None, booleans, finite numbers, strings, lists and dicts are their own JSON. Every other kind has a
row in CODECS, the one place to add a kind: it becomes {tag: content}, where the tag begins with $,
and comes back as an equal value.
"""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

NAMES = ("index_names", "column_names")  # of a table; [None] where it has none
PLAIN = {bool, int, str, type(None)}  # what is its own JSON


@dataclass(frozen=True)
class Codec:
    """A kind of value that JSON has no word for: how it becomes plain JSON, and how that becomes
    the value again.

    to_json(name, value) and from_json(name, content): name is the variable's, for errors. words:
    the kind in an error's list of all kinds, "" for a special case of another. example: a value of
    the kind; lossy() tries it.
    """

    tag: str
    words: str
    holds: Callable[[Any], bool]
    to_json: Callable[[str, Any], Any]
    from_json: Callable[[str, Any], Any] | None = None
    example: Any = None


def encode(name: str, value: Any) -> Any:
    """Turn a value into plain JSON, from which decode() makes an equal value again.

    Floats keep every bit, dicts their order; numpy's scalars become Python's numbers. Raises
    TypeError, naming the variable and what a recording takes, for a kind that is neither plain nor
    in CODECS.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if (
        type(value) in PLAIN
        or isinstance(value, int | str)
        or (isinstance(value, float) and math.isfinite(value))
    ):
        return value
    if isinstance(value, list):
        return [
            item if type(item) in PLAIN else encode(f"{name}[{i}]", item)
            for i, item in enumerate(value)
        ]
    if isinstance(value, dict) and all(_is_key(key) for key in value):
        return {key: encode(f"{name}[{key!r}]", item) for key, item in value.items()}
    for codec in CODECS:
        if codec.holds(value):
            return {codec.tag: codec.to_json(name, value)}
    raise TypeError(
        f"{name} is a {type(value).__name__}, which a recording does not take: hand on {kinds()}."
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
        if codec.tag == tag and codec.from_json:
            return codec.from_json(name, content)
    raise TypeError(
        f"The recorded value {name} is of the unknown type {tag.lstrip('$')!r}: update the course "
        "or record again."
    )


def kinds() -> str:
    """What a recording takes, in words: numbers, ..., lists or DataFrames."""
    *words, last = [
        "numbers",
        "strings",
        "booleans",
        "None",
        "lists",
        "dicts with string keys",
        *(codec.words for codec in CODECS if codec.words),
    ]
    return f"{', '.join(words)} or {last}"


def lossy(codec: Codec) -> str:
    """What is wrong with a row of CODECS, in a sentence:
    its example does not come back as it was; else "".
    """
    if codec.from_json is None:
        return (
            f"The codec {codec.tag} has no from_json: a recorded value of "
            "this kind could not be played."
        )
    if not codec.holds(codec.example):
        return (
            f"The codec {codec.tag} has no example that it holds: give it one, so that the way "
            "back is tested."
        )
    try:
        content = json.loads(
            json.dumps(codec.to_json("x", codec.example), allow_nan=False, sort_keys=True)
        )
        back = codec.from_json("x", content)
        same = type(back) is type(codec.example) and encode("x", back) == encode("x", codec.example)
    except Exception as error:
        return f"The codec {codec.tag} fails on its example ({type(error).__name__}: {error})."
    return (
        "" if same else f"The codec {codec.tag} turns its example {codec.example!r} into {back!r}."
    )


def _not_finite(value):
    return isinstance(value, float) and not math.isfinite(value)


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


def _is_frame(value):
    return isinstance(value, pd.DataFrame)


CODECS = (
    Codec(
        "$float",
        "",
        _not_finite,
        lambda _, value: str(value),
        lambda _, text: float(text),
        math.inf,
    ),
    Codec(
        "$dataframe",
        "DataFrames",
        _is_frame,
        _table,
        _from_table,
        pd.DataFrame({"us": [1.5, math.nan]}, ["a", "b"]),
    ),
)
