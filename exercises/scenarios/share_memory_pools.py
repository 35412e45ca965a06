"""Scenarios: graphs that share a pool, and two that must not."""

from collections.abc import Callable
from unittest.mock import patch

import torch
from torch import nn

from exercises.answers.graph_use import (
    EVERY_TIME_THE_FIRST,
    Used,
    Watched,
    Wrong,
    close,
    copied,
    parting,
    use,
    watch,
)
from exercises.scenarios.common import (
    few,
    functions,
    in_one_pool,
    not_eager,
    perceptron,
)
from exercises.scenarios.rules import callers_own, replays_at_the_same_time

MEET = "Both graphs write to the same memory while they run: each overwrites the other's results."
WAITS = (
    "Each graph has its own memory. Do both streams wait: for the copy of the inputs before the "
    "replays, and for the replays before their results are read?"
)
SHUFFLED = "The functions are not in the order of the samples: the list has to follow them."


def two_models(answer: Callable) -> None:
    """Two networks of the same input, whose graphs may run at the same time."""
    first, second = perceptron(nn.Tanh()), perceptron(nn.Tanh())
    rows = few()
    batches = [torch.randn(rows, 4, device="cuda") for _ in range(4)]
    streams: list[torch.cuda.Stream] = []
    in_turn: list[Wrong] = []
    replay = torch.cuda.CUDAGraph.replay

    def noted(graph):
        streams.append(torch.cuda.current_stream())
        replay(graph)
        if len(streams) % 2 == 0:
            in_turn.extend(_waited())

    with torch.no_grad():
        expected = [(first(batch), second(batch)) for batch in batches]
        with callers_own("sample", batches):
            with watch() as built:
                predict = answer(first, second, batches[0])
            with patch.object(torch.cuda.CUDAGraph, "replay", noted):
                used = use(predict, batches)
    not_eager(used.seen)
    if close(used.given, expected[:1] * len(batches)):
        raise Wrong(EVERY_TIME_THE_FIRST)
    if not close(used.given, expected):
        differs = parting(used.given, expected)
        raise Wrong(differs, MEET if len(built.pools) < 2 else WAITS)
    used.gives(expected)
    used.replays(graphs=2 * len(batches), operators=6 * len(batches))
    _at_once(built, streams, in_turn)


def _waited() -> list[Wrong]:
    """What the rule says of the last replay, which is told only if nothing else is wrong."""
    try:
        replays_at_the_same_time()
    except Wrong as wrong:
        return [wrong]
    return []


def _at_once(built: Watched, streams: list, in_turn: list[Wrong]) -> None:
    """Raises Wrong unless the two replays of each call may run at the same time."""
    if len(built.pools) < 2:
        raise Wrong(
            "The graphs share a pool, so they must never run at the same time.",
            "Give each a private pool.",
        )
    if any(one == other for one, other in zip(streams[::2], streams[1::2], strict=True)):
        raise Wrong(
            "Both graphs are replayed on the same stream, so they cannot run at the same time.",
            "Replay one of them on another stream.",
        )
    if in_turn:
        raise in_turn[0]


def graphs_in_one_pool(answer: Callable) -> None:
    """One network for three numbers of rows, and requests of all three in mixed order."""
    net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3)).cuda()
    rows = [few(), 8, 1]
    samples = [torch.randn(number, 4, device="cuda") for number in rows]
    given = copied(samples)
    order = [0, 1, 2, 1, 0, 2]
    requests = [torch.randn(rows[size], 4, device="cuda") for size in order]
    with torch.no_grad():
        expected = [net(request) for request in requests]
        stale = [net(samples[size]) for size in order]
        with watch() as built:
            of_samples = functions(answer(net, given), *(f"one for sample {n}" for n in (1, 2, 3)))
        _told_apart(of_samples, samples)
        with callers_own("samples", given):
            used = use(
                lambda size, request: of_samples[size](request),
                list(zip(order, requests, strict=True)),
            )
    not_eager(used.seen)
    if len(set(used.seen.replayed)) < 3:
        raise Wrong(
            "All functions replay the same graph: each must keep its "
            "own, so define it in a function."
        )
    used.gives(expected, {EVERY_TIME_THE_FIRST: stale})
    used.replays(graphs=6, operators=12)
    in_one_pool(built)
    _largest_first(built, used, [rows[size] for size in order])


def _told_apart(functions: tuple, samples: list) -> None:
    """Raises Wrong if the functions take the inputs of other samples than their own."""
    taken = [[_takes_shape_of(function, sample) for sample in samples] for function in functions]
    if all(row[number] for number, row in enumerate(taken)):
        return
    if any(taken[0]) and taken[0] == taken[1] == taken[2]:
        raise Wrong(
            "All functions replay the graph of the same sample. A lambda or function that is "
            "defined in a loop looks up its names when it is called, and finds those of the last "
            "round: define each in a function of its own."
        )
    if all(any(row) for row in taken):
        raise Wrong(SHUFFLED)


def _takes_shape_of(function: Callable, sample: torch.Tensor) -> bool:
    """Whether a function takes an input of this shape."""
    try:
        return len(function(sample)) == len(sample)
    except (RuntimeError, TypeError):
        return False


def _largest_first(built: Watched, used: Used, rows: list[int]) -> None:
    """Raises Wrong unless the graph of the most rows was captured first, and so on."""
    graphs = dict(zip(rows, used.seen.replayed, strict=True))
    order = [built.captured.index(graphs[number]) for number in sorted(graphs, reverse=True)]
    if order != sorted(order):
        raise Wrong(
            "A smaller graph is captured before a larger one, so the pool grows with each "
            "capture: capture the largest first."
        )
