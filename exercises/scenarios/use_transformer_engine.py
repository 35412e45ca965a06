"""Scenarios: layers that keep scales between calls."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import nn

from exercises.answers.graph_use import call_answer
from exercises.answers.tensors import are_close, copy_tensors
from exercises.answers.wrong import Wrong
from exercises.scenarios.common import draw_int
from exercises.scenarios.rules import unmodified

FROZEN = (
    "Every batch is rounded with the first scale.",
    "No replay updates the state: the update must be in the captured step.",
)
FORGETS = ("The scale moves, but the history does not.", "Write both.")
EARLY = (
    "The state moves before the call, at first from an empty history.",
    "Update it after the call.",
)
ALWAYS = "Every call rounds the weights: the capture kept the branch of is_first_microbatch=True."
NEVER = "No call rounds the weights: the capture kept the branch of is_first_microbatch=False."
ROUNDED = "The warm-up rounded the weights: put layer.rounded back, before the first replay."
FIRST = (False, True, False, True, True, False)  # is_first_microbatch of each call
STEPS = 8  # an input is rounded to -8, ..., 8


class Scaled(nn.Module):
    """A layer with delayed scaling in plain PyTorch: scale () and history (3,) are buffers, the
    newest amax first.
    """

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.register_buffer("scale", torch.ones(()))
        self.register_buffer("history", torch.zeros(3))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """(rows, 4) to (rows, 3): rounds the inputs with the scale, and notes their amax in the
        history.
        """
        self.history[0].copy_(inputs.abs().max())
        rounded = (inputs * self.scale).round().clamp(-STEPS, STEPS)
        return self.layer(rounded / self.scale)

    def new_state(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Scale and history of the next call, as new tensors."""
        return STEPS / self.history.max(), self.history.roll(1)


def _outputs_moving_state(layer, batches, moves=("scale", "history"), early=False):
    """Outputs of layer, which moves that much of its state after each call; before it, if early."""
    found = []
    for batch in batches:
        outputs = None if early else layer(batch)
        for name, new in zip(("scale", "history"), layer.new_state(), strict=True):
            if name in moves:
                setattr(layer, name, new)
        found.append(layer(batch) if early else outputs)
    return found


@contextmanager
def autocast(layer: Scaled) -> Iterator[None]:
    """Its exit updates scale and history of layer in place."""
    yield
    scale, history = layer.new_state()
    layer.scale.copy_(scale)
    layer.history.copy_(history)


def judge_graph_autocast(answer: Callable) -> None:
    """The same layer with an autocast."""
    judge_graph_scaled(lambda layer, inputs: answer(layer, autocast, inputs))


def judge_graph_scaled(answer: Callable) -> None:
    """A layer whose new state are new tensors, and six batches of different magnitudes."""
    layer, rows = Scaled().cuda(), draw_int()
    batches = [
        magnitude * torch.randn(rows, 4, device="cuda") for magnitude in (0.5, 4, 1, 0.1, 0.1, 0.1)
    ]
    twin = copy.deepcopy(layer)
    kept = (layer.scale, layer.history)
    before = copy_tensors(layer.state_dict())
    with torch.no_grad():
        symptoms = {
            FROZEN: _outputs_moving_state(copy.deepcopy(layer), batches, moves=()),
            FORGETS: _outputs_moving_state(copy.deepcopy(layer), batches, moves=("scale",)),
            EARLY: _outputs_moving_state(copy.deepcopy(layer), batches, early=True),
        }
        sample = batches[0].clone()
        expected = _outputs_moving_state(twin, batches)
        run = answer(layer, sample)
        if layer.scale is not kept[0] or layer.history is not kept[1]:
            raise Wrong(
                "The layer has new tensors for its state, but the graph still reads the old ones.",
                "Write in place.",
            )
        if not are_close(layer.state_dict(), before):
            raise Wrong(
                "Before the first replay, scale and history are no longer the layer's.",
                "The warm-up moved them: restore them in place.",
            )
        with unmodified("inputs", sample, batches):
            used = call_answer(run, batches)
    used.require_results(expected, symptoms)
    if not are_close(layer.state_dict(), twin.state_dict()):
        raise Wrong(
            "The results are right, but scale or history are not the eager ones afterwards."
        )
    used.require_launches(graphs=6, operators=18)


class CachedLinear(nn.Module):
    """A linear layer, 4 to 3, that multiplies with a rounded copy of its weight and keeps it."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 4))
        self.register_buffer("rounded", (4 * self.weight.detach()).round() / 4)

    def forward(self, inputs: torch.Tensor, is_first_microbatch: bool) -> torch.Tensor:
        """(rows, 4) to (rows, 3): rounds the weight anew only if is_first_microbatch."""
        if is_first_microbatch:
            self.rounded.copy_((4 * self.weight).round() / 4)
        return inputs @ self.rounded.T


def microbatch_calls(
    layer: CachedLinear, batches: list, flags: tuple, changes: list
) -> Iterator[tuple]:
    """The arguments of each call; before each, the weight changes in place."""
    for batch, flag, change in zip(batches, flags, changes, strict=True):
        layer.weight.add_(change)
        yield batch, flag


def outputs_of(layer: CachedLinear, batches: list, flags: tuple, changes: list) -> list:
    """Outputs of a copy of layer in eager."""
    layer = copy.deepcopy(layer)
    return [layer(*call) for call in microbatch_calls(layer, batches, flags, changes)]


def judge_graph_microbatches(answer: Callable) -> None:
    """Six calls, half of them first microbatches; the weight changes before each."""
    rows, count = draw_int(), len(FIRST)
    with torch.no_grad():
        layer = CachedLinear().cuda()
        layer.weight.add_(1)  # from now on, rounding would change the copy
        batches = [torch.randn(rows, 4, device="cuda") for _ in FIRST]
        changes = [torch.randn(3, 4, device="cuda") for _ in FIRST]
        expected = outputs_of(layer, batches, FIRST, changes)
        early = copy.deepcopy(layer)
        early(batches[0], True)
        symptoms = {
            ALWAYS: outputs_of(layer, batches, (True,) * count, changes),
            NEVER: outputs_of(layer, batches, (False,) * count, changes),
            ROUNDED: outputs_of(early, batches, FIRST, changes),
        }
        kept, weight = layer.rounded, layer.weight.clone()
        sample = batches[0].clone()
        run = answer(layer, sample)
        if layer.rounded is not kept or not are_close(layer.weight, weight):
            raise Wrong("layer.rounded is a new tensor, or the weight has changed: keep both.")
        with unmodified("inputs", sample, batches):
            used = call_answer(run, microbatch_calls(layer, batches, FIRST, changes))
    used.require_results(expected, symptoms)
    used.require_only_replays()
    if len(used.seen.replayed) < count:
        raise Wrong("Some calls replay nothing: capture both kinds of call.")
    if used.counts["operators"] > 3 * count:
        raise Wrong("The weights are rounded outside of a graph: let a replay do that too.")
