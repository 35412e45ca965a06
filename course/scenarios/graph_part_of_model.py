"""Scenario: a graph of a part of a model. It raises Wrong with what it finds."""

import copy
from collections.abc import Callable

import torch
from torch import nn

from course.answers.graph_use import EAGER, Wrong, close, copied, watch
from course.scenarios.common import accumulated_gradients, draw_batches, few


class Decides(nn.Module):
    """A layer that reads a value, so that it cannot be captured."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 8)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """(rows, 4) to (rows, 8)."""
        hidden = self.layer(inputs)
        return hidden.sin() if hidden.sum().item() > 0 else hidden.cos()


def graph_middle(answer: Callable) -> None:
    """Three parts, of which the first reads a value; four passes, each compared with eager."""
    middle = nn.Sequential(*[nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(few(1, 4))])
    net = nn.Sequential(Decides(), middle, nn.Linear(8, 2)).cuda()
    twin, batches = copy.deepcopy(net), draw_batches(4)
    before = copied(net.state_dict())
    answered = answer(net, batches[0][0].clone())
    net = answered if isinstance(answered, nn.Module) else net
    if not close(list(net.parameters()), list(before.values())):
        raise Wrong("It changes weights.")
    for batch in batches:
        for module in (net, twin):
            module.zero_grad()
        expected = accumulated_gradients(twin, [batch])
        with watch() as seen:
            found = accumulated_gradients(net, [batch])
        _trains(found, expected, seen)


def _trains(found, expected, seen):
    """Raises Wrong unless all three parts get the right
    gradients, and the middle replays two graphs.
    """
    if not seen.replayed:
        raise Wrong(EAGER)
    if any(gradient is None for gradient in found[2:-2]):
        raise Wrong(
            "The graphed part gets no gradient: captured by hand, its forward pass has no backward."
        )
    if found[0] is None:
        raise Wrong(
            "The part before the graph gets no gradient and does not train: its sample must "
            "require one."
        )
    if len(seen.replayed) != 2:
        raise Wrong(
            f"{len(seen.replayed)} graphs were launched where one forward and one backward would "
            "do."
        )
    if not close(found, expected):
        raise Wrong(
            "The gradients are not eager's: does the sample have the shape of what the first part "
            "gives?"
        )
