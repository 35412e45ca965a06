"""The gallery's own tools, on failures that need no
GPU: what fails, and what must not pass for failing.
"""

import warnings
from types import SimpleNamespace

import pytest

from capturable.causes import entries, standard_name
from course import exhibits
from course.exhibits import alone, fails, fixed, shown, silent


@pytest.fixture(autouse=True)
def empty_gallery(monkeypatch):
    monkeypatch.setattr(exhibits, "_shown", {})


@pytest.fixture
def no_spares(monkeypatch):
    """Let alone() start processes of this test only, and end the one left waiting."""
    spares = []
    monkeypatch.setattr(exhibits, "_spare", spares)
    yield
    for process in spares:
        process.communicate("")


class Context:
    """Like torch.cuda.graph: its end fails too if the block has failed."""

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind:
            raise RuntimeError(
                "second\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side assertions."
            )


def test_the_cause_of_a_chain_is_asserted_and_both_errors_are_shown(capsys):
    with fails("two", "first", "ValueError"), Context():
        raise ValueError("the first thing")
    assert capsys.readouterr().out == "ValueError: the first thing\nRuntimeError: second\n"
    row = shown().iloc[0]
    assert (row.exhibit, row.kind, row.says, row.fixed) == ("two", "loud", "first", False)
    assert "During handling of the above exception" in row.traceback


def test_a_number_stands_for_the_text_of_a_cuda_error():
    class AcceleratorError(RuntimeError):
        pass

    with fails("unjoined", 904):
        raise AcceleratorError("CUDA error: capturing stream has unjoined work")
    assert shown().says[0] == exhibits.CUDA_ERRORS[904]


def test_versions_may_word_one_failure_in_several_ways():
    for text in ("the old words", "the new words"):
        with fails("worded", ("old words", "new words")):
            raise RuntimeError(text)
        assert shown().says[0] == text[4:]
    said = "old words.*not RuntimeError: others"
    with pytest.raises(AssertionError, match=said), fails("w", ("old words", "new")):
        raise RuntimeError("others")


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
        assert shown().message[0] == f"nothing: torch {version} {instead}"
    with fails("one", "words", **bounds):
        raise RuntimeError("words")
    assert shown().message[0] == "RuntimeError: words"


def test_the_consequence_and_lines_that_are_always_the_same_are_left_out(capsys):
    class Capture(Context):
        def __exit__(self, kind, *_):
            raise RuntimeError(f"CUDA error: {exhibits.CUDA_ERRORS[901]}")

    cause = "the cause\nSearch for `cudaErrorX' in docs\nReturning 900\n  Heading:\n    File a"
    with fails("both", "the cause", "ValueError"), Capture():
        raise ValueError(cause)
    assert capsys.readouterr().out == "ValueError: the cause\nReturning 900\n  Heading:\n"
    assert exhibits.CUDA_ERRORS[901] in shown().traceback[0]


def test_the_index_of_lessons_has_a_row_for_each_of_their_causes():
    rows = exhibits.index_of_lessons("train_on_several_gpus").data.splitlines()[2:]
    causes = [entry for entry in entries() if entry.lesson == "train_on_several_gpus"]
    assert len(rows) == len(causes) >= 6
    for row, entry in zip(rows, causes, strict=True):
        assert f"[{standard_name(entry)}](" in row and row.count("|") == 4


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


def test_a_warning_is_shown_and_its_absence_is_noticed():
    with fails("warned", "careful", "UserWarning"):
        warnings.warn("be careful", UserWarning, stacklevel=1)
    assert shown().message[0] == "UserWarning: be careful"
    said = "not nothing"
    with pytest.raises(AssertionError, match=said), fails("quiet", "careful", "UserWarning"):
        warnings.warn("something else", UserWarning, stacklevel=1)


def test_a_wrong_value_must_be_the_wrong_one_and_the_fixed_one_right():
    silent("frozen", "does not change", got=1.0, wrong=1.0, right=2.0)
    with pytest.raises(AssertionError, match=r"fixed: expected 2\.0, not 1\.0"):
        fixed(1.0)
    assert not shown().fixed[0]
    fixed(2.0)
    assert shown().fixed[0] and shown().message[0] == "gives 1.0, and 2.0 would be right"


@pytest.mark.parametrize(("got", "wrong", "right"), [(2.0, 1.0, 2.0), (1.0, 1.0, 1.0)])
def test_a_right_value_is_no_exhibit(got, wrong, right):
    with pytest.raises(AssertionError, match="expected the wrong value"):
        silent("frozen", "does not change", got, wrong, right)


def raise_an_error():
    import torch

    raise RuntimeError(
        f"an illegal memory access was encountered on {torch.ones(1).item():.0f} GPU"
    )


def end_well():
    pass


@pytest.mark.usefixtures("no_spares")
@pytest.mark.weekly
def test_a_process_of_its_own_dies_alone_and_the_one_that_waits_ends_with_the_notebook(capsys):
    alone("dies", 700, raise_an_error)
    assert capsys.readouterr().out.splitlines() == [
        "RuntimeError: an illegal memory access was encountered on 1 GPU",
        "exit: 1",
    ]
    with pytest.raises(AssertionError, match="expected .'anything'. and a failure"):
        alone("lives", ("anything",), end_well)
    (waiting,) = exhibits._spare
    waiting.communicate("")
    assert waiting.returncode == 0, (
        "its pipe closes as the notebook's process ends: none is left behind"
    )
