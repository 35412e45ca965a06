"""Scenarios: accumulation, a checkpoint that is loaded into a graph."""

import copy
from collections.abc import Callable
from functools import partial

import torch
from torch import nn
from torch.nn.functional import mse_loss
from torch.nn.utils import clip_grad_norm_

from exercises.answers.graph_use import call_answer
from exercises.answers.tensors import are_close, copy_tensors
from exercises.answers.wrong import EVERY_TIME_THE_FIRST, Wrong
from exercises.scenarios.common import as_functions, draw_int
from exercises.scenarios.eager import perceptron
from exercises.scenarios.rules import refuse_grad, unmodified
from exercises.scenarios.warm_ups import require_no_momentum, require_untrained
from helpers.capture import capture_step, unchanged

BOUND = 1.0  # the norm that the exercise clips to
ONCE = "Clip once, when the gradients of all micro-batches are added up."
UNCLIPPED = (
    "The gradients are not clipped: clip them between the last backward "
    "pass and the optimizer's step."
)
LAST = "The gradients are those of the last micro-batch: zero them once, before the first."
SUMMED = "The gradients of earlier steps are still in: zero them at the beginning of each step."
UNDIVIDED = "Divide the loss of each micro-batch by the number of micro-batches."
DIVIDED_LATE = (
    "Divide the loss before backward(), not only in the sum: the gradients are too large."
)
FROZEN = "Every step uses the first rate: write the new one into the tensor that the graph reads."
RATE_BEFORE = "Each step uses the rate of the step before: write the new one before the replay."
AVERAGES = ("exp_avg", "exp_avg_sq")  # of Adam


def make_sgd(net: nn.Module, rate: float) -> tuple[torch.optim.Optimizer, torch.Tensor]:
    """SGD with a memory, and its learning rate in a tensor."""
    rate = torch.tensor(rate, device="cuda")
    return torch.optim.SGD(net.parameters(), rate, momentum=0.9, fused=True), rate


def _sgd_losses(net, batches, rates, zero="step", clip="step", divide="loss"):
    """The losses of an eager training of a copy of net. zero, clip: once for each "step" or "part",
    or "never".

    divide by the number of parts: each part's "loss",
    only the "sum" that is returned, or "nothing".
    """
    net, losses = copy.deepcopy(net), []
    (optimizer, tensor), weights = make_sgd(net, 0.0), list(net.parameters())
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


def judge_accumulating_step(answer: Callable) -> None:
    """Five batches of two to four micro-batches, and a rate that changes from step to step.

    The first two are nearly fitted, so their gradients stay
    below the bound of clipping, which hides their size.
    """
    net = perceptron(nn.Tanh())
    parts = draw_int(2, 5)
    rows = draw_int()
    rates = [0.4, 0.1, 0.3, 0.6, 0.2]
    batches = []
    for error in (0.2, 0.2, 3.0, 3.0, 3.0):
        inputs = 3 * torch.randn(parts, rows, 4, device="cuda")
        noise = error * torch.randn(parts, rows, 2, device="cuda")
        batches.append((inputs, net(inputs).detach() + noise))
    start = copy.deepcopy(net)
    expected = _sgd_losses(net, batches, rates)
    optimizer, rate = make_sgd(net, rates[0])
    given, seen = copy_tensors(batches[0]), []
    net.register_forward_pre_hook(lambda _, passed: seen.append(passed[0].shape[:-1].numel()))
    with unmodified("inputs or targets", given, batches):
        with require_untrained(net):
            step = answer(net, optimizer, rate, *given)
        require_no_momentum(optimizer)
        used = call_answer(step, [(*batch, new) for batch, new in zip(batches, rates, strict=True)])
        used.require_results(expected, _losses_of_mistakes(start, batches, rates))
        refuse_grad(used.kept)
        used.require_launches(graphs=5, operators=30)
        if max(seen) > rows:
            raise Wrong(
                f"The network gets {max(seen)} rows at once, and a micro-batch has {rows}: "
                "together they would not fit, so pass one micro-batch at a time."
            )


def _losses_of_mistakes(net, batches, rates):
    """What is wrong with a training step -> a function that gives the losses that it leads to."""
    run = partial(_sgd_losses, net, batches)
    return {
        EVERY_TIME_THE_FIRST: lambda: _sgd_losses(net, batches[:1] * 5, rates),
        FROZEN: lambda: run(rates[:1] * 5),
        RATE_BEFORE: lambda: run(rates[:1] + rates[:-1]),
        LAST: lambda: run(rates, zero="part"),
        UNCLIPPED: lambda: run(rates, clip="never"),
        ONCE: lambda: run(rates, clip="part"),
        UNDIVIDED: lambda: run(rates, divide="nothing"),
        DIVIDED_LATE: lambda: run(rates, divide="sum"),
        SUMMED: lambda: run(rates, zero="never"),
    }


def judge_checkpoints(answer: Callable) -> None:
    """A graph that trains a network with dropout and batch normalization by Adam, whose rate falls:
    saved once, and taken up again twice.
    """
    net = perceptron(nn.BatchNorm1d(8), nn.Dropout(0.5))
    inputs = torch.randn(draw_int(4, 9), 4, device="cuda")
    lr = torch.tensor(0.05, device="cuda")
    optimizer = torch.optim.Adam(net.parameters(), lr, capturable=True)

    def step():
        optimizer.zero_grad()
        loss = net(inputs).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    with unchanged(net, optimizer):
        replay = capture_step(step)
    known = tensors_known_to_graph(net, optimizer)
    save, load = as_functions(answer(net, optimizer), "save", "load")
    four_losses(replay, lr)
    saved, right = save(), copy_tensors(known)
    straight = four_losses(replay, lr)
    for _ in range(2):
        load(saved)
        check_loaded(net, optimizer, known, right)
        if not are_close(four_losses(replay, lr), straight):
            raise Wrong(
                "Dropout draws other numbers than after the checkpoint: "
                "save the random state, and set it."
            )


def four_losses(replay: Callable, lr: torch.Tensor) -> list:
    """The losses of the next four steps; the learning rate falls after each of them."""
    losses = []
    for _ in range(4):
        losses.append(replay().clone())
        lr.mul_(0.5)
    return losses


def tensors_known_to_graph(net: nn.Module, optimizer: torch.optim.Optimizer) -> dict:
    """The tensors that a graph of a training step knows, by whose and what they are."""
    states = list(optimizer.state.values())
    return {
        ("network", "weights"): list(net.parameters()),
        ("network", "running averages of the batch normalization"): list(net.buffers()),
        ("optimizer", "averages"): [state[name] for state in states for name in AVERAGES],
        ("optimizer", "counts of steps"): [state["step"] for state in states],
        ("optimizer", "learning rate"): [optimizer.param_groups[0]["lr"]],
    }


def check_loaded(
    net: nn.Module, optimizer: torch.optim.Optimizer, known: dict, right: dict
) -> None:
    """Raises Wrong unless the tensors that the graph knows are still in use, and hold what is
    right.
    """
    now = tensors_known_to_graph(net, optimizer)
    for (owner, what), tensors in known.items():
        if list(map(id, now[owner, what])) != list(map(id, tensors)):
            raise Wrong(
                f"The {owner} has new tensors for its {what}, and the graph goes on with the old "
                "ones.",
                "Copy into those that are there.",
            )
        if not are_close(tensors, right[owner, what]):
            raise Wrong(
                f"The {owner} does not have the {what} of the checkpoint.",
                "Save clones, and copy them into place.",
            )
