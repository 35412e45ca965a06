"""Scenarios: whole training steps, gradients, optimizers. Each raises Wrong with the symptom it finds."""

import copy
from collections.abc import Callable, Iterable

import torch
from torch import nn
from torch.nn.functional import mse_loss

from course.scenarios.first_graphs import few
from course.symptoms import EVERY_TIME_THE_FIRST, Used, Wrong, close, copied, use
from cpu_graph.judge import launches

TRAINED = "The warm-up trained the model: put its weights back in place, before the first replay."
DREW = "The warm-up drew random numbers: put the random state back, before the first replay."
FILLED = "The warm-up filled the optimizer's momentum: put it back to zero in place."
ANEW = "Each replay makes the optimizer's state anew: a step of warm-up must make it before the capture."


def perceptron(*between: nn.Module) -> nn.Module:
    """Two layers on the GPU, from 4 to 2 numbers, with what is given between them."""
    return nn.Sequential(nn.Linear(4, 8), *between, nn.Linear(8, 2)).cuda()


def draw_batches(count: int) -> list:
    """Pairs of inputs (rows, 4) and targets (rows, 2) on the GPU; the seed of the run chooses the rows."""
    rows = few()
    return [(torch.randn(rows, 4, device="cuda"), torch.randn(rows, 2, device="cuda")) for _ in range(count)]


def losses_of(net: nn.Module, make: Callable, batches: Iterable, rates: list | None = None, anew: bool = False) -> list:
    """The losses of an eager training of a copy of net; anew: with a new optimizer for each step."""
    net = copy.deepcopy(net)
    optimizer, losses = make(net.parameters()), []
    for number, (inputs, targets) in enumerate(batches):
        optimizer = make(net.parameters()) if anew else optimizer
        for group in optimizer.param_groups:
            group["lr"] = rates[number] if rates else group["lr"]
        optimizer.zero_grad()
        loss = mse_loss(net(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def momentum(parameters: Iterable, beta: float = 0.9) -> torch.optim.Optimizer:
    """SGD with a memory."""
    return torch.optim.SGD(parameters, lr=0.1, momentum=beta)


def capture_training(answer: Callable) -> None:
    """A network with dropout and an optimizer with momentum, trained on five batches."""
    net, batches = perceptron(nn.Dropout(0.5)), draw_batches(5)
    random, before = torch.cuda.get_rng_state(), copied(net.state_dict())
    expected = losses_of(net, momentum, batches)
    torch.cuda.set_rng_state(random)
    forgetful = losses_of(net, lambda parameters: momentum(parameters, 0), batches)
    torch.cuda.set_rng_state(random)
    optimizer = momentum(net.parameters())
    with launches() as building:
        train = answer(net, optimizer, *copied(batches[0]))
    warmed = building["operators"] > 10
    if not close(net.state_dict(), before):
        raise Wrong(TRAINED)
    if warmed and any(state["momentum_buffer"].count_nonzero() for state in optimizer.state.values()):
        raise Wrong(FILLED)
    if not torch.equal(torch.cuda.get_rng_state(), random):
        raise Wrong(DREW)
    used = use(train, batches)
    if not optimizer.state:
        raise Wrong("The optimizer has lost the state that the graph works on: set it to zero in place instead.")
    used.gives(expected, {ANEW: forgetful})
    used.replays(graphs=5, operators=15)


def gradients_of(answer: Callable) -> None:
    """A network, and the gradients of the mean of its squared results after each of four calls."""
    net, batches = perceptron(nn.Tanh()), [inputs for inputs, _ in draw_batches(4)]
    parameters = list(net.parameters())
    expected = [list(torch.autograd.grad(net(batch).square().mean(), parameters)) for batch in batches]
    replay = answer(net, batches[0].clone())

    def gradients(batch):
        replay(batch)
        if any(parameter.grad is None for parameter in parameters):
            raise Wrong(
                "After a call .grad is None: the graph writes where .grad was in the capture, so leave it there."
            )
        return [parameter.grad for parameter in parameters]

    used = use(gradients, batches)
    used = Used(used.given, used.given, used.counts, used.seen)  # the next call may write over gradients
    pairs = zip(used.given, used.given[1:], strict=False)
    grown = [[new - old for old, new in zip(*pair, strict=True)] for pair in pairs]
    if close(grown, expected[1:]):
        raise Wrong("The gradients add up: the capture must begin without any, or zero them itself.")
    used.gives(expected, {EVERY_TIME_THE_FIRST: [expected[0]] * 4})
    used.replays(graphs=4, operators=8)
