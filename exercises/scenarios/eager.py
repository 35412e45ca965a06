"""What answers are compared with: a small network, its batches, and its eager training."""

import copy
from collections.abc import Callable, Iterable
from functools import partial

import torch
from torch import nn
from torch.nn.functional import mse_loss

from exercises.answers.tensors import copy_tensors
from exercises.scenarios.common import draw_int
from helpers.capture import unchanged
from helpers.model import training_step

sgd = partial(torch.optim.SGD, lr=0.1)
momentum = partial(sgd, momentum=0.9)


def perceptron(*between: nn.Module) -> nn.Module:
    """Two layers on the GPU, from 4 to 2 numbers, with what is given between them."""
    return nn.Sequential(nn.Linear(4, 8), *between, nn.Linear(8, 2)).cuda()


def draw_batches(count: int) -> list:
    """Pairs of inputs (rows, 4) and targets (rows, 2) on the GPU; the seed of the run chooses the
    rows.
    """
    rows = draw_int()
    return [
        (torch.randn(rows, 4, device="cuda"), torch.randn(rows, 2, device="cuda"))
        for _ in range(count)
    ]


def losses_of(net: nn.Module, make: Callable, batches: Iterable, rates: list | None = None) -> list:
    """The losses of an eager training of a copy of net, which leaves the random state as it is."""
    net = copy.deepcopy(net)
    optimizer, losses = make(net.parameters()), []
    with unchanged():
        for number, (inputs, targets) in enumerate(batches):
            for group in optimizer.param_groups:
                group["lr"] = rates[number] if rates else group["lr"]
            losses.append(training_step(net, optimizer, inputs, targets))
    return losses


def grads_of(net: nn.Module) -> list:
    """What .grad holds; None where there is no gradient."""
    return [parameter.grad for parameter in net.parameters()]


def accumulated_gradients(net: nn.Module, batches: list) -> list:
    """The gradients of all batches, added up; None where there is no gradient."""
    for inputs, targets in batches:
        mse_loss(net(inputs), targets).backward()
    return copy_tensors(grads_of(net))


def descend(net: nn.Module, loss: torch.Tensor, rate: float) -> torch.Tensor:
    """Take a step of plain SGD on net, which leaves no .grad; returns the loss."""
    parameters = list(net.parameters())
    gradients = torch.autograd.grad(loss, parameters)
    with torch.no_grad():
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.sub_(gradient, alpha=rate)
    return loss.detach()


def make_sgd_step(net: nn.Module) -> Callable:
    """A function of inputs and targets that trains net so."""
    return lambda inputs, targets: descend(net, mse_loss(net(inputs), targets), 0.1)
