"""Pinned memory that a graph reads: again at each replay, and after its tensor is gone."""

import torch

from tests.cpu_graph.conformance.common import captured, settled, zeros
from tests.cpu_graph.conformance.outcomes import program


def full(value):
    return torch.full((4096,), float(value)).pin_memory()


@program([1, 5])
def pinned_memory_is_read_again_by_each_replay():
    landing, x = full(1), zeros(4096)
    replay = captured(lambda: x.copy_(landing, non_blocking=True))
    first = int(settled(replay())[0])
    landing.fill_(5)
    return [first, int(settled(replay())[0])]


@program(3)
def memory_pinned_in_a_capture_stays_the_graphs():
    x = zeros(4096)
    replay = captured(lambda: x.copy_(full(3), non_blocking=True))
    others = [full(9) for _ in range(4)]
    return int(settled(replay())[0] + 0 * len(others))


@program(9)
def memory_pinned_before_a_capture_is_handed_on():
    landing, x = [full(3)], zeros(4096)
    replay = captured(lambda: x.copy_(landing[0], non_blocking=True))
    landing.clear()
    torch.cuda.synchronize()
    others = [full(9) for _ in range(4)]
    return int(settled(replay())[0] + 0 * len(others))


@program([7, 7])
def a_result_in_pinned_memory_is_written_by_each_replay():
    landing, x = full(0), zeros(4096).add_(7)
    replay = captured(lambda: landing.copy_(x, non_blocking=True))
    first = int(settled(replay())[0])
    landing.zero_()
    return [first, int(settled(replay())[0])]
