"""Scenarios: batches of a decoder, padded to a few
sizes. Each raises Wrong with the symptom it finds.
"""

from bisect import bisect_left
from collections.abc import Callable

import torch

from course.answers.graph_use import (
    EVERY_TIME_THE_FIRST,
    Used,
    Watched,
    Wrong,
    close,
    copied,
    use,
    watch,
)
from course.scenarios.common import few
from examples.decoder import Config, Decoder, new_kv_cache

SIZES = [1, 2, 4]
ROWS = 6
VOCABULARY = 23
BATCHES = ((2, 0), (0, 2, 4), (4,), (0, 2, 4, 1), (1,), (2, 3, 1), (0, 3))  # live rows, of five
WARMED = (
    "The warm-up writes into a request's row of the cache: before a capture the static rows hold "
    "the spare one."
)
PADDED = (
    "Padding writes into a request's row of the cache: it belongs into the spare one, in every "
    "call."
)
SHORT = (
    "A result needs one row for each request: take a size that holds the batch, and give the upper "
    "rows."
)
STAYED = (
    "Positions stay what they were at the capture: copy them, the tokens and the rows into static "
    "inputs."
)


def serve_in_buckets(answer: Callable) -> None:
    """A tiny decoder whose requests come and go, and
    a cache with a row for each and a spare one.
    """
    (step, cache), spare = _decoder(), few(1, ROWS)
    live = [row for row in range(ROWS) if row != spare]
    calls, start = _calls(live), copied(cache)

    def eagerly(change):
        cache.copy_(start)
        return [step(*change(*call)) for call in calls], cache[:, :, live]

    def stays():
        return eagerly(lambda tokens, positions, rows: (tokens, positions * 0, rows))[0]

    expected, left = eagerly(lambda *call: call)
    cache.copy_(start)
    with watch() as built:
        decode = answer(step, list(SIZES), spare)
    if not close(cache[:, :, live], start[:, :, live]):
        raise Wrong(WARMED)
    used = use(decode, calls)
    if [getattr(one, "shape", None) for one in used.given] != [one.shape for one in expected]:
        raise Wrong(SHORT)
    damage = {} if close(cache[:, :, live], left) else {PADDED: used.given}
    used.gives(expected, {EVERY_TIME_THE_FIRST: expected[:1] * len(calls), STAYED: stays, **damage})
    if damage:
        raise Wrong(PADDED)
    used.replays(graphs=len(calls), operators=14 * len(calls))
    _captured_well(built, used)


def _decoder() -> tuple[Callable, torch.Tensor]:
    """A step that finds each request's keys and values in a row of the cache, and the cache."""
    config = Config(
        n_layers=1,
        dim=16,
        n_heads=2,
        n_kv_heads=1,
        hidden_dim=16,
        vocab_size=VOCABULARY,
        max_seq_len=8,
    )
    model = Decoder(config, "cuda").requires_grad_(False)
    cache = new_kv_cache(config, ROWS, "cuda", torch.float32).normal_()

    def step(tokens, positions, rows):
        picked = cache[:, :, rows]
        logits = model(tokens, positions, picked)
        cache[:, :, rows] = picked
        return logits

    return step, cache


def _calls(live: list[int]) -> list[tuple]:
    """Tokens, positions and cache rows of each call; a request goes on where it was."""
    seen, calls = [few(0, 2) for _ in live], []
    for batch in BATCHES:
        positions = [[seen[one]] for one in batch]
        tokens = torch.randint(VOCABULARY, (len(batch), 1), device="cuda")
        rows = torch.tensor([live[one] for one in batch], device="cuda")
        calls.append((tokens, torch.tensor(positions, device="cuda"), rows))
        for one in batch:
            seen[one] += 1
    return calls


def _captured_well(built: Watched, used: Used) -> None:
    """Raises Wrong unless each size has its graph, in one pool, the largest captured first."""
    sizes = [SIZES[bisect_left(SIZES, len(batch))] for batch in BATCHES]
    graphs = dict(zip(sizes, used.seen.replayed, strict=True))
    if (
        len(set(graphs.values())) < len(SIZES)
        or [graphs[size] for size in sizes] != used.seen.replayed
    ):
        raise Wrong(
            "A batch goes through a graph that is too large: take the smallest that holds it."
        )
    if len({graph.pool() for graph in built.captured}) > 1:
        raise Wrong("Each graph has a pool of its own: hand all of them the same one.")
    order = [built.captured.index(graphs[size]) for size in reversed(SIZES)]
    if order != sorted(order):
        raise Wrong(
            "A smaller graph is captured before a larger one: with the largest first, the pool "
            "stays small."
        )
