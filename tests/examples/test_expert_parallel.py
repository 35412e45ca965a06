"""Experts on several ranks: on the stand-in with one rank, whose all-to-all is a copy, and in eager
mode on two ranks, on the CPU.
"""

import json

import pytest

from tests.support.scripts import (
    a_group,
    changed,
    ending,
    numbered_lines,
    printed_by,
    printed_by_two_ranks,
)

SMALLER = [("TOKENS = 1024", "TOKENS = 24"), ("(1024, 160)", "(24, 3)")]
SMALLER += [("N_EMBD = 1024", "N_EMBD = 16"), ("N_EXPERT = 16", "N_EXPERT = 4")]
SMALLER += [("1 / 32", "1 / 4"), ("replays: int = 20, rounds: int = 5", "replays=1, rounds=1")]
ON_THE_CPU = [  # in eager mode
    ("torch.cuda.device_count()", "1"),
    ("torch.cuda.set_device(device)", "pass"),
    ('"nccl", device_id=device', '"gloo"'),
    ('    """The graph of step(x), and its result."""', "    return None, step(x)"),
    ("        graph.replay()\n        line", "        y, has_room = layer(x)\n        line"),
    ('graphs = {"layer": graph, "products": products, "all-to-alls": exchanges}', "graphs = {}"),
]


ONE_RANK = {
    "get_world_size": lambda: 1,
    "barrier": lambda: None,
    "all_to_all_single": lambda received, parts: received.copy_(parts),
}


def printed(*changes):
    """A dict for each capacity."""
    with a_group(**ONE_RANK):
        printed = printed_by("expert_parallel", *changes, smaller=SMALLER)
    return [json.loads(line) for line in printed.splitlines()]


def test_tokens_with_room_are_those_of_one_gpu():
    all_rows, few_rows = printed()
    assert all_rows["tokens with room"] == all_rows["equal"] == 5 * 24
    assert 0 < few_rows["tokens with room"] == few_rows["equal"] < 5 * 24


CHANGES = {  # on the stand-in, of a group of one: lines 3 and 4 exchange nothing there
    "1": ("spare = N_EXPERT * self.capacity", "spare = N_EXPERT * self.capacity - 1", "raises"),
    "2": ("x.new_zeros(spare + 1, N_EMBD)", "x.new_zeros(row.max() + 1, N_EMBD)", "raises"),
    "3": ("exchange(self.by_rank(buffer))", "self.by_rank(buffer)", "same"),
    "4": ("exchange(y.contiguous())", "y", "same"),
}


@pytest.mark.parametrize("number", CHANGES)
def test_without_a_line_it_ends_otherwise(number):
    *line, expected = CHANGES[number]
    assert ending(lambda: counted(printed(line)), counted(printed())) == expected


def counted(reports):
    return [(report["tokens with room"], report["equal"]) for report in reports]


def test_every_numbered_line_is_left_out():
    assert numbered_lines("expert_parallel") == list(CHANGES)


@pytest.mark.parametrize(
    "change",
    [
        ("y = self.run_experts(rows)", "y = rows"),
        ("choice * self.capacity + position", "choice * self.capacity"),
        ("static_x.copy_(x)", "static_x = x"),
    ],
)
def test_a_wrong_result_is_counted(change):
    all_rows, _ = printed(change)
    assert all_rows["equal"] < all_rows["tokens with room"]


@pytest.mark.weekly
@pytest.mark.parametrize(
    ("change", "right"),
    [
        ((), True),
        ([("rows.transpose(0, 1).flatten(1, 2)", "rows.view(2, -1, N_EMBD)")], False),
        ([CHANGES["3"][:2]], False),
        ([CHANGES["4"][:2]], False),
    ],
    ids=["as it is", "experts' rows mixed up", "not sent", "not sent back"],
)
def test_two_ranks_compute_what_one_gpu_does(tmp_path, change, right):
    file = tmp_path / "expert_parallel.py"
    smaller = [*SMALLER, (', device="cuda"', "")]
    file.write_text(changed("expert_parallel", *change, *ON_THE_CPU, smaller=smaller))
    lines = [json.loads(line) for line in printed_by_two_ranks(file) if line.startswith("{")]
    assert len(lines) == 4
    assert all((line["equal"] == line["tokens with room"]) == right for line in lines)
