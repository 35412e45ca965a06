"""Scenarios: graphs around a read, a graph or eager."""

from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from exercises.answers.graph_use import EVERY_TIME_THE_FIRST, Wrong, call_answer
from exercises.scenarios.common import few, tensors_of
from exercises.scenarios.rules import callers_own, detached


def graph_around_read(answer: Callable) -> None:
    """Three modules; the hidden values of an input and of its negative choose different ones."""
    first = nn.Sequential(nn.Linear(4, 8, bias=False), nn.Tanh()).cuda()
    left = nn.Linear(8, 2).cuda()
    right = nn.Sequential(nn.Linear(8, 3), nn.Tanh(), nn.Linear(3, 2)).cuda()
    rows = few()
    drawn = [torch.randn(rows, 4, device="cuda") for _ in range(2)]
    inputs = [sign * one for one in drawn for sign in (1, -1)]

    def outputs(hidden_of=lambda one: one, branch_of=lambda one: one):
        """Eager outputs, where an input is read from hidden_of and the branch from branch_of it."""
        found = []
        with torch.no_grad():
            for one in inputs:
                positive = bool(first(branch_of(one)).mean() > 0)
                found.append((left if positive else right)(first(hidden_of(one))))
        return found

    sample = drawn[1].clone()
    expected = outputs()
    with callers_own("inputs", sample, inputs):
        used = call_answer(answer(first, left, right, sample), inputs)
    _read_between(used, expected, outputs, drawn[1])


def _read_between(used, expected, outputs, sample):
    """Raises Wrong unless each call replayed the first graph and one of the other two."""
    calls = len(expected)
    frozen = (
        "Every output comes from the branch of the sample: the `if` ran once, before or during "
        "the capture. It belongs in predict."
    )
    stale = (
        "left and right read the hidden values of the sample: capture them on the output of the "
        "first graph, or copy each new one in."
    )
    used.gives(
        expected,
        {
            EVERY_TIME_THE_FIRST: partial(outputs, lambda _: sample, branch_of=lambda _: sample),
            frozen: partial(outputs, branch_of=lambda _: sample),
            "The other branch ran: left is for a positive mean.": partial(
                outputs, branch_of=lambda one: -one
            ),
            stale: partial(outputs, lambda _: sample),
        },
    )
    used.only_replays()
    graphs = used.counts["graphs"]
    if graphs == 3 * calls:
        raise Wrong("All three graphs run in every call: replay only the branch that is chosen.")
    if graphs == calls:
        raise Wrong(
            "One graph is launched per call, so the rest runs eagerly, or both branches run: the "
            "CPU is to choose between two graphs."
        )
    detached(used.kept)
    used.replays(graphs=2 * calls, operators=8 * calls)


def replay_or_eager(answer: Callable) -> None:
    """Inputs of the captured shape, of fewer rows or columns, and of another dtype."""
    rows = few(3)
    sample = torch.randn(rows, 4, device="cuda")
    inputs = [
        torch.randn(rows, 4, device="cuda"),
        torch.randn(rows - 1, 4, device="cuda"),
        torch.randn(rows, 4, device="cuda"),
        torch.randn(1, 4, device="cuda"),
        torch.randn(rows, 1, device="cuda"),
        torch.randn(2 * rows, 2, device="cuda"),
        torch.randn(rows, 4, device="cuda", dtype=torch.float64),
    ]
    expected = [_pick(one) for one in inputs]
    own = sample.clone()
    with callers_own("inputs", own, inputs):
        used = call_answer(answer(_pick, own), inputs)
    for given, right in zip(tensors_of(used.given, len(inputs), "results"), expected, strict=True):
        if given.dtype != right.dtype:
            raise Wrong(
                "The result has another dtype than in eager mode: copy_ silently converted the "
                "input. Compare the dtypes too."
            )
        if given.shape != right.shape:
            raise Wrong(
                "A result has another shape than in eager mode: copy_ silently repeated the input "
                "in the static one. Compare the shapes."
            )
    first = [_pick(sample), expected[1], _pick(sample), *expected[3:]]
    used.gives(expected, {EVERY_TIME_THE_FIRST: first})
    used.only_replays()
    if used.counts["graphs"] == 1:
        raise Wrong("Only one of two inputs that fit the capture was replayed.")
    used.replays(graphs=2, operators=2 * 3 + 5 * 5)


def _pick(inputs: torch.Tensor) -> torch.Tensor:
    """A function of a few operators, for any number of rows and any floating dtype."""
    return inputs.tanh().cumsum(1) * 2
