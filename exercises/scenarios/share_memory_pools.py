"""Scenario: two graphs that must not share a pool."""

from collections.abc import Callable
from unittest.mock import patch

import torch
from torch import nn

from exercises.answers.graph_use import (
    EVERY_TIME_THE_FIRST,
    GraphUse,
    Wrong,
    are_close,
    call_answer,
    describe_first_difference,
    watch_graphs,
)
from exercises.scenarios.common import few, not_eager, perceptron
from exercises.scenarios.rules import callers_own, replays_at_the_same_time

MEET = "Both graphs write to the same memory while they run: each overwrites the other's results."
WAITS = (
    "Each graph has its own memory. Do both streams wait: for the copy of the inputs before the "
    "replays, and for the replays before their results are read?"
)


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
            with watch_graphs() as built:
                predict = answer(first, second, batches[0])
            with patch.object(torch.cuda.CUDAGraph, "replay", noted):
                used = call_answer(predict, batches)
    not_eager(used.seen)
    if are_close(used.given, expected[:1] * len(batches)):
        raise Wrong(EVERY_TIME_THE_FIRST)
    if not are_close(used.given, expected):
        differs = describe_first_difference(used.given, expected)
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


def _at_once(built: GraphUse, streams: list, in_turn: list[Wrong]) -> None:
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
