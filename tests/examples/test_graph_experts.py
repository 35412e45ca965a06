"""A mixture of experts in a graph: exact for every routing, and trained as in eager mode."""

from tests.support.scripts import printed_by

SMALLER = [("n_embd: int = 1024", "n_embd: int = 16"), ("n_expert: int = 16", "n_expert: int = 4")]
SMALLER += [("2048, 1024", "24, 16"), ("/ 32", "/ 4")]
RIGHT = "wrong tokens: [0, 0, 0]\nlosses as in eager: True\n"


def test_it_is_exact_and_trains_as_in_eager_mode():
    assert printed_by("graph_experts", smaller=SMALLER) == RIGHT
