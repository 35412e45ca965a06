"""Experts on one rank of the stand-in, whose all-to-all is a copy; *Capture a mixture of experts*
records those of several ranks.
"""

import json

from tests.support.scripts import printed_by, single_process_group

SMALLER = [("TOKENS = 1024", "TOKENS = 24"), ("(1024, 160)", "(24, 3)")]
SMALLER += [("N_EMBD = 1024", "N_EMBD = 16"), ("N_EXPERT = 16", "N_EXPERT = 4")]
SMALLER += [("1 / 32", "1 / 4"), ("replays: int = 20, rounds: int = 5", "replays=1, rounds=1")]
ONE_RANK = {
    "get_world_size": lambda: 1,
    "barrier": lambda: None,
    "all_to_all_single": lambda received, parts: received.copy_(parts),
}


def test_tokens_with_room_are_those_of_one_gpu():
    with single_process_group(**ONE_RANK):
        printed = printed_by("expert_parallel", smaller=SMALLER)
    all_rows, few_rows = map(json.loads, printed.splitlines())
    assert all_rows["tokens with room"] == all_rows["equal"] == 5 * 24
    assert 0 < few_rows["tokens with room"] == few_rows["equal"] < 5 * 24
