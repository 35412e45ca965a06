"""Scenarios: steps under DDP, in one process. DDP is a stand-in: what a second rank sends
is given.
"""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel

from exercises.answers.graph_use import call_answer, watch_graphs
from exercises.answers.tensors import are_close, copy_tensors
from exercises.answers.wrong import EVERY_TIME_THE_FIRST, Wrong
from exercises.scenarios.eager import draw_batches, perceptron
from exercises.scenarios.rules import refuse_grad, require_one_graph, unmodified
from exercises.scenarios.warm_ups import require_untrained

ALONE = (
    "Each rank trains alone: no gradient of the other rank arrived.",
    "The step is to call DDP, not the network.",
)
NO_SYNC = "Each rank trains alone: DDP ran in no_sync, which leaves the all-reduce out."
BUILT = (
    "DDP was built on the default stream, which no capture can take in: build it on a side stream."
)
TIMED = (
    "DDP read the timers of its step {}, as it does for the first ten: warm up for eleven steps."
)
GRAPHED_DDP = (
    "Each rank trains alone: no gradient of the other rank arrived.",
    "DDP prepares the all-reduce in its forward, and the graphs replace this forward: let DDP "
    "wrap the graphs.",
)
STEP_1_ALONE = ("The gradients of the other rank arrived in step 1 alone.", GRAPHED_DDP[1])
DECIDED_ALONE = (
    "Your rank took step 4, whose batch was bad on the other rank, so the "
    "ranks' weights differ from here on.",
    "Exchange what decides with the other ranks.",
)
NO_STEP = ("The weights do not move.", "Take the optimizer's step.")
COASTS = (
    "In a skipped step the weights still move, by the momentum of the steps before.",
    "Zero gradients are not enough: hold weights and momentum.",
)
MOMENTUM_LOST = (
    "A skipped step changes the momentum, which moves the weights later.",
    "Hold the momentum with the weights.",
)
MOMENTUM_TAKES = ("A skipped step adds its bad gradients to the momentum.", MOMENTUM_LOST[1])
ALWAYS_SKIPS = "Steps are skipped although no rank saw a bad batch."


@contextmanager
def pretend_second_rank(others: list[torch.Tensor]) -> Iterator[list]:
    """DDP averages with the gradients of a second rank, others, and refuses in a capture what the
    real one refuses.

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
        ddp.reductions = 0  # in captures
        ddp.aside = torch.cuda.current_stream() != torch.cuda.default_stream()
        for number, (parameter, other) in enumerate(zip(module.parameters(), others, strict=True)):
            parameter.register_post_accumulate_grad_hook(partial(_reduce, ddp, number, other))
        built.append(ddp)

    real = DistributedDataParallel
    with patch.object(real, "__init__", init), patch.object(real, "forward", _ddp_forward):
        yield built


def _ddp_forward(ddp, *inputs, **named):
    """Read the timers of the step before, where DDP does; await the gradients of this one."""
    ddp.unsynced |= not ddp.require_backward_grad_sync
    if torch.is_grad_enabled() and ddp.require_backward_grad_sync:
        if 0 < ddp.steps <= 10 or (ddp.steps and ddp.steps % 100 == 0):
            _raise_if_refused(ddp.timer.item, TIMED.format(ddp.steps))
        if not ddp.steps and torch.cuda.is_current_stream_capturing():
            raise Wrong("DDP takes its first step in the capture: warm up for eleven steps.")
        ddp.steps += 1
        ddp.reductions += torch.cuda.is_current_stream_capturing()
        ddp.awaited = set(range(len(list(ddp.module.parameters()))))
    return ddp.module(*inputs, **named)


def _reduce(ddp, number, other, parameter):
    """Average a parameter's gradient with the other rank's, if DDP awaits it."""
    if number not in ddp.awaited:
        return
    ddp.awaited.discard(number)
    if torch.cuda.is_current_stream_capturing() and not ddp.aside:
        _raise_if_refused(
            lambda: torch.cuda.default_stream().wait_stream(torch.cuda.current_stream()), BUILT
        )
    parameter.grad.add_(other).div_(2)


def _raise_if_refused(call, why):
    try:
        call()
    except RuntimeError as error:
        raise Wrong(f"{why} ({str(error).splitlines()[0]})") from error


def _ddp_losses(net, batches, gradients, rate=0.1, skipped=(), momentum=0.0, held="both", parts=1):
    """Losses of an eager training of a copy of net with SGD. gradients: for each
    step those of another rank, or None where nothing arrives from it. parts: micro-batches, whose
    mean loss is trained on.

    Skipped steps hold weights and momentum ("both"), the weights alone while the momentum takes
    the gradients ("weights") or zeros ("weights, zeros"), or only have zero gradients ("nothing").
    """
    net, losses = copy.deepcopy(net), []
    parameters = list(net.parameters())
    momenta = [torch.zeros_like(parameter) for parameter in parameters]
    for number, (inputs, targets) in enumerate(batches):
        micro_batches = [(inputs[part::parts], targets[part::parts]) for part in range(parts)]
        loss = torch.stack([mse_loss(net(x), y) for x, y in micro_batches]).mean()
        found = torch.autograd.grad(loss, parameters)
        losses.append(loss.detach())
        is_skipped = number in skipped
        if is_skipped and held == "both":
            continue
        others = gradients[number] or found
        with torch.no_grad():
            for parameter, buffer, own, other in zip(
                parameters, momenta, found, others, strict=True
            ):
                used = not is_skipped or held == "weights"
                buffer.mul_(momentum).add_((own + other) / 2 if used else 0)
                if not is_skipped or held == "nothing":
                    parameter -= rate * buffer
    return losses


def _draw_net_and_batches(steps):
    """A network, its batches, and a second rank's gradients: a place for one step's, and all."""
    net, batches = perceptron(nn.Tanh()), draw_batches(steps)
    others = [torch.zeros_like(parameter) for parameter in net.parameters()]
    return net, batches, others, [[torch.randn_like(other) for other in others] for _ in batches]


def _call_step(answer, drawn, *arguments, arrive=lambda number: None):
    """How the training step was used that the answer returns, the DDPs that it has built, and what
    it captured. drawn: see _draw_net_and_batches. arrive(number) is called as
    the other rank's gradients arrive.
    """
    net, batches, others, gradients = drawn
    sample = copy_tensors(batches[0])
    numbers = count()

    def step(*batch):
        number = next(numbers)
        torch._foreach_copy_(others, gradients[number])
        arrive(number)
        return train(*batch)

    with unmodified("x or y", sample, batches), pretend_second_rank(others) as built:
        with require_untrained(net), watch_graphs() as seen:
            train = answer(net, *sample, *arguments)
            if not built:
                raise Wrong("It builds no DistributedDataParallel.")
        return call_answer(step, batches), built, seen


@contextmanager
def _pretend_all_reduce(flag):
    """dist.all_reduce combines a flag with a second rank's: 1 where its batch is bad.

    A minimum or a product is taken as one of flags that say the opposite; a maximum of other
    numbers than 0 and 1 as one of losses, of which a bad one is infinite.
    """

    def all_reduce(tensor, op=dist.ReduceOp.SUM, group=None, async_op=False):
        good = op in (dist.ReduceOp.MIN, dist.ReduceOp.PRODUCT)
        theirs = (1 - flag if good else flag).to(tensor.dtype)
        if op == dist.ReduceOp.MAX and tensor.is_floating_point():
            is_flag = (tensor == 0) | (tensor == 1)
            theirs = torch.where(is_flag, theirs, torch.where(flag > 0, torch.inf, 0.0))
        if op in (dist.ReduceOp.MAX, dist.ReduceOp.MIN):
            tensor.copy_((torch.minimum if good else torch.maximum)(tensor, theirs))
        elif op == dist.ReduceOp.PRODUCT:
            tensor.mul_(theirs)
        else:
            tensor.add_(theirs)
        if op == dist.ReduceOp.AVG:
            tensor.div_(2)

    with (
        patch.object(dist, "all_reduce", all_reduce),
        patch.object(dist, "get_world_size", lambda group=None: 2),
        patch.object(dist, "get_rank", lambda group=None: 0),
    ):
        yield


def judge_accumulate_ddp(answer: Callable) -> None:
    """Two micro-batches, of which the second alone starts an all-reduce."""
    judge_capture_ddp(answer, parts=2)


def judge_capture_ddp(answer: Callable, parts: int = 1) -> None:
    """A network on five batches, beside a second rank whose gradients are drawn: forward, backward,
    one average of gradients and the update are one graph.
    """
    net, batches, others, gradients = drawn = _draw_net_and_batches(5)
    losses = partial(_ddp_losses, copy.deepcopy(net), parts=parts)
    expected = losses(batches, gradients)
    symptoms: dict[str | tuple[str, str], Callable] = {
        NO_STEP: lambda: losses(batches, gradients, rate=0.0),
        EVERY_TIME_THE_FIRST: lambda: losses(batches[:1] * 5, gradients),
    }
    used, built, seen = _call_step(answer, drawn)
    if any(ddp.reductions > 1 for ddp in built):
        raise Wrong(
            "Both micro-batches start an all-reduce in the graph, so the ranks average gradients "
            "twice per step.",
            "A replay runs no Python: no_sync belongs in the captured step, around the forward and "
            "backward pass of the first micro-batch.",
        )
    unsynced = NO_SYNC if any(ddp.unsynced for ddp in built) else ALONE
    symptoms[unsynced] = lambda: losses(batches, [None] * 5)
    used.require_results(expected, symptoms)
    refuse_grad(used.kept)
    used.require_launches(graphs=5, operators=15 + 5 * len(others))
    require_one_graph(seen)


def judge_graph_under_ddp(answer: Callable) -> None:
    """The same network; its forward and backward are two graphs, and the rest is eager."""
    net, batches, _, gradients = drawn = _draw_net_and_batches(5)
    expected = _ddp_losses(net, batches, gradients)
    losses = partial(_ddp_losses, copy.deepcopy(net))
    used, built, _ = _call_step(answer, drawn)
    alone = GRAPHED_DDP if any("forward" in vars(ddp) for ddp in built) else ALONE
    used.require_results(
        expected,
        {
            alone: lambda: losses(batches, [None] * 5),
            STEP_1_ALONE: lambda: losses(batches, gradients[:1] + [None] * 4),
            NO_STEP: lambda: losses(batches, gradients, rate=0.0),
        },
    )
    refuse_grad(used.kept)
    if used.counts["graphs"] == len(batches):
        raise Wrong(
            "The whole step is one graph.",
            "Here forward and backward are to be two graphs; DDP, its all-reduce and the optimizer "
            "stay eager.",
        )
    used.require_launches(graphs=10, operators=5 * 60)


def judge_skip_together(answer: Callable) -> None:
    """Six batches: the second and the fifth are bad on this rank, the fourth on the other."""
    net, batches, others, gradients = drawn = _draw_net_and_batches(6)
    batches[1] = (batches[1][0], 100 * batches[1][1])
    batches[4] = (batches[4][0], torch.full_like(batches[4][1], float("inf")))
    flag = torch.zeros((), device="cuda")
    losses = partial(_ddp_losses, copy.deepcopy(net), batches, gradients, momentum=0.9)
    with _pretend_all_reduce(flag):
        used, *_ = _call_step(answer, drawn, 50.0, arrive=lambda number: flag.fill_(number == 3))
    if are_close(used.given[:5], losses()[:5]):
        raise Wrong("No step is skipped.", "A bad batch on one rank is enough to skip.")
    if torch.is_tensor(used.given[5]) and used.given[5].isnan().any():
        raise Wrong(
            "After a batch whose loss is infinite the next loss is NaN.",
            "Its gradients reached the weights or the momentum: zero times infinity is NaN, and "
            "torch.where selects.",
        )
    used.require_results(
        losses(skipped={1, 3, 4}),
        {
            DECIDED_ALONE: lambda: losses(skipped={1, 4}),
            ALWAYS_SKIPS: lambda: losses(skipped=range(6)),
            COASTS: lambda: losses(skipped={1, 3, 4}, held="nothing"),
            MOMENTUM_LOST: lambda: losses(skipped={1, 3, 4}, held="weights, zeros"),
            MOMENTUM_TAKES: lambda: losses(skipped={1, 3, 4}, held="weights"),
        },
    )
    refuse_grad(used.kept)
    used.require_launches(graphs=6, operators=18 + 6 * (len(others) + 1))
