"""The gallery's own tools: what must not pass for failing, and in which versions. How failures
appear is in the gallery's recording.
"""

import warnings
from types import SimpleNamespace

import pytest

from capturable.causes import entries, standard_cause_name
from course import exhibits
from course.exhibits import assert_fixed, fails, shown_exhibits, silent


@pytest.fixture(autouse=True)
def empty_gallery(monkeypatch):
    monkeypatch.setattr(exhibits, "_shown", {})


@pytest.mark.parametrize(
    ("bound", "version", "raises", "instead"),
    [
        ("until", "2.11.0+cu130", True, ""),
        ("until", "2.13.0", False, "runs it"),
        ("until", "2.14.1", False, "runs it"),
        ("since", "2.11.0+cu130", False, "has no such check"),
        ("since", "2.13.0", True, ""),
    ],
)
def test_a_failure_may_end_or_begin_with_a_version(monkeypatch, bound, version, raises, instead):
    torch_version = pytest.importorskip("torch").torch_version.TorchVersion(version)
    monkeypatch.setitem(exhibits.sys.modules, "torch", SimpleNamespace(__version__=torch_version))
    bounds = {bound: "2.13"}
    if raises:
        with pytest.raises(AssertionError, match="not nothing"), fails("one", "words", **bounds):
            pass
    else:
        with fails("one", "words", **bounds):
            pass
        assert shown_exhibits().message[0] == f"nothing: torch {version} {instead}"
    with fails("one", "words", **bounds):
        raise RuntimeError("words")
    assert shown_exhibits().message[0] == "RuntimeError: words"


def test_the_index_of_lessons_has_a_row_for_each_of_their_causes():
    rows = exhibits.index_of_causes("train_on_several_gpus").data.splitlines()[2:]
    causes = [entry for entry in entries() if entry.lesson == "train_on_several_gpus"]
    assert len(rows) == len(causes) >= 6
    for row, entry in zip(rows, causes, strict=True):
        assert f"[{standard_cause_name(entry)}](" in row and row.count("|") == 4


@pytest.mark.parametrize(
    ("raised", "found"),
    [
        (None, "nothing"),
        (RuntimeError("other words"), "RuntimeError: other words"),
        (NotImplementedError("some words"), "Not"),  # not even a kind of RuntimeError
    ],
)
def test_another_type_or_text_or_nothing_is_no_exhibit(raised, found):
    with pytest.raises(AssertionError, match=found), fails("wrong", "some words"):
        if raised:
            raise raised
    assert exhibits._shown == {}


def test_the_absence_of_a_warning_is_noticed():
    with fails("warned", "careful", "UserWarning"):
        warnings.warn("be careful", UserWarning, stacklevel=1)
    said = "not nothing"
    with pytest.raises(AssertionError, match=said), fails("quiet", "careful", "UserWarning"):
        warnings.warn("something else", UserWarning, stacklevel=1)


def test_a_wrong_fix_is_noticed():
    silent("frozen", "does not change", got=1.0, wrong=1.0, right=2.0)
    with pytest.raises(AssertionError, match=r"fixed: expected 2\.0, not 1\.0"):
        assert_fixed(1.0)
    assert not shown_exhibits().fixed[0]


@pytest.mark.parametrize(("got", "wrong", "right"), [(2.0, 1.0, 2.0), (1.0, 1.0, 1.0)])
def test_a_right_value_is_no_exhibit(got, wrong, right):
    with pytest.raises(AssertionError, match="expected the wrong value"):
        silent("frozen", "does not change", got, wrong, right)


def test_where_a_machine_has_a_cure_the_right_value_is_asserted():
    silent("lost", "no names", got=True, wrong=False, right=True, cured_by="a newer driver")
    assert shown_exhibits().message[0] == "gives True: a newer driver is right"
    with pytest.raises(AssertionError, match="a newer driver should give True, not False"):
        silent("lost", "no names", False, False, right=True, cured_by="a newer driver")
