"""Scenarios: requests of many shapes, early stops. Each raises Wrong with the symptom it finds."""

from bisect import bisect_left
from collections.abc import Callable

import torch
from torch import nn

from course.answers.graph_use import EAGER, EVERY_TIME_THE_FIRST, Wrong, use, watch
from course.scenarios.common import few


def pad_to_buckets(answer: Callable) -> None:
    """Sums over requests of 1 to 8 rows, by graphs of 2, 4 and 8 rows; zero rows add nothing."""
    sizes, layer = [2, 4, 8], nn.Linear(3, 5, bias=False).cuda().requires_grad_(False)
    lengths = [8, 4, 3, 1, 5, 2, 1, few(1, 9)]
    requests = [torch.randn(length, 3, device="cuda") for length in lengths]

    def total(rows):
        return layer(rows).square().sum(0)

    expected = [total(rows) for rows in requests]
    stale = []
    left = {}
    for rows in requests:
        static = left.setdefault(bisect_left(sizes, len(rows)), torch.zeros(8, 3, device="cuda"))
        static[: len(rows)] = rows
        stale.append(total(static))
    used = use(answer(total, sizes, 3), requests)
    behind = "Rows of an earlier request are left behind a shorter one: fill them with zeros."
    used.gives(expected, {behind: stale, EVERY_TIME_THE_FIRST: expected[:1] * len(requests)})
    used.replays(graphs=len(requests), operators=6 * len(requests))
    places = [bisect_left(sizes, length) for length in lengths]
    graphs = set(zip(places, used.seen.replayed, strict=True))
    if len(set(used.seen.replayed)) < 3:
        raise Wrong(
            "Requests of all lengths go through the same graph: take the smallest that holds the "
            "request."
        )
    if len(graphs) > 3:
        raise Wrong(
            "A request goes through a graph that is too large: take the smallest that holds it."
        )


def replay_until(answer: Callable) -> None:
    """A graph that counts, and says when it has come to a number that only the GPU knows."""
    for target, every, limit in (
        (few(5, 9), 4, 40),
        (few(10, 20), 5, 20),
        (100, 6, 12),
        (1, 3, 30),
    ):
        count, done = (
            torch.zeros((), device="cuda"),
            torch.zeros((), dtype=torch.bool, device="cuda"),
        )
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            done.copy_(count.add_(1) >= target)
        asked = min(limit, -(-target // every) * every)
        with watch() as seen:
            used = use(
                lambda *given: torch.tensor(answer(*given)),
                [(graph, done, every, limit)],
                what="It",
            )
        _stopped(
            len(seen.replayed), int(used.given[0]), used.counts["operators"], asked, every, limit
        )


def _stopped(made, told, reads, asked, every, limit):
    """Raises Wrong unless so many replays were made as are asked, told, and looked at every few."""
    if not made:
        raise Wrong(EAGER)
    if reads > made // every:
        raise Wrong(
            f"{reads} reads in {made} replays: each makes the CPU wait, so read after every "
            f"{every} replays."
        )
    if made > limit:
        raise Wrong(f"{made} replays where the limit is {limit}.")
    if made > asked:
        raise Wrong(
            f"{made} replays where it was done at {asked}: read done after every {every} replays."
        )
    if made < asked:
        raise Wrong(f"It stops after {made} replays, before it is done.")
    if told != made:
        raise Wrong(f"It says {told} replays and made {made}.")
