"""Scenarios: several steps in one graph, optimizers with a schedule. Each raises Wrong with the symptom it finds."""

import copy
from collections.abc import Callable
from functools import partial

import torch
from torch import nn
from torch.nn.functional import mse_loss

from course.scenarios.first_graphs import few
from course.scenarios.training import ANEW, TRAINED, draw_batches, losses_of, momentum, perceptron
from course.symptoms import Used, Wrong, close, copied, use


def steps_in_one_graph(answer: Callable) -> None:
    """Three stacks of k batches, and a step of plain SGD that the answer is given."""
    net, steps = perceptron(), few(2, 5)
    parameters, batches = list(net.parameters()), draw_batches(3 * steps)

    def step(inputs, targets):
        loss = mse_loss(net(inputs), targets)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
                parameter -= 0.1 * gradient
        return loss.detach()

    stacks = [tuple(map(torch.stack, zip(*batches[i : i + steps], strict=True))) for i in range(0, 3 * steps, steps)]
    before = copied(net.state_dict())
    firsts = [batches[i - i % steps] for i in range(3 * steps)]
    expected, repeated = (
        list(torch.stack(losses_of(net, lambda own: momentum(own, 0), fed)).reshape(3, steps))
        for fed in (batches, firsts)
    )
    train = answer(step, net, *copied(stacks[0]))
    if not close(net.state_dict(), before):
        raise Wrong(TRAINED)
    used = use(lambda *stack: _stacked(train(*stack), steps), stacks)
    used.gives(expected, {"Every step trains on the first batch: step number i is to read inputs[i].": repeated})
    used.replays(graphs=3, operators=18)


def _stacked(losses, steps):
    if torch.is_tensor(losses) and losses.numel() == 1 < steps:
        raise Wrong(f"It gives one loss where {steps} are asked: keep the loss of every step.")
    return torch.stack(list(losses)) if isinstance(losses, list | tuple) and losses else losses


def train_with_schedule(answer: Callable) -> None:
    """Adam on one batch, with a learning rate that falls from step to step."""
    net, [batch] = perceptron(nn.Tanh()), draw_batches(1)
    rates = [0.1 / 2**number for number in range(few(4, 6))]
    count, fixed, own = len(rates), [rates[0]] * len(rates), copy.deepcopy(net)
    adam = torch.optim.Adam
    losses = partial(losses_of, net, adam, [batch] * count)
    expected = losses(rates)
    used = use(lambda *given: list(answer(*given)), [(own, *batch, rates)], what="It")
    found = used.given[0]
    if len(found) != count:
        raise Wrong(f"It gives {len(found)} losses for {count} rates.")
    if close(found, found[-1:] * count):
        raise Wrong("Your first loss is the last one's memory: clone it.")
    if not close(found[0], expected[0]):
        raise Wrong("The first loss is not eager's. " + TRAINED)
    stays = "The learning rate stays that of the capture: keep it in a tensor, and write the tensor."
    symptoms = {stays: partial(losses, fixed), ANEW: partial(losses, rates, anew=True)}
    Used(found, found, used.counts, used.seen).gives(expected, symptoms)
    used.seen.captured.clear()
    used.replays(graphs=count, operators=10**6)
