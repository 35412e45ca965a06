"""Scenarios: graphs that share a small pool, two that must not share one, and a large pool."""

import weakref
from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from exercises.answers.graph_use import GraphUse, call_answer, watch_graphs
from exercises.answers.launches import wrap_replays
from exercises.answers.tensors import are_close, describe_first_difference
from exercises.answers.wrong import EVERY_TIME_THE_FIRST, Wrong
from exercises.scenarios.common import (
    draw_int,
    require_descending,
    require_one_pool,
    require_replay,
    require_smallest_fitting,
)
from exercises.scenarios.eager import perceptron
from exercises.scenarios.rules import require_graph_overlap, require_one_graph, unmodified

MEET = "Both graphs write to the same memory while they run: each overwrites the other's results."
WAITS = (
    "Each graph has its own memory. Do both streams wait: for the copy of the inputs before the "
    "replays, and for the replays before their results are read?"
)


def judge_smallest_pool(answer: Callable) -> None:
    """A network for three numbers of rows, which also returns what nobody needs."""
    up, down = nn.Linear(4, 16).cuda(), nn.Linear(16, 3).cuda()
    captured: list[tuple[int, weakref.ref]] = []  # the rows and the hidden layer of each capture

    def net(inputs):
        hidden = up(inputs).relu()
        if torch.cuda.is_current_stream_capturing():
            captured.append((len(inputs), weakref.ref(hidden)))
        return down(hidden), hidden

    sizes = [1, draw_int(), 8]
    samples = [torch.randn(sizes[place], 4, device="cuda") for place in (1, 2, 0)]
    rows = [sizes[place] for place in (0, 2, 1, 2, 0, 1)]
    batches = [torch.randn(number, 4, device="cuda") for number in rows]
    with torch.no_grad():
        expected = [net(batch)[0] for batch in batches]
        with unmodified("samples", samples):
            with watch_graphs() as built:
                predict = answer(net, samples)
            used = call_answer(predict, batches)
    used.require_results(expected)
    used.require_launches(graphs=len(batches), operators=3 * len(batches))
    require_smallest_fitting(used.seen.replayed, sizes, rows)
    require_one_pool(built)
    require_descending([number for number, _ in captured])
    if any(hidden() is not None for _, hidden in captured):
        raise Wrong(
            "The hidden layer of a capture is still alive, so its block is not free for the next "
            "capture.",
            "Let no name, tuple or replay hold it: capture a function that returns the output.",
        )


def judge_two_models(answer: Callable) -> None:
    """Two networks of the same input, whose graphs may run at the same time."""
    first, second = perceptron(nn.Tanh()), perceptron(nn.Tanh())
    rows = draw_int()
    batches = [torch.randn(rows, 4, device="cuda") for _ in range(4)]
    streams: list[torch.cuda.Stream] = []
    in_turn: list[Wrong] = []  # is told only if nothing else is wrong

    def noted(replay, graph):
        streams.append(torch.cuda.current_stream())
        replay(graph)
        if len(streams) % 2 == 0:
            try:
                require_graph_overlap()
            except Wrong as wrong:
                in_turn.append(wrong)

    with torch.no_grad():
        expected = [(first(batch), second(batch)) for batch in batches]
        with unmodified("sample", batches):
            with watch_graphs() as built:
                predict = answer(first, second, batches[0])
            with wrap_replays(noted):
                used = call_answer(predict, batches)
    require_replay(used.seen)
    if are_close(used.given, expected[:1] * len(batches)):
        raise Wrong(EVERY_TIME_THE_FIRST)
    if not are_close(used.given, expected):
        differs = describe_first_difference(used.given, expected)
        raise Wrong(differs, MEET if len(built.pools) < 2 else WAITS)
    used.require_results(expected)
    used.require_launches(graphs=2 * len(batches), operators=6 * len(batches))
    _require_concurrent_replays(built, streams, in_turn)


def _require_concurrent_replays(built: GraphUse, streams: list, in_turn: list[Wrong]) -> None:
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


def judge_layer_means(answer: Callable) -> None:
    """Four layers; counts the activations that are still alive when each is captured."""
    captured: list[weakref.ref] = []
    held: list[int] = []  # when a layer starts, its input apart

    def run(layer, inputs):
        if not torch.cuda.is_current_stream_capturing():
            return layer(inputs)
        held.append(sum(output() is not None for output in captured[:-1]))
        output = layer(inputs)
        captured.append(weakref.ref(output))
        return output

    networks = [nn.Sequential(nn.Linear(4, 4), nn.Tanh()).cuda() for _ in range(4)]
    layers = [partial(run, network) for network in networks]
    batches = [torch.randn(draw_int(), 4, device="cuda")]
    batches += [torch.randn_like(batches[0]) for _ in range(2)]
    expected = []
    with torch.no_grad():
        for hidden in batches:
            means = []
            for layer in layers:
                hidden = layer(hidden)
                means.append(hidden.mean())
            expected.append((hidden, torch.stack(means)))
        with unmodified("sample", batches):
            used = call_answer(answer(layers, batches[0]), batches)
    require_replay(used.seen)
    require_one_graph(used.seen)
    used.require_results(expected)
    if any(held):
        raise Wrong(
            f"When a layer starts, the outputs of up to {max(held) + 1} layers are alive.",
            "Each holds a block of the pool. Which line holds them, and what does it need?",
        )
