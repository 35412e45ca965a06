"""Scenario: a graph only where it pays. It raises Wrong with the symptom it finds."""

from collections.abc import Callable

import torch
from torch import nn

from course.answers.graph_use import EVERY_TIME_THE_FIRST, Wrong, copied, use, watch
from course.scenarios.common import few


def graph_if_it_pays(answer: Callable) -> None:
    """A network, with numbers of calls and times for which
    a graph pays and others for which it does not.
    """
    net = nn.Linear(4, 3).cuda().requires_grad_(False)
    batches = list(torch.randn(4, few(), 4, device="cuda"))
    expected = list(map(net, batches))
    cases = [
        (100, 50.0, 10.0, 3000.0),
        (70, 50.0, 10.0, 3000.0),
        (10**6, 50.0, 50.0, 1.0),
        (2, 9000.0, 10.0, 3000.0),
    ]
    for calls, eager_us, graph_us, capture_us in cases:
        pays = capture_us + calls * graph_us < calls * eager_us
        with watch() as built:
            function = answer(net, copied(batches[0]), calls, eager_us, graph_us, capture_us)
        case = (
            f"{calls} calls, {eager_us:g} µs eager, {graph_us:g} µs as a graph, {capture_us:g} µs "
            "for the capture"
        )
        if built.captured and not pays:
            raise Wrong(f"A capture costs more here than its replays save ({case}): stay eager.")
        used = use(function, batches)
        if pays and not built.captured and not used.seen.captured:
            raise Wrong(f"A graph pays here, and it stays eager ({case}).")
        used.gives(expected, {EVERY_TIME_THE_FIRST: expected[:1] * 4})
        if pays:
            used.replays(graphs=4, operators=8)
        elif used.counts["graphs"] or used.seen.captured:
            raise Wrong(f"It captures in the first call, where a graph does not pay ({case}).")
