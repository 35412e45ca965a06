"""Scenarios: a training as the tree advises, graphs around a read."""

import copy
from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from exercises.answers.graph_use import call_answer
from exercises.answers.tensors import copy_tensors
from exercises.answers.wrong import EVERY_TIME_THE_FIRST, Wrong
from exercises.scenarios.common import draw_int
from exercises.scenarios.eager import draw_batches, losses_of, momentum, perceptron
from exercises.scenarios.rules import call_with_one_graph, refuse_grad, unmodified
from exercises.scenarios.warm_ups import require_no_draws, require_no_momentum, require_untrained

NEVER_MOVES = (
    "The weights never move.",
    "After the replay .grad must be there for optimizer.step().",
)
ADVISED = [  # found, whether the tree advises a graph, and whether the optimizer is in it
    ({"idle": 0.199, "optimizer": 1.8}, False, False),
    ({"idle": 0.201, "optimizer": 0.995}, True, False),
    ({"idle": 0.201, "optimizer": 1.005}, True, True),
]


def judge_train_as_advised(answer: Callable) -> None:
    """Three steps: a busy GPU, a short optimizer, and one that takes longer than the GPU."""
    net, batches = perceptron(nn.Tanh()), draw_batches(4)
    losses = partial(losses_of, net, momentum)
    expected = losses(batches)
    symptoms = {
        NEVER_MOVES: losses(batches, [0.0] * len(batches)),
        EVERY_TIME_THE_FIRST: losses(batches[:1] * len(batches)),
    }
    for found, graph, whole in ADVISED:
        own = copy.deepcopy(net)
        optimizer = momentum(own.parameters())
        given = copy_tensors(batches[0])
        stepped: list[bool] = []  # a True for each call of optimizer.step() outside of a graph
        with unmodified("inputs or targets", given, batches):
            with require_no_draws(), require_untrained(own):
                train = call_with_one_graph(answer, own, optimizer, *given, dict(found))
            require_no_momentum(optimizer)
            optimizer.register_step_post_hook(lambda *_, stepped=stepped: stepped.append(True))
            used = call_answer(train, batches)
        used.require_results(expected, symptoms)
        refuse_grad(used.kept)
        _judge_choice(used, bool(stepped), found, graph, whole)


def _judge_choice(used, stepped, found, graph, whole):
    """Raises Wrong unless the steps ran as the tree says for found."""
    case = f"(found is {found})"
    if not graph:
        if used.counts["graphs"]:
            raise Wrong(f"It replays a graph where the GPU idles for less than a fifth {case}.")
        return
    if not used.counts["graphs"]:
        raise Wrong(f"It stays eager where the GPU idles for a fifth or more {case}.")
    if stepped and whole:
        raise Wrong(f"The optimizer runs outside of the graph, where the tree takes it in {case}.")
    if not stepped and not whole:
        raise Wrong(f"The optimizer is in the graph, where the tree leaves it out {case}.")
    calls = len(used.given)
    used.require_launches(graphs=calls, operators=calls * (3 if whole else 12))


def judge_graph_around_read(answer: Callable) -> None:
    """Three modules; the hidden values of an input and of its negative choose different ones."""
    first = nn.Sequential(nn.Linear(4, 8, bias=False), nn.Tanh()).cuda()
    left = nn.Linear(8, 2).cuda()
    right = nn.Sequential(nn.Linear(8, 3), nn.Tanh(), nn.Linear(3, 2)).cuda()
    rows = draw_int()
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
    with unmodified("inputs", sample, inputs):
        used = call_answer(answer(first, left, right, sample), inputs)
    _require_chosen_branch(used, expected, outputs, drawn[1])


def _require_chosen_branch(used, expected, outputs, sample):
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
    used.require_results(
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
    used.require_only_replays()
    graphs = used.counts["graphs"]
    if graphs == 3 * calls:
        raise Wrong("All three graphs run in every call: replay only the branch that is chosen.")
    if graphs == calls:
        raise Wrong(
            "One graph is launched per call, so the rest runs eagerly, or both branches run: the "
            "CPU is to choose between two graphs."
        )
    refuse_grad(used.kept)
    used.require_launches(graphs=2 * calls, operators=8 * calls)
