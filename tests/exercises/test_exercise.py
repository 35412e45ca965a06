import sys
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch

from course.lesson import LessonSession
from exercises import check, compare_guess
from exercises.answers import solutions
from exercises.answers.comparison import describe_difference
from exercises.answers.outcome import Outcome

SOLUTIONS = {
    "double": "def double(x):\n    return 2 * x",
    "total": "def total(numbers):\n    return sum(numbers)",
    "nothing": "def nothing():\n    pass",
    "lost": "def lost():\n    return not_there",
}


@pytest.fixture(autouse=True)
def lesson(monkeypatch):
    monkeypatch.setattr(solutions, "solution_sources", lambda: SOLUTIONS)
    monkeypatch.setattr(solutions, "current", lambda: LessonSession("tables", live=False))


def test_a_right_answer():
    def double(x):
        return x + x

    outcome = check(double, 1, 2.5)
    assert outcome and repr(outcome) == "✓ double is right (2 cases)."


def test_a_wrong_answer_shows_yours_and_expected():
    def double(x):
        return x**2

    outcome = check(double, 2, 3)
    assert not outcome and repr(outcome) == "✗ double(3): yours 9, expected 6"


def test_an_answer_not_written_yet():
    def double(x):
        """Twice x."""

    assert repr(check(double, 1)) == "○ double gives nothing yet: yours to write."
    double = lambda x: ...  # noqa: E731
    assert repr(check(double, 1)) == "○ double gives nothing yet: yours to write."
    double = ...
    assert repr(check(double, 1)) == "○ double is empty yet: yours to write."

    def double(x):
        raise NotImplementedError

    assert repr(check(double, 1)) == "○ double is not implemented yet: yours to write."


def test_a_missing_return_is_asked_for():
    def double(x):
        x = 2 * x

    assert repr(check(double, 1)) == "✗ double(1) gives None: is a `return` missing?"


def test_nothing_is_right_where_nothing_is_expected():
    def nothing():
        str(1)

    assert check(nothing)


def test_an_answer_that_raises_is_told_with_the_learners_own_line():
    def half(x):
        return np.linalg.inv(x)

    def double(x):
        return 4 * half(x)

    said = repr(check(double, 1))
    assert said.startswith("✗ double(1) raised LinAlgError: 0-dimensional array given")
    assert said.endswith(": return np.linalg.inv(x))") and "\n" not in said


def test_the_solution_that_does_not_run_is_no_fault_of_the_answer():
    def lost():
        return 1

    assert repr(check(lost)).startswith(
        "○ The solution does not run here (NameError: name 'not_there' is not defined)"
    )


def test_a_lesson_without_that_solution_is_an_error():
    def triple(x):
        return 3 * x

    with pytest.raises(LookupError, match="tables has no solution of triple"):
        check(triple, 1)


def test_each_side_has_its_own_arguments():
    def total(numbers):
        numbers.clear()
        return 0

    numbers = [1, 2]
    assert "yours 0, expected 3" in repr(check(total, numbers)) and numbers == [1, 2]


class Odd:
    def __init__(self, **methods):
        self.methods = methods

    def __repr__(self):
        return self.methods["repr"]()

    def __eq__(self, other):
        return self.methods["eq"]()

    def __iter__(self):
        raise OSError("no")


def endless():
    while True:
        yield 1


def fails():
    yield 1
    raise ValueError("late")


DEEP = []
DEEP.append(DEEP)


@pytest.mark.parametrize(
    "answer",
    [
        lambda x: sys.exit("bye"),
        lambda x: fails(),
        lambda x: endless(),
        lambda x: Odd(repr=lambda: 1 / 0, eq=lambda: True),
        lambda x: np.array(["a"], dtype=object),
        lambda x: pd.DataFrame({"x": [pd.NA]}),
        lambda x: DEEP,
        lambda x: 10**400,
        lambda: 2,
        lambda x: check(double, x),  # noqa: F821
        lambda x: (_ for _ in ()).throw(GeneratorExit),
        3,
        None,
        Odd(repr=lambda: 1 / 0, eq=lambda: 1 / 0),
        print,
        partial(divmod, 1),
    ],
)
def test_no_wrong_answer_gets_a_traceback(answer):
    double = answer
    outcome = check(double, 1)
    assert not outcome and outcome.message[0] in "✗○" and "Traceback" not in repr(outcome)
    assert outcome._repr_html_()


def test_an_answer_without_a_name_is_told():
    assert "Give your function the name" in repr(check(lambda x: 2 * x, 1))


def test_the_learner_can_interrupt_an_answer():
    def double(x):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match=r"interrupted \(at line \d+: raise KeyboardI"):
        check(double, 1)


class Doubles:
    def __call__(self, x):
        return 2 * x


@pytest.mark.parametrize(
    "answer",
    [
        partial(lambda by, x: by * x, 2),
        Doubles(),
        Doubles().__call__,
        lambda x: np.float32(2 * x),
        lambda x: np.array(2 * x),
        lambda x: torch.tensor(2 * x),
    ],
)
def test_a_right_answer_of_any_kind(answer):
    double = answer
    assert check(double, 1, 2.5)


@pytest.mark.parametrize(
    "yours, expected, same",
    [
        (0.3334, 1 / 3, True),
        (1e-17, 0.0, True),
        (1e-3, 0.0, False),
        (6.001, 6, False),
        (float("nan"), float("nan"), True),
        (float("inf"), float("inf"), True),
        (1e30, float("inf"), False),
        (1.0, "x", False),
        (np.True_, True, True),
        (np.array([1, 2]), [1, 2], True),
        ({"a": torch.tensor([1.0, 2.0])}, {"a": [1.0, 2.0]}, True),
        ({"a": 1}, {"b": 1}, False),
        ({"a": [1, 2]}, {"a": [1, 3]}, False),
        (torch.tensor([1.0, 2.0], dtype=torch.bfloat16), [1.0, 2.0], True),
        (pd.Series([1, 2], index=["a", "b"]), [1, 2], True),
        (iter("ab"), ["a", "b"], True),
    ],
)
def test_differences(yours, expected, same):
    assert (describe_difference(yours, expected) == "") is same


@pytest.mark.parametrize(
    "yours, expected, question",
    [
        (3, 4, "off by one?"),
        (True, 0, ""),
        (0, 1, ""),
        ("gpu-bound", "GPU-bound", "spelt"),
        ([4.0], [4.0, 1.0], "length 1, not 2"),
        (len, 4.0, "brackets"),
        (7.3, 4.0, ""),
    ],
)
def test_a_usual_slip_is_asked_for(yours, expected, question):
    said = describe_difference(yours, expected)
    assert question in said and ("(" in said) == bool(question)


def test_long_texts_are_cut_and_alike_numbers_are_not():
    assert len(describe_difference("a" * 1000, "b" * 1000)) < 150
    assert describe_difference(100000.4, 100000) == "yours 100000.4, expected 100000"
    assert describe_difference(1.00001, 1) == "yours 1.00001, expected 1"


@pytest.mark.parametrize(
    "guess, right, word",
    [(34, True, "✓"), (34, True, "spot on"), (40, True, "~"), (12, False, "factor of 2.8")],
)
def test_a_guess_is_told_how_far_off_it_is(guess, right, word):
    outcome = compare_guess(guess, 34, " kernels")
    assert bool(outcome) is right and word in repr(outcome)


def test_a_large_measurement_keeps_its_digits():
    assert "measured 1,903 µs: spot on" in repr(compare_guess(1900, 1903.4, " µs"))
    assert "measured 999 µs" in repr(compare_guess(1000, 999.4, " µs"))


def test_a_guess_of_nothing_is_far_off_unless_nothing_it_is():
    assert repr(compare_guess(0, 34)) == "✗ your guess 0, measured 34: far off"
    assert compare_guess(0, 0) and not compare_guess(-3, 3) and compare_guess(-3, -3)


@pytest.mark.parametrize(
    "guess", [..., "34", True, float("nan"), float("inf"), [34], Odd(repr=str)]
)
def test_what_is_no_guess_gets_a_sentence(guess):
    outcome = compare_guess(guess, 34, " kernels")
    assert not outcome and repr(outcome).startswith("○")
    assert repr(outcome).endswith("measured 34 kernels")


def test_a_small_count_has_no_close_and_a_known_mistake_its_reason():
    said = [repr(compare_guess(guess, 3.0, because={4: "why"})) for guess in (3, 4, 5)]
    assert [one.rpartition(": ")[2] for one in said] == ["spot on", "why", "off by 2"]
    assert [one[0] for one in said] == ["✓", "✗", "✗"]
    large = compare_guess(40, 34, because={40: "why"})
    assert not large and repr(large).endswith(": why"), "of a large count too"


def test_a_guess_may_be_a_word_or_a_truth_value():
    assert compare_guess(True, np.True_) and not compare_guess(False, True)
    assert compare_guess("eager", "eager") and repr(compare_guess(..., "eager")).startswith("○")
    assert compare_guess("Head,block3", "block3, head") and not compare_guess("head", "block3")
    assert "write words in quotes; found: eager" in repr(compare_guess(1, "eager"))


def test_the_mark_is_coloured_and_the_text_is_safe():
    shown = Outcome(False, "<b> & so on")._repr_html_()
    assert "✗</b> &lt;b&gt; &amp; so on" in shown and "color: #" in shown
    assert repr(Outcome(True, "the same bits")) == "✓ the same bits"
