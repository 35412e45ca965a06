"""Values that a recording takes: each comes back as it was, and anything else is refused."""

import json
import math

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course.recordings.values import decode, encode

names = st.text(max_size=5).filter(lambda name: not name.startswith("$"))
plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
nested = st.recursive(
    plain, lambda inner: st.lists(inner) | st.dictionaries(names, inner), max_leaves=10
)


def through_json(value):
    return decode("x", json.loads(json.dumps(encode("x", value), allow_nan=False)))


@given(nested)
def test_plain_values_come_back_as_they_were(value):
    assert repr(through_json(value)) == repr(value)


@settings(max_examples=25)  # a DataFrame takes milliseconds
@given(st.lists(st.tuples(st.floats(), st.integers(-(2**53), 2**53), st.booleans(), st.text())))
def test_tables_come_back_to_the_bit(rows):
    frame = pd.DataFrame(
        rows, columns=["us", "count", "same", "name"], index=[f"row {i}" for i in range(len(rows))]
    )
    frame = frame.astype({"us": "float64", "count": "int64", "same": "bool", "name": "str"})
    pd.testing.assert_frame_equal(
        through_json(frame), frame, check_exact=True, check_index_type=False
    )


def test_a_table_with_two_levels_of_columns_comes_back():
    columns = pd.MultiIndex.from_tuples([("host", "q1"), ("host", "q3")])
    frame = pd.DataFrame([[1.0, math.nan]], columns=columns)
    pd.testing.assert_frame_equal(through_json(frame), frame)


def test_numpy_scalars_become_numbers():
    assert through_json({"a": np.int64(3), "b": np.float32(0.5)}) == {"a": 3, "b": 0.5}


@pytest.mark.parametrize(
    "value, where",
    [
        (torch.ones(1), "losses is a Tensor"),
        ({"a": [1, (2, 3)]}, r"losses\['a'\]\[1\] is a tuple"),
        ({1: 2}, "losses is a dict"),
        ({"$float": "inf"}, "losses is a dict"),
        (pd.Series([1]), "losses is a Series"),
    ],
)
def test_anything_else_is_refused_by_name(value, where):
    with pytest.raises(TypeError, match=where):
        encode("losses", value)


def test_an_unknown_kind_is_told():
    with pytest.raises(TypeError, match="recorded value z is of the unknown type 'complex'"):
        decode("z", {"$complex": [1, 2]})
