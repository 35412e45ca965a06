"""Kinds of values that a recording takes besides JSON's own: each comes back as it was."""

import json
import math

import pandas as pd
import pytest

from course.recordings import values
from course.recordings.values import CODECS, Codec, decode, encode

EXAMPLES = {
    "$float": -math.inf,
    "$dataframe": pd.DataFrame({"us": [1.5, math.nan]}, ["a", "b"]),
}
COMPLEX = Codec(
    tag="$complex",
    holds=lambda value: isinstance(value, complex),
    to_json=lambda _, value: [value.real, value.imag],
    from_json=lambda _, parts: complex(*parts),
)


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.tag)
def test_an_example_comes_back_as_it_was(codec):
    encoded = json.loads(json.dumps(encode("x", [EXAMPLES[codec.tag]]), allow_nan=False))
    assert encoded[0].keys() == {codec.tag}
    (back,) = decode("x", encoded)
    assert type(back) is type(EXAMPLES[codec.tag]) and encode("x", [back]) == encoded


def test_a_new_kind_is_a_row(monkeypatch):
    with pytest.raises(TypeError, match="z is a complex, which a recording does not take"):
        encode("z", 1j)
    with pytest.raises(TypeError, match="of the unknown type 'complex'"):
        decode("z", {"$complex": [1, 2]})
    monkeypatch.setattr(values, "CODECS", (*CODECS, COMPLEX))
    assert decode("z", encode("z", {"a": [1j]})) == {"a": [1j]}
