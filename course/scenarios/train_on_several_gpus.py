"""Scenario: a step under DDP, in one process. DDP is a
stand-in: the gradients of a second rank are given.
"""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from unittest.mock import patch

import torch
from torch import nn
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel

from course.answers.graph_use import EVERY_TIME_THE_FIRST, Wrong, close, copied, use
from course.scenarios.common import TRAINED, draw_batches, perceptron

ALONE = (
    "Each rank trains alone: no gradient of the other rank arrived, so the step is to call DDP, "
    "not the network."
)
NO_SYNC = "Each rank trains alone: DDP ran in no_sync, which leaves the all-reduce out."
UNMOVED = "The weights do not move: the optimizer's step belongs in the graph."
BUILT = (
    "DDP was built on the default stream, which no capture can take in: build it on a side stream."
)
TIMED = (
    "DDP read the timers of its step {}, as it does for the first ten: warm up for eleven steps."
)


@contextmanager
def two_ranks(others: list[torch.Tensor]) -> Iterator[list]:
    """DDP averages with the gradients of a second rank,
    others, and refuses in a capture what the real one refuses.

    Yields the list of the DDPs that the block builds.
    It knows forward, no_sync and gradients; no buckets.
    """
    built: list[DistributedDataParallel] = []

    def init(ddp, module, *_, **__):
        nn.Module.__init__(ddp)
        ddp.module, ddp.require_backward_grad_sync = module, True
        ddp.steps = 0
        ddp.awaited = set()
        ddp.timer = torch.zeros((), device="cuda")
        ddp.unsynced = False
        ddp.aside = torch.cuda.current_stream() != torch.cuda.default_stream()
        for number, (parameter, other) in enumerate(zip(module.parameters(), others, strict=True)):
            parameter.register_hook(
                lambda own, number=number, other=other: _reduced(ddp, number, own, other)
            )
        built.append(ddp)

    real = DistributedDataParallel
    with patch.object(real, "__init__", init), patch.object(real, "forward", _forward):
        yield built


def _forward(ddp, *inputs, **named):
    """Read the timers of the step before, where DDP does; await the gradients of this one."""
    ddp.unsynced |= not ddp.require_backward_grad_sync
    if torch.is_grad_enabled() and ddp.require_backward_grad_sync:
        if 0 < ddp.steps <= 10 or (ddp.steps and ddp.steps % 100 == 0):
            _refused(ddp.timer.item, TIMED.format(ddp.steps))
        ddp.steps += 1
        ddp.awaited = set(range(len(list(ddp.module.parameters()))))
    return ddp.module(*inputs, **named)


def _reduced(ddp, number, own, other):
    """A gradient, averaged with the other rank's, if DDP awaits it."""
    if number not in ddp.awaited:
        return own
    ddp.awaited.discard(number)
    if torch.cuda.is_current_stream_capturing() and not ddp.aside:
        _refused(
            lambda: torch.cuda.default_stream().wait_stream(torch.cuda.current_stream()), BUILT
        )
    return (own + other) / 2


def _refused(call, why):
    try:
        call()
    except RuntimeError as error:
        raise Wrong(f"{why} ({str(error).splitlines()[0]})") from error


def losses_of_rank(
    net: nn.Module, batches: list, gradients: list | None, rate: float = 0.1
) -> list:
    """Losses of an eager training of a copy of net, each
    gradient averaged with that of another rank, if given.
    """
    net, losses = copy.deepcopy(net), []
    parameters = list(net.parameters())
    for number, (inputs, targets) in enumerate(batches):
        loss = mse_loss(net(inputs), targets)
        found = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for place, (parameter, own) in enumerate(zip(parameters, found, strict=True)):
                parameter -= rate * ((own + gradients[number][place]) / 2 if gradients else own)
        losses.append(loss.detach())
    return losses


def capture_ddp(answer: Callable) -> None:
    """A network on five batches, beside a second rank whose gradients are drawn."""
    net, batches = perceptron(nn.Tanh()), draw_batches(5)
    others = [torch.zeros_like(parameter) for parameter in net.parameters()]
    gradients = [[torch.randn_like(other) for other in others] for _ in batches]
    before, expected = copied(net.state_dict()), losses_of_rank(net, batches, gradients)
    losses = partial(losses_of_rank, copy.deepcopy(net))
    symptoms = {
        UNMOVED: lambda: losses(batches, gradients, rate=0.0),
        EVERY_TIME_THE_FIRST: lambda: losses(batches[:1] * 5, gradients),
    }
    with two_ranks(others) as built:
        train = answer(net, *copied(batches[0]))
        if not built:
            raise Wrong("It builds no DistributedDataParallel.")
        if not close(net.state_dict(), before):
            raise Wrong(TRAINED)
        coming = iter(gradients)

        def step(*batch):
            torch._foreach_copy_(others, next(coming))
            return train(*batch)

        used = use(step, batches)
    unsynced = NO_SYNC if any(ddp.unsynced for ddp in built) else ALONE
    used.gives(expected, {unsynced: lambda: losses(batches, None)} | symptoms)
    used.replays(graphs=5, operators=15 + 5 * len(others))
