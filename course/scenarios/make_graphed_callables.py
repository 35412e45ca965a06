"""Scenario: a graphed model that accumulates gradients. It raises Wrong with what it finds."""

import copy
from collections.abc import Callable

from torch import nn

from course.answers.graph_use import EAGER, Wrong, close, copied, watch
from course.scenarios.common import accumulated_gradients, draw_batches


def graph_for_accumulation(answer: Callable) -> None:
    """A model with batch normalisation, and an ordinary
    loop of three steps with two micro-batches each.
    """
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2)).cuda()
    twin, batches = copy.deepcopy(net), draw_batches(6)
    before = copied(net.state_dict())
    graphed = answer(net, batches[0][0].clone())
    if not isinstance(graphed, nn.Module):
        raise Wrong(f"The graphed module is to be returned, not a {type(graphed).__name__}.")
    if not close(graphed.state_dict(), before):
        raise Wrong(
            "The warm-up moved the running statistics of batch normalisation: put the buffers back "
            "in place."
        )
    for pair in (batches[:2], batches[2:4], batches[4:]):
        for module in (graphed, twin):
            module.zero_grad(set_to_none=False)
        expected = accumulated_gradients(twin, pair)
        with watch() as seen:
            found = accumulated_gradients(graphed, pair)
        _added(found, expected, seen)
    if not close(graphed.state_dict(), twin.state_dict()):
        raise Wrong("The running statistics are not eager's after the training.")


def _added(found, expected, seen):
    """Raises Wrong unless the gradients of two graphed passes are those of two eager ones."""
    if not seen.replayed:
        raise Wrong(f"{EAGER} A graphed module replays in the mode that it was graphed in.")
    if any(gradient is None for gradient in found):
        raise Wrong("A parameter has no gradient.")
    if not close(found, expected):
        raise Wrong(
            "The second micro-batch wrote over the first one's gradient: .grad was None, and "
            "became the graph's own "
            "memory. Give every parameter a .grad of zeros beforehand."
        )
