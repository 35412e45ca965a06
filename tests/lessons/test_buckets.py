"""The bucket planner, which the lesson "Graph many shapes" defines in its own cells."""

from itertools import combinations

import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st

from course.paths import NOTEBOOKS


def defined_in(lesson, *functions):
    """The functions as the lesson's cells define them, without running anything else of it."""
    (path,) = NOTEBOOKS.glob(f"*_{lesson}.ipynb")
    namespace = {}
    for cell in nbformat.read(path, as_version=4).cells:
        if any(f"def {name}(" in cell.source for name in functions):
            exec(cell.source, namespace)
    return [namespace[name] for name in functions]


bucket_for, padded_rows, plan_buckets = defined_in(
    "graph_many_shapes", "bucket_for", "padded_rows", "plan_buckets"
)

histograms = st.dictionaries(st.integers(1, 60), st.integers(1, 9), min_size=1, max_size=8)


def cost(histogram, sizes, price):
    return padded_rows(histogram, sizes) + price * sum(sizes)


def all_plans(histogram, count):
    """Every choice of at most count sizes among the lengths, the greatest always included."""
    *lengths, greatest = sorted(histogram)
    for others in range(count):
        yield from ([*chosen, greatest] for chosen in combinations(lengths, others))


@given(histograms, st.integers(1, 9), st.sampled_from([0.0, 0.5, 3.0, 100.0]))
def test_no_other_plan_costs_less(histogram, count, price):
    sizes = plan_buckets(histogram, count, price)
    assert sizes == sorted(set(sizes)) and 1 <= len(sizes) <= count and sizes[-1] == max(histogram)
    assert cost(histogram, sizes, price) == min(
        cost(histogram, plan, price) for plan in all_plans(histogram, count)
    )


@given(histograms)
def test_a_bucket_per_length_pads_nothing(histogram):
    assert padded_rows(histogram, plan_buckets(histogram, len(histogram))) == 0


def test_one_bucket_pads_to_the_greatest_length():
    assert plan_buckets({3: 2, 10: 1}, 1) == [10]
    assert padded_rows({3: 2, 10: 1}, [10]) == 14


def test_a_high_price_of_memory_saves_buckets():
    histogram = {10: 100, 20: 100, 30: 100}
    assert [len(plan_buckets(histogram, 3, price)) for price in (0, 60, 1e6)] == [3, 2, 1]


def test_lengths_that_never_occur_do_not_count():
    assert plan_buckets({5: 1, 99: 0}, 4) == [5]


@pytest.mark.parametrize("length, size", [(1, 4), (4, 4), (5, 9), (9, 9)])
def test_a_length_goes_to_the_next_size(length, size):
    assert bucket_for([4, 9], length) == size


def test_a_length_without_a_bucket_is_refused():
    with pytest.raises(ValueError, match="no bucket holds a length of 10: the largest is 9"):
        bucket_for([4, 9], 10)


@pytest.mark.parametrize("histogram, count", [({}, 2), ({5: 0}, 2), ({5: 1}, 0)])
def test_a_plan_needs_lengths_and_buckets(histogram, count):
    with pytest.raises(ValueError, match="a length that occurs, and at least one bucket"):
        plan_buckets(histogram, count)
