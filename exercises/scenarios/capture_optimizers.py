"""Scenarios: a scheduler that waits, an fp16 step, a prefetcher."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch import nn
from torch.nn.functional import mse_loss
from torch.nn.utils import clip_grad_norm_
from torch.optim import lr_scheduler

from cpu_graph import on_stand_in
from cpu_graph.log import concurrent_replays, is_replay, issue_number, launch_log, races
from exercises.answers.comparison import short_repr
from exercises.answers.graph_use import (
    GraphUse,
    call_answer,
    require_distinct_results,
    require_expected,
    watch_graphs,
)
from exercises.answers.tensors import are_close, copy_tensors
from exercises.answers.wrong import Wrong
from exercises.scenarios.common import draw_int, require_replay, require_replays, unpack
from exercises.scenarios.eager import draw_batches, losses_of, make_sgd_step, perceptron, sgd
from exercises.scenarios.repair_ten_scripts import count_activity
from exercises.scenarios.rules import refuse_grad, require_one_graph, unmodified
from exercises.scenarios.warm_ups import TRAINED, require_untrained
from helpers.model import training_step

EVERY_STEP = (
    "The scheduler reads the loss of every step, and decides from it.",
    "Call it once per epoch, with the mean loss.",
)
NO_SCHEDULE = (
    "The learning rate never falls in the replays.",
    "Keep it in a tensor from the start.",
)
SCALED = (
    "The losses are those of gradients that are clipped while they are scaled.",
    "Call scaler.unscale_ before.",
)
NOT_CLIPPED = "The gradients are not clipped as in the given step."
PLATEAU = {"factor": 0.1, "patience": 0, "threshold": 0.2}  # of the given scheduler
TOO_EARLY = (
    "The static batch is filled before the next batch has arrived.",
    "Wait for the copy first.",
)
OVERWRITTEN = (
    "A copy may overwrite the next batch before it has been read.",
    "The copy has to wait for the copy into the static batch.",
)
FIRST_COPY = (
    "The copy of the first batch is not ordered after what the main stream did before the loop, in "
    "memory that the copy writes to.",
    "Let copy_stream wait for the main stream once, before the loop.",
)


def judge_train_on_plateau(answer: Callable) -> None:
    """A few epochs on one batch; the losses fall more and more slowly, so the rate falls too."""
    net, [batch] = perceptron(nn.Tanh()), draw_batches(1)
    epochs, steps = 5, draw_int(4, 7)
    twin = copy.deepcopy(net)
    expected = _losses_with_plateau(net, batch, epochs, steps, "epoch")
    with _recording_metrics() as metrics, count_activity() as counts, watch_graphs() as seen:
        losses = answer(twin, *batch, epochs, steps)
    require_replays(seen, epochs * steps, "steps")
    require_one_graph(seen)
    losses = _unpack_losses(losses, epochs * steps)
    if not are_close(losses[0], expected[0]):
        raise Wrong(f"The first loss is not the eager one. {TRAINED[0]}", TRAINED[1])
    reads = counts["reads"]
    _require_mean_losses(metrics, losses, steps)
    eagerly = partial(_losses_with_plateau, net, batch, epochs, steps)
    symptoms = [(EVERY_STEP, partial(eagerly, "step")), (NO_SCHEDULE, partial(eagerly, "never"))]
    require_expected(losses, expected, symptoms)
    if reads > 2 * epochs:
        raise Wrong(
            f"The losses are right, but the CPU reads {reads} values in {epochs} epochs of {steps} "
            "steps.",
            "Give the scheduler one mean per epoch, computed on the GPU.",
        )


def _unpack_losses(losses, count):
    """The losses of a tensor that an answer returned, as a list."""
    if not torch.is_tensor(losses) or losses.numel() != count:
        raise Wrong(f"A tensor of {count} losses is asked, not {short_repr(losses)}.")
    refuse_grad([losses])
    losses = list(losses.flatten())
    require_distinct_results(losses)
    return losses


@contextmanager
def _recording_metrics() -> Iterator[list]:
    """What the schedulers of the block are given, one after the other."""
    metrics, step = [], lr_scheduler.ReduceLROnPlateau.step

    def noted(scheduler, given, *arguments):
        settings = tuple(getattr(scheduler, name) for name in PLATEAU)
        if settings != tuple(PLATEAU.values()):
            raise Wrong(f"The scheduler has other settings than the given one: {settings}.")
        metrics.append(copy_tensors(torch.as_tensor(given)))
        return step(scheduler, given, *arguments)

    with patch.object(lr_scheduler.ReduceLROnPlateau, "step", noted):
        yield metrics


def _require_mean_losses(metrics, losses, steps):
    """Raises Wrong if a scheduler was given something else than the mean loss of each epoch."""
    if len(metrics) == len(losses):
        raise Wrong(EVERY_STEP)
    for epoch, given in enumerate(metrics, 1):
        mean = torch.stack(losses[(epoch - 1) * steps : epoch * steps]).mean()
        if not are_close(given.float(), mean):
            raise Wrong(
                f"After epoch {epoch} the scheduler gets {given.item():.4g}, and the epoch's mean "
                f"loss is {mean.item():.4g}.",
                "Give it the mean over the steps of the epoch.",
            )


def _losses_with_plateau(net, batch, epochs, steps, when):
    """The losses of an eager training; when its scheduler is called: each "epoch" or "step"."""
    net = copy.deepcopy(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, **PLATEAU)
    losses = []
    for _ in range(epochs):
        for _ in range(steps):
            losses.append(training_step(net, optimizer, *batch))
            if when == "step":
                scheduler.step(losses[-1])
        if when == "epoch":
            scheduler.step(torch.stack(losses[-steps:]).mean())
    return losses


def judge_train_in_half(answer: Callable) -> None:
    """Ten batches, one of which makes a gradient overflow in fp16."""
    net, batches = perceptron(nn.Tanh()), draw_batches(10)
    inputs, targets = batches[6]
    batches[6] = (inputs, 1e4 * targets + 1e4)
    start = copy.deepcopy(net)
    expected, scales, moved = _train_with_scaler(net, batches, 0)
    _, early, _ = _train_with_scaler(net, batches, 3)
    sample = copy_tensors(batches[0])
    with require_untrained(net):
        train, scaler = unpack(answer(net, *sample), "a function", "the scaler")
    found_scales, found_moved = [], []

    def step(*batch):
        weights = copy_tensors(list(net.parameters()))
        loss = train(*batch)
        found_moved.append(not are_close(list(net.parameters()), weights))
        found_scales.append(scaler.get_scale())
        return loss

    with unmodified("inputs or targets", sample, batches):
        used = call_answer(step, batches)
    in_float32, _, _ = _train_with_scaler(start, batches[:6], 0, enabled=False)
    # on a GPU both may be close
    if are_close(used.given[:6], in_float32) and not are_close(used.given[:6], expected[:6]):
        raise Wrong("The products run in float32.", "Keep the forward pass under autocast.")
    _require_eager_scales(found_scales, scales, early, found_moved[6] and not moved[6])
    symptoms = {
        SCALED: lambda: _train_with_scaler(start, batches, 0, unscaled=False)[0],
        NOT_CLIPPED: lambda: _train_with_scaler(start, batches, 0, limit=1e9)[0],
    }
    used.require_results(expected, symptoms)
    refuse_grad(used.kept)
    used.require_launches(graphs=len(batches), operators=10**6)


def _require_eager_scales(found, expected, early, moved):
    """Raises Wrong with the cause if scales are not eager's, or an overflow moved the weights.

    early: the scales if the scaler has counted a warm-up.
    """
    if moved:
        raise Wrong(
            "A gradient overflowed, and the weights changed.", "Let the scaler take the step."
        )
    if found == expected:
        return
    if found[0] > expected[0] or found == early:
        raise Wrong(
            "The scale grows too early.",
            "The scaler counted the good steps of the warm-up: restore it too.",
        )
    raise Wrong(f"The scales are {found} instead of {expected}.")


def _train_with_scaler(net, batches, warm_up, enabled=True, unscaled=True, limit=0.5):
    """Losses, scales and whether the weights moved, of an eager training of a copy of net.

    warm_up: how many good steps the scaler has counted before.
    unscaled: whether the scale is removed before the gradients are clipped to a norm of limit.
    """
    twin = copy.deepcopy(net)
    adam = torch.optim.AdamW(twin.parameters(), lr=0.05, fused=True)
    scaler = torch.amp.GradScaler(init_scale=2.0**10, growth_interval=4)
    if warm_up:
        scaler.load_state_dict(scaler.state_dict() | {"_growth_tracker": warm_up})
    losses, scales = [], []
    moved = []
    for inputs, targets in batches:
        weights = copy_tensors(list(twin.parameters()))
        adam.zero_grad()
        with torch.autocast("cuda", torch.float16, enabled=enabled):
            loss = mse_loss(twin(inputs), targets)
        scaler.scale(loss).backward()
        if unscaled:
            scaler.unscale_(adam)
        clip_grad_norm_(twin.parameters(), limit)
        scaler.step(adam)
        scaler.update()
        losses.append(loss.detach())
        scales.append(scaler.get_scale())
        moved.append(not are_close(list(twin.parameters()), weights))
    return losses, scales, moved


class ReplayGatedLoader(list):
    """Batches of which each is ready when a replay has been issued for the one before."""

    def __init__(self, batches: list, seen: GraphUse) -> None:
        super().__init__(batches)
        self.seen = seen

    def __getitem__(self, which: Any) -> Any:
        asked = range(len(self))[which]
        if max(asked if isinstance(which, slice) else [asked], default=0) > len(self.seen.replayed):
            raise Wrong(
                "The next batch is asked for before the replay is issued.",
                "Leave the copy after the replay.",
            )
        return super().__getitem__(which)

    def __iter__(self) -> Iterator:
        return (self[number] for number in range(len(self)))


def judge_train_prefetched(answer: Callable) -> None:
    """Two trainings on pinned batches, whose copies are to run during the replays."""
    for _ in range(2):
        net, steps = perceptron(), draw_int(5, 8)
        batches = draw_batches(steps)
        expected = losses_of(net, sgd, batches)
        pinned = [tuple(tensor.cpu().pin_memory() for tensor in batch) for batch in batches]
        with unmodified("batches", pinned):
            with watch_graphs() as seen:
                losses = answer(make_sgd_step(net), net, ReplayGatedLoader(pinned, seen))
            beside = len(concurrent_replays()) // 2  # inputs and targets
            late = next(_race_symptoms(), None)
            require_replay(seen)
            require_one_graph(seen)
            if late:
                raise Wrong(late)
            losses = _unpack_losses(losses, steps)
        require_expected(losses, expected)
        if on_stand_in() and beside < steps - 1:
            raise Wrong(
                f"The losses are right, but {beside} of {steps - 1} copies run during a replay.",
                "The others wait for it, or it for them.",
            )


def _race_symptoms() -> Iterator[tuple[str, str]]:
    """What is wrong with each race of two launches."""
    first_replay = min(map(issue_number, filter(is_replay, launch_log())), default=0)
    for writer, other in races():
        if issue_number(writer) < issue_number(other):
            yield TOO_EARLY
        else:
            yield FIRST_COPY if issue_number(writer) < first_replay else OVERWRITTEN
