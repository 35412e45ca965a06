"""What a warm-up may leave behind."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from exercises.answers.tensors import are_equal, copy_tensors
from exercises.answers.wrong import Wrong
from exercises.scenarios.common import Runs

TRAINED = (
    "The warm-up trained the model.",
    "Put its weights back in place, before the first replay.",
)
DREW = ("The warm-up drew random numbers.", "Put the random state back, before the first replay.")
FILLED = ("The warm-up filled the optimizer's momentum.", "Put it back to zero in place.")
ANEW = (
    "Each replay makes the optimizer's state anew.",
    "A step of warm-up must make it before the capture.",
)


@contextmanager
def require_untrained(net: nn.Module) -> Iterator[None]:
    """Raises Wrong if the warm-up of the block has trained net."""
    before = copy_tensors(net.state_dict())
    yield
    if not are_equal(net.state_dict(), before):
        raise Wrong(TRAINED)


def require_no_momentum(optimizer: torch.optim.Optimizer) -> None:
    """Raises Wrong if the warm-up has left momentum."""
    if any(state["momentum_buffer"].count_nonzero() for state in optimizer.state.values()):
        raise Wrong(FILLED)


@contextmanager
def require_no_draws() -> Iterator[None]:
    """Raises Wrong if the warm-up of the block has drawn on the GPU."""
    before = torch.cuda.get_rng_state()
    yield
    if not are_equal(torch.cuda.get_rng_state(), before):
        raise Wrong(DREW)


def require_side_stream(streams: list) -> None:
    """Raises Wrong if a warm-up ran on the default stream."""
    if torch.cuda.default_stream() in streams:
        raise Wrong(
            "A warm-up ran on the default stream.",
            "AccumulateGrad may remember it, and the capture then fails with error 906: warm up on "
            "a side stream.",
        )


def record_passes(net: nn.Module) -> tuple[Runs, Runs]:
    """The forward passes of a network and its copies from now on: all of them, and those that
    autograd records.
    """
    every, recorded = Runs(net), Runs(net)

    def note(_, inputs, outputs):
        every.note()
        if outputs.requires_grad:
            recorded.note()

    net.register_forward_hook(note)
    return every, recorded


class Net(nn.Sequential):
    """Layers that count their runs outside of captures, and those of their copies. A hook could
    not: make_graphed_callables refuses a module that has one.
    """

    runs = 0

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """The output of the layers."""
        Net.runs += not torch.cuda.is_current_stream_capturing()
        return super().forward(inputs)
