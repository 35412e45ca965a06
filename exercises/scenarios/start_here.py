"""Scenario: a reader's first capture. Raises Wrong with the symptom it finds."""

from collections.abc import Callable

import torch

from cpu_graph.graphs import CUDAGraph
from exercises.answers.graph_use import EVERY_TIME_THE_FIRST, Wrong, close, copied, use
from exercises.scenarios.common import few

FREED = (
    "The graph reads memory that was freed: keep its static input as long as the graph, and write "
    "to it with copy_. An assignment such as `static_x = new_x` only rebinds the name."
)


def make_replay(answer: Callable) -> None:
    """A graph to repair, used as a graph of one's own."""
    graphed(answer)


def graphed(answer: Callable) -> None:
    """A function of one matrix, and five inputs; the sample is the first."""
    weight = torch.randn(4, 3, device="cuda")
    inputs = torch.randn(5, few(), 4, device="cuda")
    sample = inputs[0].clone()
    warm_ups = 0

    def function(x):
        nonlocal warm_ups
        warm_ups += not torch.cuda.is_current_stream_capturing()
        return torch.relu(x @ weight)

    expected = [function(x) for x in inputs]
    warm_ups = 0
    given = copied(sample)
    replay = answer(function, sample)
    warmed_up = warm_ups > 0
    used = use(replay, list(inputs))
    if not close(sample, given):
        raise Wrong("It overwrites the x that it was given: capture a clone of x.")
    used.replays(graphs=5, operators=10)
    device = CUDAGraph.stand_in  # only the stand-in can tell
    if device is not None and any("whose tensor is gone" in hint for hint in device.hints):
        raise Wrong(FREED)
    if not warmed_up:
        raise Wrong(
            "It captures without a warm-up: call function(x) once before the capture, because a "
            "first call may set up libraries, which a capture must not record."
        )
    used.gives(
        expected,
        {
            EVERY_TIME_THE_FIRST: [expected[0]] * 5,
            "Each result is that of the input before: copy first, then replay.": [
                expected[0],
                *expected[:-1],
            ],
        },
    )
