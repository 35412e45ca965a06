"""The bucket planner, which the lesson "Graph many shapes" defines in its own cells."""

from itertools import combinations

import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st

from course.paths import NOTEBOOKS


def run_cells_that_define(lesson, *functions):
    """The functions, after running the cells that define them or the lengths, and no others."""
    (path,) = NOTEBOOKS.glob(f"*_{lesson}.ipynb")
    namespace = {}
    for cell in nbformat.read(path, as_version=4).cells:
        needed = ("draws = ", *(f"def {name}(" for name in functions))
        if any(text in cell.source for text in needed):
            exec(cell.source, namespace)
    return [namespace[name] for name in functions]


bucket_for, padding_share, plan_buckets = run_cells_that_define(
    "graph_many_shapes", "bucket_for", "padding_share", "plan_buckets"
)

CANDIDATES = [10, 20, 30, 40, 50, 60]
histograms = st.dictionaries(st.integers(1, 60), st.integers(1, 9), min_size=1, max_size=8)


@given(histograms, st.integers(1, 6))
def test_no_other_selection_pads_less(histogram, count):
    sizes = plan_buckets(histogram, CANDIDATES, count)
    assert len(sizes) == count and sizes == sorted(sizes) and sizes[-1] == 60
    assert padding_share(histogram, sizes) == min(
        padding_share(histogram, plan) for plan in combinations(CANDIDATES, count) if plan[-1] == 60
    )


@given(histograms, st.integers(1, 6))
def test_lengths_can_be_rounded_up_to_candidates_before_planning(histogram, count):
    rounded = {}
    for length, number in histogram.items():
        size = bucket_for(CANDIDATES, length)
        rounded[size] = rounded.get(size, 0) + number
    planned = (plan_buckets(given, CANDIDATES, count) for given in (histogram, rounded))
    one, other = (padding_share(histogram, sizes) for sizes in planned)
    assert one == other


def test_one_bucket_pads_to_the_greatest_length():
    assert plan_buckets({3: 2, 10: 1}, [5, 10], 1) == [10]
    assert padding_share({3: 2, 10: 1}, [10]) == pytest.approx(14 / 30)
    assert padding_share({3: 2, 10: 1}, [3, 10]) == 0


@pytest.mark.parametrize("length, size", [(1, 4), (4, 4), (5, 9), (9, 9)])
def test_a_length_goes_to_the_next_size(length, size):
    assert bucket_for([4, 9], length) == size


def test_a_length_without_a_bucket_is_refused():
    with pytest.raises(ValueError, match="no bucket holds a length of 10: the largest is 9"):
        bucket_for([4, 9], 10)
