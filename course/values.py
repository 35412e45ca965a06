"""The values that a recorded cell hands on, as JSON: nothing is pickled, nothing else is taken."""

import math

import numpy as np
import pandas as pd

PLAIN = {bool, int, str, type(None)}  # what is its own JSON
MIME = "application/vnd.cuda-graphs-course.values+json"


def encode(name: str, value: object) -> object:
    """Turn a DataFrame, number, string, boolean, None, or a list or dict of them into plain JSON.

    Raises TypeError naming the variable for anything else. Floats keep every bit; nan and infinity
    become {"$float": "nan"}, for strict JSON has neither. Dicts keep their order. decode() gives an equal value back.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": str(value)}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, list):
        return [item if type(item) in PLAIN else encode(f"{name}[{i}]", item) for i, item in enumerate(value)]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        # as pairs, for notebooks are saved with sorted keys
        return {"$dict": [[key, encode(f"{name}[{key!r}]", item)] for key, item in value.items()]}
    if isinstance(value, pd.DataFrame):
        table = value.to_dict(orient="tight")
        fields = {key: encode(f"{name}.{key}", _lists(part)) for key, part in table.items()}
        return {"$dataframe": fields | {"dtypes": [str(dtype) for dtype in value.dtypes]}}
    raise TypeError(
        f"{name} is a {type(value).__name__}, which a recording does not take: hand on a DataFrame, number, "
        "string, boolean, None, or a list or dict (with string keys) of them."
    )


def decode(name: str, value: object) -> object:
    """The value that encode() was given. Raises TypeError for a marker that it does not know."""
    if isinstance(value, list):
        return [decode(name, item) for item in value]
    if not isinstance(value, dict):
        return value
    marker, content = next(iter(value.items()), ("$", None))
    if marker == "$float":
        return float(content)
    if marker == "$dict":
        return {key: decode(name, item) for key, item in content}
    if marker == "$dataframe":
        table = {key: decode(name, part) for key, part in content.items()}
        dtypes = table.pop("dtypes")
        frame = pd.DataFrame.from_dict(table, orient="tight")
        return frame.astype(dict(zip(frame.columns, dtypes, strict=True)))
    raise TypeError(
        f"The recorded value {name} is of the unknown type {marker.lstrip('$')!r}: update the course or record again."
    )


def _lists(part):
    """Tuples (of a MultiIndex) as lists, all the way down."""
    return [_lists(item) for item in part] if isinstance(part, (list, tuple)) else part
