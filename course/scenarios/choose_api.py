"""Scenario: a graph of all but the optimizer. It raises Wrong with what it finds."""

import copy
from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from course.answers.graph_use import Wrong, close, copied, use
from course.scenarios.common import DREW, TRAINED, draw_batches, losses_of, momentum, perceptron

RATES = [0.1 / 2**number for number in range(5)]  # of the steps below


def graph_without_optimizer(answer: Callable) -> None:
    """A network with dropout; before each of five steps
    the loop sets the optimizer's rate, a Python number.
    """
    net, batches = perceptron(nn.Dropout(0.5)), draw_batches(5)
    random, before = torch.cuda.get_rng_state(), copied(net.state_dict())
    expected, symptoms = _trained(copy.deepcopy(net), batches, random)
    torch.cuda.set_rng_state(random)
    optimizer, stepped = momentum(net.parameters()), []
    optimizer.register_step_post_hook(lambda *_: stepped.append(True))
    train = answer(net, optimizer, *copied(batches[0]))
    if not close(net.state_dict(), before):
        raise Wrong(TRAINED)
    if not torch.equal(torch.cuda.get_rng_state(), random):
        raise Wrong(DREW)

    def step(rate, *batch):
        optimizer.param_groups[0]["lr"] = rate
        return train(*batch)

    used = use(step, [(rate, *batch) for rate, batch in zip(RATES, batches, strict=True)])
    if not stepped:
        raise Wrong("Nothing calls optimizer.step().")
    used.gives(expected, symptoms)
    used.replays(graphs=5, operators=5 * 25)


def _trained(net, batches, random):
    """The losses of an eager training, and functions that give those that each mistake leads to."""

    def losses(rates, batches=batches):
        torch.cuda.set_rng_state(random)
        return losses_of(net, momentum, batches, rates)

    return losses(RATES), {
        "The rate stays that of the capture: leave optimizer.step() outside of the graph.": partial(
            losses, RATES[:1] * 5
        ),
        "The weights never move: after the replay .grad must be there for "
        "optimizer.step().": partial(losses, [0.0] * 5),
        "Every step trains on the first batch: copy the new one into the static inputs.": partial(
            losses, RATES, batches[:1] * 5
        ),
    }
