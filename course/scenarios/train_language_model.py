"""Scenarios: accumulation, a scheduler, a checkpoint that is
loaded into a graph, prefetching. Each raises Wrong with what it finds.
"""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from unittest.mock import patch

import torch
from torch import nn
from torch.nn.functional import mse_loss
from torch.nn.utils import clip_grad_norm_
from torch.optim.lr_scheduler import LambdaLR

from course.answers.graph_use import EVERY_TIME_THE_FIRST, Used, Wrong, close, copied, use
from course.scenarios.common import FILLED, TRAINED, draw_batches, few, losses_of, perceptron
from cpu_graph.graphs import CUDAGraph
from cpu_graph.nodes import Node
from cpu_graph.order import Order
from helpers.capture import capture_step, unchanged

BOUND = 1.0  # the norm that the exercise clips to
ONCE = "Clip once, when the gradients of all micro-batches are added up."
UNCLIPPED = (
    "The gradients are not clipped: clip them between the last backward pass and the optimizer's "
    "step."
)
LAST = "The gradients are those of the last micro-batch: zero them once, before the first."
SUMMED = "The gradients of earlier steps are still in: zero them at the beginning of each step."
UNDIVIDED = "Divide the loss of each micro-batch by the number of micro-batches."
DIVIDED_LATE = (
    "Divide the loss before backward(), not only in the sum: the gradients are too large."
)
FROZEN = "Every step uses the first rate: write the new one into the tensor that the graph reads."
STAYS = (
    "Every step uses the first learning rate: call scheduler.step() after each replay, outside of "
    "the graph."
)
EARLY = "Each step uses the rate of the next one: call scheduler.step() after the replay."
INSIDE = (
    "The schedule has moved on during warm-up and capture: scheduler.step() is Python, and a graph "
    "does not replay it. Call it after each replay."
)
RECAPTURED = (
    "It captures {} graphs for {} steps: one is enough. The scheduler writes each learning rate "
    "into the tensor that the graph reads."
)
ONE_TOO_FAR = (
    "The results are those of the following batches: copy them into a second buffer, not into the "
    "static input, and wait for the copy before you use it."
)
BEHIND = "Each result is that of the batch before: copy the loaded batch into the static input."
AFTER_THE_REPLAY = (
    "The copy of the following batch waits for the replay: let the copy stream wait before the "
    "replay is launched."
)
BEFORE_THE_REPLAY = (
    "The replay waits for a copy from pinned memory: copy the batch that the call gets, on its own "
    "stream, and wait for it in the next call."
)
ALWAYS_THE_FIRST = (
    "Every result is that of the first batch: in each call wait for the copy stream, then copy the "
    "second buffer into the static batch. The copy stream waits before it writes there again."
)
NEW_LR = "The optimizer has a new tensor for its learning rate, and the graph reads the old one."
NO_COPY = "The following batch is not copied from pinned memory in the call that gets it."
MOVED = (
    "The network has new weights, and the graph goes on with the old ones: copy into those that "
    "are there."
)
REPLACED = (
    "The optimizer has new tensors, and the graph goes on with the old ones: copy into those that "
    "are there."
)

NAMES = {
    "weights": "weights",
    "averages": "optimizer's averages",
    "steps": "optimizer's counts of steps",
}


def momentum(net: nn.Module, rate: float) -> tuple[torch.optim.Optimizer, torch.Tensor]:
    """SGD with a memory, and its learning rate in a tensor."""
    rate = torch.tensor(rate, device="cuda")
    return torch.optim.SGD(net.parameters(), rate, momentum=0.9, fused=True), rate


def train(
    net: nn.Module,
    batches: list,
    rates: list,
    zero: str = "step",
    clip: str = "step",
    divide: str = "loss",
) -> list:
    """The losses of an eager training of a copy of net.
    zero, clip: once for each "step" or "part", or "never".

    divide by the number of parts: each part's "loss",
    only the "sum" that is returned, or "nothing".
    """
    net, losses = copy.deepcopy(net), []
    (optimizer, tensor), weights = momentum(net, 0.0), list(net.parameters())
    for (inputs, targets), rate in zip(batches, rates, strict=True):
        tensor.fill_(rate)
        if zero == "step":
            optimizer.zero_grad()
        of_parts = []
        for pair in zip(inputs, targets, strict=True):
            if zero == "part":
                optimizer.zero_grad()
            loss = mse_loss(net(pair[0]), pair[1]) / (len(inputs) if divide == "loss" else 1)
            loss.backward()
            of_parts.append(loss.detach() / (len(inputs) if divide == "sum" else 1))
            if clip == "part":
                clip_grad_norm_(weights, BOUND)
        if clip == "step":
            clip_grad_norm_(weights, BOUND)
        optimizer.step()
        losses.append(torch.stack(of_parts).sum())
    return losses


def accumulating_step(answer: Callable) -> None:
    """Five batches of two to four micro-batches, and a rate that changes from step to step.

    The first two are nearly fitted, so their gradients stay
    below the bound of clipping, which hides their size.
    """
    net = perceptron(nn.Tanh())
    parts = few(2, 5)
    rows = few()
    rates = [0.4, 0.1, 0.02, 0.2, 0.04]
    batches = []
    for error in (0.2, 0.2, 3.0, 3.0, 3.0):
        inputs = 3 * torch.randn(parts, rows, 4, device="cuda")
        noise = error * torch.randn(parts, rows, 2, device="cuda")
        batches.append((inputs, net(inputs).detach() + noise))
    start = copy.deepcopy(net)
    expected, before = train(net, batches, rates), copied(net.state_dict())
    optimizer, rate = momentum(net, rates[0])
    step = answer(net, optimizer, rate, *copied(batches[0]))
    if not close(net.state_dict(), before):
        raise Wrong(TRAINED)
    if any(state["momentum_buffer"].count_nonzero() for state in optimizer.state.values()):
        raise Wrong(FILLED)
    requests = [(*batch, new) for batch, new in zip(batches, rates, strict=True)]
    used = use(step, requests)
    used.gives(expected, mistakes(start, batches, rates))
    used.replays(graphs=5, operators=30)


def mistakes(net: nn.Module, batches: list, rates: list) -> dict[str, Callable[[], list]]:
    """What is wrong with a training step -> a function that gives the losses that it leads to."""
    run = partial(train, net, batches)
    return {
        EVERY_TIME_THE_FIRST: lambda: train(net, batches[:1] * 5, rates),
        FROZEN: lambda: run(rates[:1] * 5),
        LAST: lambda: run(rates, zero="part"),
        UNCLIPPED: lambda: run(rates, clip="never"),
        ONCE: lambda: run(rates, clip="part"),
        UNDIVIDED: lambda: run(rates, divide="nothing"),
        DIVIDED_LATE: lambda: run(rates, divide="sum"),
        SUMMED: lambda: run(rates, zero="never"),
    }


def scheduled_losses(answer: Callable) -> None:
    """Adam in a graph, with a PyTorch scheduler that halves the learning rate step by step."""
    net = perceptron(nn.Tanh())
    batches = draw_batches(few(6, 8))
    count = len(batches)
    lr = 0.1
    rates = [lr / 2**number for number in range(count)]
    own = copy.deepcopy(net)
    lr_tensor = torch.tensor(lr, device="cuda")
    optimizer = torch.optim.Adam(own.parameters(), lr=lr_tensor, capturable=True)
    scheduler = LambdaLR(optimizer, lambda number: 0.5**number)
    losses = partial(losses_of, net, torch.optim.Adam, batches)
    expected = losses(rates)
    used = use(
        lambda *given: list(answer(*given)), [(own, optimizer, scheduler, batches)], what="It"
    )
    found = used.given[0]
    if len(found) != count:
        raise Wrong(f"It gives {len(found)} losses for {count} batches.")
    scheduled_once(used, scheduler, lr_tensor)
    if close(found, found[-1:] * count):
        raise Wrong("Your first loss is the last one's memory: clone it.")
    if used.seen.captured and not close(found[0], expected[0]):
        raise Wrong("The first loss is not eager's. " + TRAINED)
    symptoms: dict[str, Callable[[], list]] = {
        EVERY_TIME_THE_FIRST: lambda: losses_of(net, torch.optim.Adam, batches[:1] * count, rates),
        STAYS: partial(losses, rates[:1] * count),
        EARLY: partial(losses, [*rates[1:], lr / 2**count]),
    }
    Used(found, found, used.counts, used.seen).gives(expected, symptoms)
    used.seen.captured.clear()
    used.replays(graphs=count, operators=10**6)


def scheduled_once(used: Used, scheduler: LambdaLR, lr_tensor: torch.Tensor) -> None:
    """Raises Wrong for several graphs, a new tensor for the rate, or a schedule that ran ahead."""
    count = len(used.given[0])
    captured = len(used.seen.captured)
    if captured > 1:
        raise Wrong(RECAPTURED.format(captured, count))
    if captured and scheduler.optimizer.param_groups[0]["lr"] is not lr_tensor:
        raise Wrong(NEW_LR)
    if scheduler.last_epoch not in (0, count - 1, count):
        raise Wrong(INSIDE)


def checkpoints(answer: Callable) -> None:
    """A graph that trains a network with dropout by Adam: saved once, and taken up again twice."""
    net, inputs = perceptron(nn.Dropout(0.5)), torch.randn(few(4, 9), 4, device="cuda")
    optimizer = torch.optim.Adam(net.parameters(), 0.05, capturable=True)

    def step():
        optimizer.zero_grad()
        loss = net(inputs).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    with unchanged(net, optimizer):
        replay = capture_step(step)
    known = known_to(net, optimizer)
    pair = answer(net, optimizer)
    if not isinstance(pair, tuple | list) or len(pair) != 2 or not all(map(callable, pair)):
        raise Wrong("Two functions are asked: return save, load.")
    save, load = pair
    four_losses(replay)
    saved, right = save(), copied(known)
    straight = four_losses(replay)
    for _ in range(2):
        load(saved)
        judge(net, optimizer, known, right)
        if not close(four_losses(replay), straight):
            raise Wrong(
                "Dropout draws other numbers than after the checkpoint: save the random state, and "
                "set it."
            )


def prefetching(answer: Callable) -> None:
    """A network on batches in pinned memory, each copied during the replay for the one before."""
    net, rows = perceptron(nn.Tanh()), few()
    batches = [torch.randn(rows, 4).pin_memory() for _ in range(6)]
    with torch.no_grad():
        expected = [net(batch.cuda()) for batch in batches]
    step = answer(net, batches[0])
    if not callable(step):
        use(step, [])
    calls: list[list] = []

    def noted(following):
        with launched() as seen:
            result = step(following)
        calls.append(seen)
        return result

    used = use(noted, batches[1:])
    if any(close(used.given[0], later) for later in expected[1:]):
        raise Wrong(ONE_TOO_FAR)
    used.gives(
        expected[:-1],
        {
            ALWAYS_THE_FIRST: expected[:1] * 5,
            ONE_TOO_FAR: expected[1:],
            BEHIND: [expected[0], *expected[:-2]],
        },
    )
    used.replays(graphs=5, operators=20)
    if CUDAGraph.stand_in is not None:
        for seen in calls:
            runs_beside(seen)


@contextmanager
def launched() -> Iterator[list]:
    """The launches of the block on the stand-in, each with whether it belongs to a replay."""
    seen: list[tuple] = []
    replaying = []
    enter, replay = Order.enter, torch.cuda.CUDAGraph.replay

    def entered(order, node):
        seen.append((node, bool(replaying)))
        return enter(order, node)

    def replayed(graph):
        replaying.append(graph)
        try:
            return replay(graph)
        finally:
            replaying.pop()

    watched_replay = patch.object(torch.cuda.CUDAGraph, "replay", replayed)
    with patch.object(Order, "enter", entered), watched_replay:
        yield seen


def runs_beside(seen: list) -> None:
    """Raises Wrong unless nothing orders a call's copy from pinned memory and its replay."""
    replay = [node for node, in_graph in seen if in_graph]
    copies = [node for node, in_graph in seen if not in_graph and _from_pinned(node)]
    if not copies:
        raise Wrong(NO_COPY)
    for copy_node in copies:
        if any(node.before(copy_node.clock) for node in replay):
            raise Wrong(AFTER_THE_REPLAY)
        if any(copy_node.before(node.clock) for node in replay):
            raise Wrong(BEFORE_THE_REPLAY)


def _from_pinned(node: Node) -> bool:
    return any(block.kind == "pinned" and not writes for (block, *_), writes in node.spans.items())


def four_losses(replay: Callable) -> list:
    """The losses of the next four steps."""
    return [replay().clone() for _ in range(4)]


def known_to(net: nn.Module, optimizer: torch.optim.Optimizer) -> dict:
    """The tensors that a graph of a training step knows."""
    states = list(optimizer.state.values())
    return {
        "weights": list(net.parameters()),
        "averages": [value for state in states for key, value in state.items() if key != "step"],
        "steps": [state["step"] for state in states],
    }


def judge(net: nn.Module, optimizer: torch.optim.Optimizer, known: dict, right: dict) -> None:
    """Raises Wrong unless the tensors that the graph
    knows are still in use, and hold what is right.
    """
    now = known_to(net, optimizer)
    for what, message in (("weights", MOVED), ("averages", REPLACED), ("steps", REPLACED)):
        if [id(tensor) for tensor in now[what]] != [id(tensor) for tensor in known[what]]:
            raise Wrong(message)
        if not close(known[what], right[what]):
            raise Wrong(
                f"The {NAMES[what]} are not those of the checkpoint: save clones, and copy them "
                "into place."
            )
