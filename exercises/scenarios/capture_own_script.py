"""Scenarios: a step that captures itself, a schedule, a training that is resumed."""

import copy
from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from exercises.answers.graph_use import call_answer, require_expected, watch_graphs
from exercises.answers.tensors import are_close, copy_tensors
from exercises.answers.wrong import Wrong
from exercises.scenarios.common import Runs, require_replay, require_replays, unpack_tensors
from exercises.scenarios.eager import draw_batches, losses_of, momentum, perceptron
from exercises.scenarios.rules import refuse_grad, require_one_graph, unmodified
from exercises.scenarios.warm_ups import TRAINED, require_side_stream
from helpers.model import training_step

ONE_BATCH = (
    "From the fourth call on, the losses are those of a training on one batch.",
    "Which tensors does the graph read?",
)
CONSTANT = (
    "The losses are those of a learning rate that never falls.",
    "Every step trains at the first rate: write each rate into the tensor that the graph reads.",
)
WARMUP = 3  # calls of the graphed step that run eagerly, as in examples/train_mlp.py
FROZEN = (
    "From the first replay on, the losses are those of a learning rate that no longer falls.",
    "Every replay trains at the rate of the capture. Which tensor does the graph read?",
)


def judge_graph_after_warm_up(answer: Callable) -> None:
    """A network with dropout, trained on eight batches."""
    net, batches = perceptron(nn.Dropout(0.5)), draw_batches(8)
    expected = losses_of(net, momentum, batches)
    stale = []  # the losses of replays that read the last warm-up's batch, or the capture's
    for held in batches[WARMUP - 1 : WARMUP + 1]:
        stale.append(losses_of(net, momentum, batches[:WARMUP] + [held] * 5))
    step = Runs(partial(training_step, net, momentum(net.parameters())))
    with unmodified("the first batch", batches):
        used = call_answer(answer(step), batches)
        require_replay(used.seen)
        require_one_graph(used.seen)
        if len(step.eager) != WARMUP:
            raise Wrong(f"The step ran eagerly {len(step.eager)} times, and {WARMUP} are asked.")
        require_side_stream(step.eager)
    used.require_results(expected, [(ONE_BATCH, losses) for losses in stale])
    require_replays(used.seen, 5, "calls after the warm-up")


def judge_train_with_falling_rate(answer: Callable) -> None:
    """Ten batches, whose learning rate falls by a third after each."""
    net, batches = perceptron(nn.Tanh()), draw_batches(10)
    rates = torch.tensor([0.05 * 0.7**step for step in range(10)], device="cuda").unbind()
    untrained, adamw = copy.deepcopy(net), partial(torch.optim.AdamW, capturable=True)
    losses_at = partial(losses_of, untrained, adamw, batches)
    expected = losses_at(rates)
    with watch_graphs() as seen:
        losses = unpack_tensors(answer(net, batches), len(batches))
    require_replay(seen)
    require_one_graph(seen)
    frozen = losses_at([*rates[: WARMUP + 1], *[rates[WARMUP]] * 6])
    require_expected(losses, expected, [(FROZEN, frozen), (CONSTANT, losses_at(rates[:1] * 10))])
    refuse_grad(losses)


def judge_resume(answer: Callable) -> None:
    """A training goes on from a checkpoint, for eight steps."""
    net, batches = perceptron(nn.Tanh()), draw_batches(12)
    optimizer = momentum(net.parameters())
    step = partial(training_step, net, optimizer)
    for batch in batches[:4]:
        step(*batch)
    checkpoint = copy_tensors({"net": net.state_dict(), "optimizer": optimizer.state_dict()})
    expected = [step(*batch) for batch in batches[4:]]

    fresh = perceptron(nn.Tanh())
    initial = copy_tensors(fresh.state_dict())
    new = momentum(fresh.parameters())
    first = copy_tensors(batches[4])
    with unmodified("batch", first):
        train = answer(
            fresh, new, partial(training_step, fresh, new), first, copy_tensors(checkpoint)
        )
        if not are_close(fresh.state_dict(), checkpoint["net"]):
            unloaded = are_close(fresh.state_dict(), initial)
            raise Wrong(
                "The network has not got the weights of the checkpoint." if unloaded else TRAINED
            )
        used = call_answer(train, batches[4:])
        require_replay(used.seen)
        require_one_graph(used.seen)
    if are_close(used.given[:1], expected[:1]) and not are_close(used.given, expected):
        raise Wrong(
            "The first loss is right, the next ones are not.",
            "The momentum of the checkpoint has no effect, or is no longer that of the checkpoint.",
        )
    used.require_results(expected)
