"""A mixture of experts in a graph: exact for every routing, and trained as in eager mode."""

import pytest

from tests.support.scripts import numbered_lines, outcome_of_change, printed_by

SMALLER = [("n_embd: int = 1024", "n_embd: int = 16"), ("n_expert: int = 16", "n_expert: int = 4")]
SMALLER += [("2048, 1024", "24, 16"), ("/ 32", "/ 4")]
RIGHT = "wrong tokens: [0, 0, 0]\nlosses as in eager: True\n"

CHANGES = {  # a text, what takes its place, and what happens
    "1 not sorted": (
        "experts.flatten().sort(stable=True)",
        "experts.flatten(), torch.arange(experts.numel(), device=x.device)",
        "silent",
    ),
    "2 ends of the first batch": (
        "out_int32=True)",
        "out_int32=True)\n        ends = vars(self).setdefault('ends', ends)",
        "silent",
    ),
    "2 ends read on the CPU": (
        "out_int32=True)",
        "out_int32=True)\n        ends = ends.new_tensor(ends.tolist())",
        "raises",
    ),
    "3 no spare row": ("F.pad(x[order // self.top_k], (0, 0, 0, 1))", "x[order // 2]", "raises"),
    "4 in the order of the experts": ("index_copy(0, order, y)", "add(y)", "silent"),
    "an input that is not copied": (
        "static_input.copy_(new_input)",
        "static_input = new_input",
        "silent",
    ),
}


def printed(*changes):
    return printed_by("graph_experts", *changes, smaller=SMALLER)


def test_it_is_exact_and_trains_as_in_eager_mode():
    assert printed() == RIGHT


@pytest.mark.parametrize("change", CHANGES)
def test_with_a_line_changed_it_ends_otherwise(change):
    *line, expected = CHANGES[change]
    assert outcome_of_change(lambda: printed(line), RIGHT, (RuntimeError, IndexError)) == expected


def test_every_numbered_line_is_changed():
    assert {change[0] for change in CHANGES} - {"a"} == set(numbered_lines("graph_experts"))
