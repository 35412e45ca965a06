"""Scenario: an optimizer with a schedule. It raises Wrong with the symptom it finds."""

import copy
from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from course.answers.graph_use import Used, Wrong, close, use
from course.scenarios.common import ANEW, TRAINED, draw_batches, few, losses_of, perceptron


def train_with_schedule(answer: Callable) -> None:
    """Adam on one batch, with a learning rate that falls from step to step."""
    net, [batch] = perceptron(nn.Tanh()), draw_batches(1)
    rates = [0.1 / 2**number for number in range(few(4, 6))]
    count = len(rates)
    fixed = [rates[0]] * len(rates)
    own = copy.deepcopy(net)
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
    stays = (
        "The learning rate stays that of the capture: keep it in a tensor, and write the tensor."
    )
    symptoms = {stays: partial(losses, fixed), ANEW: partial(losses, rates, anew=True)}
    Used(found, found, used.counts, used.seen).gives(expected, symptoms)
    used.seen.captured.clear()
    used.replays(graphs=count, operators=10**6)
