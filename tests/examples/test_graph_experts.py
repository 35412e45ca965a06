"""A mixture of experts in a graph: exact for every routing, and trained as in eager mode."""

from contextlib import redirect_stdout
from io import StringIO

import pytest

from cpu_graph import cpu_graphs
from tests.support.scripts import ending, names_of

SMALLER = [("n_embd: int = 1024", "n_embd: int = 16"), ("n_expert: int = 16", "n_expert: int = 4")]
SMALLER += [("2048, 1024", "24, 16"), ("/ 32", "/ 4")]
RIGHT = "wrong tokens: [0, 0, 0]\nlosses as in eager: True\n"

CHANGES = {  # how it ends, and the change
    "ends of the first batch": (
        "silent",
        ("out_int32=True)", "out_int32=True)\n        ends = vars(self).setdefault('ends', ends)"),
    ),
    "ends read on the CPU": (
        "raises",
        ("out_int32=True)", "out_int32=True)\n        ends = ends.new_tensor(ends.tolist())"),
    ),
    "not back in the order of the choices": ("silent", ("index_copy(0, order, y)", "add(y)")),
    "an input that is not copied": (
        "silent",
        ("static_input.copy_(new_input)", "static_input = new_input"),
    ),
}


def printed(*changes):
    with cpu_graphs(), redirect_stdout(StringIO()) as out:
        names_of("graph_experts", *changes, smaller=SMALLER)["main"]()
    return out.getvalue()


def test_it_is_exact_and_trains_as_in_eager_mode():
    assert printed() == RIGHT


@pytest.mark.parametrize(("kind", "change"), CHANGES.values(), ids=CHANGES)
def test_with_a_line_changed_it_is_wrong(kind, change):
    assert ending(lambda: printed(change), RIGHT) == kind
