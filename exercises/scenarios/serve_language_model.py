"""Scenarios: requests of several tokens, a decoder one step ahead."""

from bisect import bisect_left
from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from cpu_graph import on_stand_in
from cpu_graph.log import is_replay, launch_log, races
from exercises.answers.graph_use import call_answer, watch_graphs
from exercises.answers.launches import wrap_replays
from exercises.answers.tensors import are_close
from exercises.answers.wrong import Wrong
from exercises.scenarios.common import (
    WRITTEN_WHILE_READ,
    draw_int,
    require_one_pool,
    require_replay,
    require_replays,
    require_smallest_fitting,
)
from exercises.scenarios.rules import require_one_graph, unmodified

OWNS_MORE = (
    "A slot that is free in this batch still owns rows of an earlier one.",
    "Let every free slot begin and end after the last token.",
)
FALLS = ("The starts fall: a free slot ends before it begins.", OWNS_MORE[1])
ONE_X = (
    "Every replay computes with the tokens of the capture.",
    "Copy the new ones into a static input.",
)
ONE_START = (
    "Every replay has the starts of the capture.",
    "Write the new ones into the static tensor.",
)
TOKEN_SIZES = [2, 4, 8]
SLOTS = 4
VOCABULARY = 23
LENGTHS = ((1, 2, 1), (1, 1), (4,), (2, 1, 1, 3), (7,), (1,), (3, 5), (2,), (8,))  # of nine batches


def judge_serve_requests(answer: Callable) -> None:
    """Batches of requests with several tokens each, which a kernel with a maximum computes."""
    step, seen = _limited_step_and_runs()
    batches = [(torch.randn(sum(lengths), 4, device="cuda"), lengths) for lengths in LENGTHS]
    eagerly = partial(_results_in_buckets, step, batches)
    expected, symptoms = eagerly(), {OWNS_MORE: eagerly(free=None)}
    symptoms[ONE_X] = eagerly(factor=0.0)
    symptoms[ONE_START] = eagerly(ends=False)
    symptoms[FALLS] = eagerly(free=lambda x: 0)
    seen.clear()
    with watch_graphs() as built:
        run = answer(step, list(TOKEN_SIZES), SLOTS)
    captured = dict(seen)  # the last run of each size is its capture
    used = call_answer(run, [(x, list(lengths)) for x, lengths in batches])
    if used.counts["graphs"] and not used.seen.captured and not are_close(used.given, expected):
        for size, longest in captured.items():
            if longest < size:
                raise Wrong(
                    f"The graph of {size} tokens keeps longest={longest} of its capture.",
                    "One request may bring all of them: capture the worst case of each bucket.",
                )
    used.require_results(expected, symptoms)
    used.require_launches(graphs=len(batches), operators=10 * len(batches))
    require_smallest_fitting(used.seen.replayed, TOKEN_SIZES, [len(x) for x, _ in batches])
    require_one_pool(built)


def _results_in_buckets(step, batches, free=len, factor=1.0, ends=True):
    """The results of an eager server in buckets. free: where free slots end, or None if nobody
    writes it. factor: of the tokens. ends: whether the ends of the requests are written.
    """
    starts = torch.zeros(SLOTS + 1, dtype=torch.long, device="cuda")
    results = []
    for x, lengths in batches:
        size = TOKEN_SIZES[bisect_left(TOKEN_SIZES, len(x))]
        padded = torch.zeros(size, 4, device="cuda")
        padded[: len(x)] = factor * x
        if free:
            starts[1:] = free(x)
        if ends:
            starts[1 : len(lengths) + 1] = torch.tensor(lengths, device="cuda").cumsum(0)
        results.append(step(padded, starts, size)[: len(x)])
    return results


def _limited_step_and_runs() -> tuple[Callable, list]:
    """A step that computes at most the first `longest` tokens of each request, and for each of its
    runs the number of rows and this maximum. Where starts fall, its results are nonsense.
    """
    layer = nn.Linear(4, 4).cuda().requires_grad_(False)
    seen: list[tuple[int, int]] = []

    def step(x, starts, longest):
        seen.append((len(x), longest))
        rows = starts[:-1, None] + torch.arange(longest, device="cuda")  # (slots, longest)
        rows = torch.where(rows < starts[1:, None], rows, len(x)).clamp(max=len(x))
        padded = torch.cat([x, torch.zeros_like(x[:1])])
        first = padded[starts[:-1].clamp(max=len(x))]  # of each request
        results = layer(padded[rows] + first[:, None]).tanh()
        computed = torch.zeros(len(x) + 1, device="cuda")
        computed.index_add_(0, rows.flatten(), torch.ones(rows.numel(), device="cuda"))
        total = torch.zeros_like(padded).index_add_(0, rows.flatten(), results.flatten(0, 1))
        results = torch.where(computed[:, None] > 0, total, torch.nan)[:-1]
        return torch.where((starts.diff() < 0).any(), 1e6, results)

    return step, seen


def judge_decode_ahead(answer: Callable) -> None:
    """Steps of a decoder whose tokens are new, or those of the step before."""
    table = torch.randperm(VOCABULARY, device="cuda")  # the next token of each token
    rows, count = draw_int(3, 6), draw_int(5, 9)
    batches = [torch.randint(VOCABULARY, (rows,)) for _ in range(count)]
    for batch in batches[1:]:
        order = torch.randperm(rows)
        batch[order[: draw_int(1, rows - 1)]] = -1
        batch[order[-1]] = 0  # an id like any other
    delivered: list = []
    raced: list = []
    launches: list[tuple[bool, int]] = []  # whether the CPU has waited, and how many were given

    def noted(replay, graph):
        waited = not any(map(is_replay, launch_log()))
        launches.append((waited, len(delivered)))
        replay(graph)

    with unmodified("batches", batches), wrap_replays(noted), watch_graphs() as seen:
        for tokens in answer(table.__getitem__, batches):
            if not torch.is_tensor(tokens) or tokens.is_cuda:
                raise Wrong("It yields something that is not a tensor on the CPU.")
            delivered.append(tokens.clone().tolist())  # a clone sees what has not arrived
            raced.extend(races())
    require_replay(seen)
    _require_tokens(delivered, table.cpu(), batches)
    if raced:
        raise Wrong(WRITTEN_WHILE_READ)
    require_replays(seen, count)
    require_one_graph(seen)
    if on_stand_in() and any(waited for waited, _ in launches[1:]):
        raise Wrong(
            "The CPU waits for the tokens of a step before it launches the next one.",
            "Launch the next replay first. A copy that is not from pinned memory with "
            "non_blocking=True waits too, and so do .cpu() and .tolist().",
        )
    for number, (_, given) in enumerate(launches):
        if given < number - 1:
            raise Wrong(
                f"The tokens of step {given} are not yielded before the replay of step {number}.",
                "Yield them right after the next replay has been launched: somebody waits for "
                "them.",
            )


def _require_tokens(delivered: list, table: torch.Tensor, batches: list) -> None:
    """Raises Wrong unless the tokens of every step were yielded."""
    expected, without = _decoded(table, batches), _decoded(table, batches, goes_on=False)
    if len(delivered) != len(batches):
        raise Wrong(f"It yields tokens of {len(delivered)} steps, and there are {len(batches)}.")
    if delivered == without:
        raise Wrong(
            "Where a batch has -1, the step computes with token 0.",
            "Keep the tokens of the step before in a tensor on the GPU, and select them with "
            "torch.where.",
        )
    for number, (yours, right) in enumerate(zip(delivered, expected, strict=True)):
        if yours != right:
            raise Wrong(
                f"The tokens of step {number} are {yours}, where {right} is right.",
                "Is the batch copied before its replay, and have the tokens arrived when they are "
                "yielded?",
            )


def _decoded(table: torch.Tensor, batches: list, goes_on: bool = True) -> list[list[int]]:
    """The tokens after each step; goes_on=False: with token 0 in place of the one before."""
    tokens, results = torch.zeros_like(batches[0]), []
    for batch in batches:
        before = tokens if goes_on else torch.zeros_like(batch)
        tokens = table[torch.where(batch < 0, before, batch)]
        results.append(tokens.tolist())
    return results
