"""Scenarios: capture and replay, pools. Each raises Wrong with the symptom it finds."""

from collections.abc import Callable

import torch
from torch import nn

from course.symptoms import EAGER, EVERY_TIME_THE_FIRST, Wrong, close, copied, use, watch


def few(low: int = 2, high: int = 7) -> int:
    """A number that the seed of the run chooses."""
    return int(torch.randint(low, high, ()))


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
            "Each result is that of the input before: copy first, then replay.": [expected[0], *expected[:-1]],
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
        raise Wrong(f"{graphs} graph launches for {states} states: capture one step, and replay it for each.")


def _drift(found, expected):
    """What is wrong with a list of states."""
    if close(found, [expected[-1]] * len(found)):
        return "Every state is the last one: they share the graph's memory, so clone each."
    if close(found, [expected[0]] * len(found)):
        return "Every state is the first one: the graph must write the new state where it reads the old one."
    if not close(found[0], expected[0]):
        return "The first state is not the first: the warm-up has moved the state, so put it back."
    return "The states are not eager's: is the tensor that the graph reads still alive, and written in place?"


def graphs_in_one_pool(answer: Callable) -> None:
    """One network for three numbers of rows, and requests of all three in mixed order."""
    net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3)).cuda()
    rows = [8, few(), 1]
    samples = [torch.randn(number, 4, device="cuda") for number in rows]
    order = [0, 1, 2, 1, 0, 2]
    requests = [torch.randn(rows[size], 4, device="cuda") for size in order]
    with torch.no_grad():
        expected = [net(request) for request in requests]
        with watch() as built:
            functions = answer(net, copied(samples))
        if not isinstance(functions, list | tuple) or len(functions) != 3:
            raise Wrong("A list of one function per sample is asked.")
        used = use(lambda size, request: functions[size](request), list(zip(order, requests, strict=True)))
    if not used.counts["graphs"]:
        raise Wrong(EAGER)
    if len(set(used.seen.replayed)) < 3:
        raise Wrong("All functions replay the same graph: each must keep its own, so define it in a function.")
    used.gives(expected, {})
    used.replays(graphs=6, operators=12)
    if len({graph.pool() for graph in built.captured}) > 1:
        raise Wrong("Each graph has a pool of its own: give the later ones the pool of the first.")
