"""Every kind of value that a recording takes: what it becomes, and that it comes back."""

import cmath
from dataclasses import replace

import pytest

from course.recordings import values
from course.recordings.values import CODECS, Codec, decode, encode, kinds, lossy

COMPLEX = Codec(
    tag="$complex",
    words="complex numbers",
    holds=lambda value: isinstance(value, complex),
    to_json=lambda _, value: [value.real, value.imag],
    from_json=lambda _, parts: complex(*parts),
    example=cmath.rect(1, 2),
)


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.tag)
def test_an_example_comes_back_as_it_was(codec):
    assert lossy(codec) == ""
    assert encode("x", [codec.example])[0].keys() == {codec.tag}


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.tag)
def test_a_kind_has_a_tag_of_its_own_and_is_named_among_all_kinds(codec):
    assert [other.tag for other in CODECS].count(codec.tag) == 1 and codec.tag.startswith("$")
    assert codec.words in kinds()
    assert [other for other in CODECS if other.holds(codec.example)] == [codec]


def test_a_new_kind_is_a_row(monkeypatch):
    with pytest.raises(
        TypeError,
        match="hand on numbers, strings, booleans, None, lists, dicts with string keys or",
    ):
        encode("z", 1j)
    monkeypatch.setattr(values, "CODECS", (*CODECS, COMPLEX))
    assert lossy(COMPLEX) == "" and decode("z", encode("z", {"a": [1j]})) == {"a": [1j]}
    assert kinds().endswith("DataFrames or complex numbers")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"from_json": None}, "The codec $complex has no from_json"),
        ({"example": None}, "The codec $complex has no example that it holds"),
        ({"from_json": lambda _, parts: parts}, r"The codec $complex turns its example"),
        (
            {"from_json": lambda _, parts: complex(parts[1], parts[0])},
            "The codec $complex turns its example",
        ),
        ({"to_json": lambda _, value: value}, "The codec $complex fails on its example (TypeError"),
    ],
    ids=["no way back", "no example", "of another type", "not equal", "no JSON"],
)
def test_half_a_kind_is_told_in_a_sentence(monkeypatch, change, said):
    half = replace(COMPLEX, **change)
    monkeypatch.setattr(values, "CODECS", (*CODECS, half))
    sentence = lossy(half)
    assert sentence.startswith(said) and "\n" not in sentence
