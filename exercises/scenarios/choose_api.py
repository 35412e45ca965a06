"""Scenarios: graphs around a read, a graph or eager, and a graph of all but the optimizer."""

import copy
from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from exercises.answers.graph_use import EVERY_TIME_THE_FIRST, Wrong, close, copied, use, watch
from exercises.scenarios.common import (
    accumulated_gradients,
    draw_batches,
    few,
    gradients,
    losses_of,
    momentum,
    nothing_drawn,
    perceptron,
    tensors_of,
    untrained,
)
from exercises.scenarios.rules import callers_own, detached, from_one_graph
from helpers.capture import unchanged

RATE_STAYS = ("The rate stays that of the capture.", "Leave optimizer.step() outside of the graph.")
NEVER_MOVES = (
    "The weights never move.",
    "After the replay .grad must be there for optimizer.step().",
)
RATES = [0.1 / 2**number for number in range(5)]  # of the steps below


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
        used = use(answer(first, left, right, sample), inputs)
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
        used = use(answer(_pick, own), inputs)
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


def graph_without_optimizer(answer: Callable) -> None:
    """A network with dropout; before each of five steps the loop sets the optimizer's rate, a
    Python number.
    """
    net, batches = perceptron(nn.Dropout(0.5)), draw_batches(5)
    expected, symptoms = _trained(net, batches, RATES)
    optimizer, stepped = momentum(net.parameters()), []
    optimizer.register_step_post_hook(lambda *_: stepped.append(True))
    given = copied(batches[0])
    with callers_own("inputs or targets", given, batches):
        with nothing_drawn(), untrained(net):
            train = from_one_graph(answer, net, optimizer, *given)
        used = _trained_by(train, net, optimizer, batches, expected[0])
    if not stepped:
        raise Wrong("Nothing calls optimizer.step().")
    used.gives(expected, symptoms)
    detached(used.kept)
    used.replays(graphs=5, operators=5 * 12)


def _trained_by(train, net, optimizer, batches, first_loss):
    """How train was used. Raises Wrong unless the optimizer steps with the gradients of a replay,
    and those of the first step are eager's.
    """
    found = []  # the gradients after the first step
    replayed = []  # how many graphs, before each step of the optimizer

    def step(rate, *batch):
        optimizer.param_groups[0]["lr"] = rate
        loss = train(*batch)
        if not found:
            found.extend(copied(gradients(net)))
        return loss

    with unchanged():
        right = accumulated_gradients(copy.deepcopy(net), batches[:1])
    with watch() as seen:
        optimizer.register_step_pre_hook(lambda *_: replayed.append(len(seen.replayed)))
        used = use(step, [(rate, *batch) for rate, batch in zip(RATES, batches, strict=True)])
    if seen.replayed and replayed and not replayed[0]:
        raise Wrong("The optimizer steps with the gradients of the step before.", "Replay first.")
    there = all(gradient is not None for gradient in found)
    if there and close(used.given[0], first_loss) and not close(found, right):
        raise Wrong(
            "The first loss is right, its gradients are not: each replay adds to what .grad held "
            "at the capture.",
            "Zero the gradients inside the graph.",
        )
    return used


def _trained(net, batches, rates=None):
    """The losses of an eager training, and those that each mistake leads to."""
    losses = partial(losses_of, net, momentum)
    steps = len(batches)
    return losses(batches, rates), {
        RATE_STAYS: losses(batches, RATES[:1] * steps),
        NEVER_MOVES: losses(batches, [0.0] * steps),
        EVERY_TIME_THE_FIRST: losses(batches[:1] * steps, rates),
    }
