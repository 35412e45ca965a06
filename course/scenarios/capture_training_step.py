"""Scenarios: a whole training step, gradients alone.
Each raises Wrong with the symptom it finds.
"""

from collections.abc import Callable

import torch
from torch import nn

from course.answers.graph_use import EVERY_TIME_THE_FIRST, Used, Wrong, close, copied, use
from course.answers.launches import launches
from course.scenarios.common import (
    ANEW,
    DREW,
    FILLED,
    TRAINED,
    draw_batches,
    losses_of,
    momentum,
    perceptron,
)


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
    if warmed and any(
        state["momentum_buffer"].count_nonzero() for state in optimizer.state.values()
    ):
        raise Wrong(FILLED)
    if not torch.equal(torch.cuda.get_rng_state(), random):
        raise Wrong(DREW)
    used = use(train, batches)
    if not optimizer.state:
        raise Wrong(
            "The optimizer has lost the state that the graph works on: set it to zero in place "
            "instead."
        )
    used.gives(expected, {ANEW: forgetful})
    used.replays(graphs=5, operators=15)


def gradients_of(answer: Callable) -> None:
    """A network, and the gradients of the mean of its squared results after each of four calls."""
    net, batches = perceptron(nn.Tanh()), [inputs for inputs, _ in draw_batches(4)]
    parameters = list(net.parameters())
    expected = [
        list(torch.autograd.grad(net(batch).square().mean(), parameters)) for batch in batches
    ]
    replay = answer(net, batches[0].clone())

    def gradients(batch):
        replay(batch)
        if any(parameter.grad is None for parameter in parameters):
            raise Wrong(
                "After a call .grad is None: the graph writes where .grad was in the capture, so "
                "leave it there."
            )
        return [parameter.grad for parameter in parameters]

    used = use(gradients, batches)
    used = Used(
        used.given, used.given, used.counts, used.seen
    )  # the next call may write over gradients
    pairs = zip(used.given, used.given[1:], strict=False)
    grown = [[new - old for old, new in zip(*pair, strict=True)] for pair in pairs]
    if close(grown, expected[1:]):
        raise Wrong(
            "The gradients add up: the capture must begin without any, or zero them itself."
        )
    used.gives(expected, {EVERY_TIME_THE_FIRST: [expected[0]] * 4})
    used.replays(graphs=4, operators=8)
