"""Scenarios: layers that keep scales between calls. Each raises Wrong with the symptom it finds."""

import copy
from collections.abc import Callable

import torch
from torch import nn

from course.scenarios.first_graphs import few
from course.symptoms import Wrong, close, copied, use

STEPS = 8  # an input is rounded to -8, ..., 8


class Scaled(nn.Module):
    """A layer with delayed scaling in plain PyTorch: scale () and history (3,) are buffers, the newest amax first."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.register_buffer("scale", torch.ones(()))
        self.register_buffer("history", torch.zeros(3))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """(rows, 4) to (rows, 3): rounds the inputs with the scale, and notes their amax in the history."""
        self.history[0].copy_(inputs.abs().max())
        rounded = (inputs * self.scale).round().clamp(-STEPS, STEPS)
        return self.layer(rounded / self.scale)

    def new_state(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Scale and history of the next call, as new tensors."""
        return STEPS / self.history.max(), self.history.roll(1)


def graph_scaled(answer: Callable) -> None:
    """A layer with delayed scaling, and six batches of different magnitudes."""
    layer, rows = Scaled().cuda(), few()
    batches = [magnitude * torch.randn(rows, 4, device="cuda") for magnitude in (0.5, 4, 1, 0.1, 0.1, 0.1)]
    twin, kept, before = copy.deepcopy(layer), (layer.scale, layer.history), copied(layer.state_dict())
    with torch.no_grad():
        frozen, expected = [twin(batch) for batch in batches], []
        twin.load_state_dict(before)
        for batch in batches:
            expected.append(twin(batch))
            twin.scale, twin.history = twin.new_state()
        run = answer(layer, batches[0].clone())
        if layer.scale is not kept[0] or layer.history is not kept[1]:
            raise Wrong("The layer has new tensors for its state: the graph goes on with the old. Write in place.")
        if not close(layer.state_dict(), before):
            raise Wrong("The warm-up moved scale and history: put them back in place, before the first replay.")
        used = use(run, batches)
    used.gives(expected, {"Every batch is rounded with the first scale: nothing moves the state.": frozen})
    if not close(layer.state_dict(), twin.state_dict()):
        raise Wrong("The results are right, but scale or history are not eager's afterwards.")
    used.replays(graphs=6, operators=18)
