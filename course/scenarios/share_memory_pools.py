"""Scenario: graphs of several sizes in one pool. It raises Wrong with the symptom it finds."""

from collections.abc import Callable

import torch
from torch import nn

from course.answers.graph_use import EAGER, Wrong, copied, use, watch
from course.scenarios.common import few


def graphs_in_one_pool(answer: Callable) -> None:
    """One network for three numbers of rows, and requests of all three in mixed order."""
    net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3)).cuda()
    rows = [8, few(), 1]
    samples = [torch.randn(number, 4, device="cuda") for number in rows]
    order = [0, 1, 2, 1, 0, 2]
    requests = [torch.randn(rows[size], 4, device="cuda") for size in order]
    with torch.no_grad():
        expected = [net(request) for request in requests]
        with watch() as built:
            functions = answer(net, copied(samples))
        if not isinstance(functions, list | tuple) or len(functions) != 3:
            raise Wrong("A list of one function per sample is asked.")
        used = use(
            lambda size, request: functions[size](request), list(zip(order, requests, strict=True))
        )
    if not used.counts["graphs"]:
        raise Wrong(EAGER)
    if len(set(used.seen.replayed)) < 3:
        raise Wrong(
            "All functions replay the same graph: each must keep its own, so define it in a "
            "function."
        )
    used.gives(expected, {})
    used.replays(graphs=6, operators=12)
    if len({graph.pool() for graph in built.captured}) > 1:
        raise Wrong("Each graph has a pool of its own: give the later ones the pool of the first.")
