"""Scenarios: a training step of several parts, and checkpoints
of a graph. Each raises Wrong with what it finds.
"""

import copy
from collections.abc import Callable
from functools import partial

import torch
from torch import nn
from torch.nn.functional import mse_loss
from torch.nn.utils import clip_grad_norm_

from course.answers.graph_use import EVERY_TIME_THE_FIRST, Wrong, close, copied, use
from course.scenarios.common import FILLED, TRAINED, few, perceptron
from helpers.capture import capture_step, unchanged

BOUND = 1.0  # the norm that the exercise clips to
ONCE = "Clip once, when the gradients of all parts are together."
UNCLIPPED = (
    "The gradients are not clipped: clip them between the last backward pass and the optimizer's "
    "step."
)
LAST = "The gradients are those of the last part: zero them once, before the first."
SUMMED = "The gradients of earlier steps are still in: zero them at the beginning of each step."
UNDIVIDED = "Divide the loss of each part by the number of parts."
DIVIDED_LATE = (
    "Divide the loss before backward(), not only in the sum: the gradients are too large."
)
FROZEN = "Every step uses the first rate: write the new one into the tensor that the graph reads."
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
    """Five batches of two to four parts, and a rate that changes from step to step.

    The first batch is nearly fitted, so its gradients stay
    below the bound of clipping, which hides their size.
    """
    net = perceptron(nn.Tanh())
    parts = few(2, 5)
    rows = few()
    rates = [0.1, 0.4, 0.02, 0.2, 0.04]
    batches = []
    for error in (0.1, 3.0, 3.0, 3.0, 3.0):
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
        SUMMED: lambda: run(rates, zero="never"),
        UNCLIPPED: lambda: run(rates, clip="never"),
        ONCE: lambda: run(rates, clip="part"),
        UNDIVIDED: lambda: run(rates, divide="nothing"),
        DIVIDED_LATE: lambda: run(rates, divide="sum"),
    }


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
