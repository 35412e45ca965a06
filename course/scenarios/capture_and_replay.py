"""Scenarios: a network predicts, a state moves. Each raises Wrong with the symptom it finds."""

from collections.abc import Callable

import torch
from torch import nn

from course.answers.graph_use import EAGER, EVERY_TIME_THE_FIRST, Wrong, close, copied, use
from course.scenarios.common import few


def make_predictor(answer: Callable) -> None:
    """A network of one layer, and five inputs; the sample is the first."""
    rows = few()
    net = nn.Linear(4, 3).cuda()
    batches = torch.randn(5, rows, 4, device="cuda")
    sample = batches[0].clone()
    with torch.no_grad():
        expected = [net(batch) for batch in batches]
        predict = answer(net, sample)
        used = use(predict, list(batches))
    used.replays(graphs=5, operators=10)
    used.gives(
        expected,
        {
            EVERY_TIME_THE_FIRST: [expected[0]] * 5,
            "Each result is that of the input before: copy first, then replay.": [
                expected[0],
                *expected[:-1],
            ],
        },
    )


def trajectory(answer: Callable) -> None:
    """A state of three numbers, and a step that moves it."""
    states, shift = few(3), torch.randn(3, device="cuda")
    start = torch.randn(3, device="cuda")

    def step(state):
        return 0.5 * state.sin() + shift

    given, expected = copied(start), [step(start)]
    while len(expected) < states:
        expected.append(step(expected[-1]))
    used = use(lambda: answer(step, start, states), [()], what="It")
    found, graphs = used.given[0], used.counts["graphs"]
    if len(found) != states:
        raise Wrong(f"It gives {len(found)} states where {states} are asked.")
    if not close(start, given):
        raise Wrong("It changes the start that it was given: capture a clone of it.")
    if not close(found, expected):
        raise Wrong(_drift(found, expected))
    if graphs == 0:
        raise Wrong(EAGER)
    if graphs != states:
        raise Wrong(
            f"{graphs} graph launches for {states} states: capture one step, and replay it for "
            "each."
        )


def _drift(found, expected):
    """What is wrong with a list of states."""
    if close(found, [expected[-1]] * len(found)):
        return "Every state is the last one: they share the graph's memory, so clone each."
    if close(found, [expected[0]] * len(found)):
        return (
            "Every state is the first one: the graph must write the new state where it reads the "
            "old one."
        )
    if not close(found[0], expected[0]):
        return "The first state is not the first: the warm-up has moved the state, so put it back."
    return (
        "The states are not eager's: is the tensor that the graph reads still alive, and written "
        "in place?"
    )
