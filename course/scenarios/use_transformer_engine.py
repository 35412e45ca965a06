"""Scenarios: layers that keep scales between calls. Each raises Wrong with the symptom it finds."""

import copy
from collections.abc import Callable

import torch
from torch import nn

from course.answers.graph_use import Wrong, close, copied, use
from course.scenarios.common import few

FROZEN = "Every batch is rounded with the first scale: nothing moves the state."
FORGETS = "The scale moves, but the history does not: write both."
EARLY = "The state moves before the call, at first from an empty history: move it after the call."
STEPS = 8  # an input is rounded to -8, ..., 8


class Scaled(nn.Module):
    """A layer with delayed scaling in plain PyTorch: scale ()
    and history (3,) are buffers, the newest amax first.
    """

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.register_buffer("scale", torch.ones(()))
        self.register_buffer("history", torch.zeros(3))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """(rows, 4) to (rows, 3): rounds the inputs with
        the scale, and notes their amax in the history.
        """
        self.history[0].copy_(inputs.abs().max())
        rounded = (inputs * self.scale).round().clamp(-STEPS, STEPS)
        return self.layer(rounded / self.scale)

    def new_state(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Scale and history of the next call, as new tensors."""
        return STEPS / self.history.max(), self.history.roll(1)


def results(
    layer: Scaled, batches: list, moves: tuple = ("scale", "history"), early: bool = False
) -> list:
    """Outputs of layer, which moves that much of its state after each call; before it, if early."""
    found = []
    for batch in batches:
        outputs = None if early else layer(batch)
        for name, new in zip(("scale", "history"), layer.new_state(), strict=True):
            if name in moves:
                setattr(layer, name, new)
        found.append(layer(batch) if early else outputs)
    return found


def graph_scaled(answer: Callable) -> None:
    """A layer with delayed scaling, and six batches of different magnitudes."""
    layer, rows = Scaled().cuda(), few()
    batches = [
        magnitude * torch.randn(rows, 4, device="cuda") for magnitude in (0.5, 4, 1, 0.1, 0.1, 0.1)
    ]
    twin = copy.deepcopy(layer)
    kept = (layer.scale, layer.history)
    before = copied(layer.state_dict())
    with torch.no_grad():
        symptoms = {
            FROZEN: results(copy.deepcopy(layer), batches, moves=()),
            FORGETS: results(copy.deepcopy(layer), batches, moves=("scale",)),
            EARLY: results(copy.deepcopy(layer), batches, early=True),
        }
        expected, run = results(twin, batches), answer(layer, batches[0].clone())
        if layer.scale is not kept[0] or layer.history is not kept[1]:
            raise Wrong(
                "The layer has new tensors for its state: the graph goes on with the old. Write in "
                "place."
            )
        if not close(layer.state_dict(), before):
            raise Wrong(
                "The warm-up moved scale and history: put them back in place, before the first "
                "replay."
            )
        used = use(run, batches)
    used.gives(expected, symptoms)
    if not close(layer.state_dict(), twin.state_dict()):
        raise Wrong("The results are right, but scale or history are not eager's afterwards.")
    used.replays(graphs=6, operators=18)
