"""The ten scripts of a lesson: what each is given, what it should give, and which lesson teaches its fault."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import nn
from torch.nn.functional import mse_loss
from torch.nn.utils import clip_grad_norm_

from course.script_inputs import calls, ensemble, parts, requests, text, training, write


class Script(NamedTuple):
    """make(steps): arguments, of torch's random state; eager(*arguments): what the script should give.

    lesson: where its fault is taught. steps: of a short run, a long one has twice as many. beside:
    operators that each step may launch outside of its graphs.
    """

    lesson: str
    fault: str
    make: Callable[[int], tuple]
    eager: Callable
    steps: int = 2
    beside: int = 6


def _train(model, optimizer, batches, seed=lambda step: None, after=1, ready=lambda: True):
    """The losses; the optimizer steps after so many batches, if ready."""
    losses = []
    for number, (x, y) in enumerate(batches):
        seed(number + 1)
        if number % after == 0:
            optimizer.zero_grad()
        loss = mse_loss(model(x), y)
        loss.backward()
        if number % after == after - 1 and ready():
            optimizer.step()
        losses.append(loss.detach())
    return losses


def _scheduled(model, batches):
    rate = torch.tensor(0.05, device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), rate, capturable=True)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    return [loss for batch in batches for loss in (*_train(model, optimizer, [batch]), scheduler.step())[:1]]


def _careful(model, optimizer, batches, limit):
    return _train(model, optimizer, batches, ready=lambda: clip_grad_norm_(model.parameters(), 1.0) <= limit)


def _answers(model, inputs):
    """What a model gives for each input: a dict is keywords, a tensor of many lengths comes with its count."""
    with torch.no_grad():
        if isinstance(model, list):
            return [torch.stack([one(x) for one in model]).mean(0) for x in inputs]
        if isinstance(inputs[0], dict):
            return [model(**call) for call in inputs]
        return [model(x, torch.tensor(len(x), device="cuda")) for x in inputs]


SCRIPTS = {
    "guide": Script(
        "capture_and_replay", "tensors inside a dict were never copied into the static input", calls, _answers
    ),
    "fine_tune": Script(
        "capture_training_step",
        "the warm-up trained: weights, batch statistics, momentum and random numbers",
        lambda steps: training(steps, nn.BatchNorm1d(16), nn.Dropout(0.2)),
        _train,
    ),
    "accumulate": Script(
        "make_graphed_callables",
        "the second backward pass wrote over gradients that lay in the graph's memory",
        lambda steps: training(steps, nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16), rate=0.5),
        lambda *given: _train(*given, after=2),
        beside=24,
    ),
    "train_in_parts": Script(
        "graph_part_of_model",
        "the sample required no gradient, so none went back through the graph",
        parts,
        _train,
        beside=20,
    ),
    "train_seeded": Script(
        "replay_random_numbers",
        "a seed is set by the CPU, so it cannot be set inside a capture",
        lambda steps: training(steps, nn.Dropout(0.5)),
        lambda *given: _train(*given, seed=torch.cuda.manual_seed),
    ),
    "ensemble": Script(
        "share_memory_pools",
        "the graphs of a pool were replayed in another order than captured, and read too late",
        ensemble,
        _answers,
        beside=8,
    ),
    "train_careful": Script(
        "make_code_capturable",
        "a branch on a tensor's value makes the CPU wait, which a capture refuses",
        lambda steps: (*training(steps, momentum=0, spikes=True), 20.0),
        _careful,
    ),
    "generate": Script(
        "graph_many_shapes",
        "the position was a number, frozen at the capture, and each token was waited for",
        text,
        write,
        steps=6,
    ),
    "serve": Script("graph_many_shapes", "every new length captured a graph of its own", requests, _answers, steps=4),
    "train_scheduled": Script(
        "capture_optimizers",
        "the learning rate was a number, frozen at the capture",
        lambda steps: training(steps)[::2],
        _scheduled,
        beside=12,
    ),
}
