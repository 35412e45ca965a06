import pandas as pd
import pytest

from course import exercise as module
from course.exercise import check, compare_guess, differences
from course.lesson import Lesson


@pytest.fixture(autouse=True)
def solutions(monkeypatch):
    def expected(answer):
        return {"double": lambda x: 2 * x, "table": lambda: pd.DataFrame({"us": [1.0, 2.0]}, index=["a", "b"])}[
            answer.__name__
        ]

    monkeypatch.setattr(module, "solution", expected)
    monkeypatch.setattr(module, "current", lambda: Lesson("tables", live=False))


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


def test_an_answer_that_raises_is_told_without_a_traceback():
    def double(x):
        return x / 0

    assert repr(check(double, 1)) == "✗ double(1) raised ZeroDivisionError: division by zero  (at: return x / 0)"


def test_tables_say_where_they_part():
    def table():
        return pd.DataFrame({"us": [1.0, 3.0]}, index=["a", "b"])

    assert "at 'us', at 'b', yours 3, expected 2" in repr(check(table, ()))


@pytest.mark.parametrize(
    "yours, expected, same",
    [
        (0.3334, 1 / 3, True),
        (0.34, 1 / 3, False),
        ("x", 1.0, False),
        ([1, 2], [1, 2], True),
        ([1], [1, 2], False),
        ({"a": 1}, {"b": 1}, False),
        (None, 2, False),
    ],
)
def test_differences(yours, expected, same):
    assert (differences(yours, expected) == "") is same


@pytest.mark.parametrize(
    "guess, right, word", [(34, True, "spot on"), (40, True, "close"), (12, False, "factor of 2.8")]
)
def test_a_guess_is_told_how_far_off_it_is(guess, right, word):
    outcome = compare_guess(guess, 34, " kernels")
    assert bool(outcome) is right and word in repr(outcome)


def test_a_guess_of_nothing_is_far_off_unless_nothing_it_is():
    assert repr(compare_guess(0, 34)) == "your guess 0, measured 34: far off"
    assert compare_guess(0, 0)
