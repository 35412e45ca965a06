"""The share of padding, which the lesson "Graph many shapes" defines in a cell of its own."""

from bisect import bisect_left

import pytest

from course.lessons import lesson_file
from tests.support.notebooks import code

(cell,) = [source for source in code(lesson_file("graph_many_shapes")) if "def padding" in source]
namespace = {"bisect_left": bisect_left}
exec(cell.partition("\n\n\n")[0], namespace)
padding_share = namespace["padding_share"]


@pytest.mark.parametrize(
    ("sizes", "share"), [([10], 14 / 30), ([3, 10], 0), ([5, 10], 4 / 20), ([4, 9, 10], 2 / 18)]
)
def test_a_length_is_padded_to_the_next_size(sizes, share):
    assert padding_share([3, 3, 10], sizes) == pytest.approx(share)
