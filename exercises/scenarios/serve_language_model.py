"""Scenarios: a step in pieces, requests of several tokens."""

from bisect import bisect_left
from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from cpu_graph.log import races
from exercises.answers.graph_use import (
    EVERY_TIME_THE_FIRST,
    AnswerCalls,
    GraphUse,
    Wrong,
    are_close,
    call_answer,
    fill_placeholders,
    watch_graphs,
)
from exercises.scenarios.common import NO_WARM_UP, Runs, few, in_one_pool, smallest_that_holds
from exercises.scenarios.rules import callers_own

NOT_COPIED = (
    "The next graph does not read what the outside function returned: it reads the address of the "
    "output that it saw in the capture. Copy every new output to that address."
)
PIECES = (
    "{found:g} graph launches in a call, where 3 are expected: a graph before each of the two "
    "outside functions, and one after the last."
)
OUTSIDE = "The outside functions ran {found:g} times in a call: each of the two runs once."
TOO_SHORT = (
    "The graph of {size} tokens keeps longest={longest} of its capture.",
    "One request may bring all of them: capture the worst case of each bucket.",
)
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
LENGTHS = ((1, 2, 1), (1, 1), (4,), (2, 1, 1, 3), (7,), (1,), (3, 5), (2,), (8,))  # of nine batches


def capture_in_pieces(answer: Callable) -> None:
    """A step with two outside functions, which read a number that only Python knows."""
    step, plan, ran = _step_with_outside()
    noted = Runs(step)
    rows = few()
    samples = [torch.randn(rows, 4, device="cuda") for _ in range(4)]
    requests = list(zip(samples, (2.0, -1.0, 0.5, 3.0), strict=True))

    def eagerly(x, factor):
        plan[0] = factor
        return step(x, lambda function, *inputs: function(*inputs))

    expected = [eagerly(*request) for request in requests]
    first = [eagerly(samples[0], factor) for _, factor in requests]
    frozen = [eagerly(x, 1.0) for x in samples]  # leaves 1.0 for the capture
    sample = samples[0].clone()
    with callers_own("x", sample, samples):
        with watch_graphs() as built:
            replay = answer(noted, sample)
        if noted.cold:
            raise Wrong(NO_WARM_UP)
        ran.clear()
        _replays_pieces(replay, built, plan, ran, requests, (expected, first, frozen))


def _replays_pieces(replay, built, plan, ran, requests, results):
    """Raises Wrong unless a call replays the pieces with its own x and the plan's own number."""
    expected, first, frozen = results

    def calls():
        for x, factor in requests:
            plan[0] = factor
            yield x

    used = call_answer(replay, calls())
    raced = any(races())
    used.only_replays()
    if not ran or are_close(used.given, frozen):
        raise Wrong(
            "The outside functions ran during the capture only, so each replay repeats their "
            "numbers: call them anew in every replay."
        )
    if any(result.isnan().any() for result in used.given):
        raise Wrong(NOT_COPIED)
    used.gives(expected, {EVERY_TIME_THE_FIRST: first})
    if raced:
        raise Wrong(
            "What the outside functions wrote during the capture is not ordered before the first "
            "call: let the current stream wait for the one of the capture."
        )
    _in_pieces(built, used, len(ran), len(requests))


def _step_with_outside() -> tuple[Callable, list, list]:
    """A step, the number that its outside functions multiply by, and a list of their runs."""
    layers = [nn.Linear(4, 4).cuda().requires_grad_(False) for _ in range(3)]
    plan: list[float] = [1.0]
    ran: list[float] = []

    def scaled(x, *others):
        ran.append(plan[0])
        return sum(others, x * plan[0])

    def step(x, outside):
        x = outside(scaled, layers[0](x).tanh())
        x = outside(scaled, layers[1](x).tanh(), x)
        return layers[2](x)

    return step, plan, ran


def _in_pieces(built: GraphUse, used: AnswerCalls, ran: int, calls: int) -> None:
    """Raises Wrong unless each call ran three graphs of one pool and two outside functions."""
    if ran != 2 * calls:
        raise Wrong(OUTSIDE.format(found=ran / calls))
    if used.counts["graphs"] != 3 * calls:
        raise Wrong(PIECES.format(found=used.counts["graphs"] / calls))
    in_one_pool(built)
    used.replays(graphs=3 * calls, operators=8 * calls)


def serve_requests(answer: Callable) -> None:
    """Batches of requests with several tokens each, which a kernel with a maximum computes."""
    step, seen = _step_with_maximum()
    batches = [(torch.randn(sum(lengths), 4, device="cuda"), lengths) for lengths in LENGTHS]
    eagerly = partial(_padded, step, batches)
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
                raise Wrong(fill_placeholders(TOO_SHORT, size=size, longest=longest))
    used.gives(expected, symptoms)
    used.replays(graphs=len(batches), operators=10 * len(batches))
    smallest_that_holds(used.seen.replayed, TOKEN_SIZES, [len(x) for x, _ in batches])
    in_one_pool(built)


def _padded(
    step: Callable,
    batches: list,
    free: Callable | None = len,
    factor: float = 1.0,
    ends: bool = True,
) -> list:
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


def _step_with_maximum() -> tuple[Callable, list]:
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
