"""Scenarios: accumulation, a resumed training, a checkpoint that is loaded into a graph."""

import copy
from collections.abc import Callable
from functools import partial

import torch
from torch import nn
from torch.nn.functional import mse_loss
from torch.nn.utils import clip_grad_norm_
from torch.optim.lr_scheduler import LambdaLR

from exercises.answers.graph_use import (
    EVERY_TIME_THE_FIRST,
    Watched,
    Wrong,
    as_expected,
    close,
    copied,
    filled,
    match_symptoms,
    not_the_last,
    use,
    watch,
)
from exercises.scenarios.common import (
    TRAINED,
    draw_batches,
    few,
    functions,
    momentum_empty,
    not_eager,
    perceptron,
    tensors_of,
    train_step,
    untrained,
)
from exercises.scenarios.rules import callers_own, detached
from helpers.capture import capture_step, unchanged

BOUND = 1.0  # the norm that the exercise clips to
ONCE = "Clip once, when the gradients of all micro-batches are added up."
UNCLIPPED = (
    "The gradients are not clipped: clip them between the last backward "
    "pass and the optimizer's step."
)
LAST = "The gradients are those of the last micro-batch: zero them once, before the first."
SUMMED = "The gradients of earlier steps are still in: zero them at the beginning of each step."
UNDIVIDED = "Divide the loss of each micro-batch by the number of micro-batches."
DIVIDED_LATE = (
    "Divide the loss before backward(), not only in the sum: the gradients are too large."
)
FROZEN = "Every step uses the first rate: write the new one into the tensor that the graph reads."
RATE_BEFORE = "Each step uses the rate of the step before: write the new one before the replay."
AT_ONCE = (
    "The network gets {} rows at once, and a micro-batch has {}: together they would not fit, so "
    "pass one micro-batch at a time."
)
STAYS = (
    "Every step uses the first learning rate.",
    "Call scheduler.step() after each replay, outside of the graph.",
)
RECAPTURED = (
    "It captures {} graphs for {} steps.",
    "One is enough: the scheduler writes each learning rate into the tensor that the graph reads.",
)
ADAM = 1e-4  # its averages of tiny gradients round otherwise in another order of sums
PARTS = ("model", "optimizer", "scheduler")  # of a checkpoint
AVERAGES = ("exp_avg", "exp_avg_sq")  # of Adam
LOADED_LATE = (
    "The graph goes on with an optimizer's state that is not the checkpoint's.",
    "load_state_dict makes new tensors, and the graph keeps the old ones: load before the capture.",
)
WARM_AVERAGES = (
    "The first loss is right, the later ones are not.",
    "The warm-up changed the optimizer's averages that were loaded: let "
    "unchanged restore the optimizer too.",
)
NEW_SCHEDULE = ("The learning rates are those of a new schedule.", "Load the scheduler too.")
NEW_AVERAGES = ("The optimizer begins with empty averages.", "Load its state too.")
NEW_DRAWS = (
    "Dropout draws other numbers than the uninterrupted training.",
    "Set the random state of the checkpoint.",
)
NEW_WEIGHTS = ("The weights are those of the new process.", "Load the model too.")
NEW_TENSORS = (
    "The {owner} has new tensors for its {what}, and the graph goes on with the old ones.",
    "Copy into those that are there.",
)
OTHER_VALUES = (
    "The {owner} does not have the {what} of the checkpoint.",
    "Save clones, and copy them into place.",
)


def momentum(net: nn.Module, rate: float) -> tuple[torch.optim.Optimizer, torch.Tensor]:
    """SGD with a memory, and its learning rate in a tensor."""
    rate = torch.tensor(rate, device="cuda")
    return torch.optim.SGD(net.parameters(), rate, momentum=0.9, fused=True), rate


def train(
    net: nn.Module,
    batches: list,
    rates: list,
    zero: str = "step",
    clip: str = "step",
    divide: str = "loss",
) -> list:
    """The losses of an eager training of a copy of net. zero, clip: once for each "step" or "part",
    or "never".

    divide by the number of parts: each part's "loss",
    only the "sum" that is returned, or "nothing".
    """
    net, losses = copy.deepcopy(net), []
    (optimizer, tensor), weights = momentum(net, 0.0), list(net.parameters())
    for (inputs, targets), rate in zip(batches, rates, strict=True):
        tensor.fill_(rate)
        if zero == "step":
            optimizer.zero_grad()
        of_parts = []
        for pair in zip(inputs, targets, strict=True):
            if zero == "part":
                optimizer.zero_grad()
            loss = mse_loss(net(pair[0]), pair[1]) / (len(inputs) if divide == "loss" else 1)
            loss.backward()
            of_parts.append(loss.detach() / (len(inputs) if divide == "sum" else 1))
            if clip == "part":
                clip_grad_norm_(weights, BOUND)
        if clip == "step":
            clip_grad_norm_(weights, BOUND)
        optimizer.step()
        losses.append(torch.stack(of_parts).sum())
    return losses


def accumulating_step(answer: Callable) -> None:
    """Five batches of two to four micro-batches, and a rate that changes from step to step.

    The first two are nearly fitted, so their gradients stay
    below the bound of clipping, which hides their size.
    """
    net = perceptron(nn.Tanh())
    parts = few(2, 5)
    rows = few()
    rates = [0.4, 0.1, 0.3, 0.6, 0.2]
    batches = []
    for error in (0.2, 0.2, 3.0, 3.0, 3.0):
        inputs = 3 * torch.randn(parts, rows, 4, device="cuda")
        noise = error * torch.randn(parts, rows, 2, device="cuda")
        batches.append((inputs, net(inputs).detach() + noise))
    start = copy.deepcopy(net)
    expected = train(net, batches, rates)
    optimizer, rate = momentum(net, rates[0])
    given, seen = copied(batches[0]), []
    net.register_forward_pre_hook(lambda _, passed: seen.append(passed[0].shape[:-1].numel()))
    with callers_own("inputs or targets", given, batches):
        with untrained(net):
            step = answer(net, optimizer, rate, *given)
        momentum_empty(optimizer)
        requests = [(*batch, new) for batch, new in zip(batches, rates, strict=True)]
        used = use(step, requests)
        used.gives(expected, mistakes(start, batches, rates))
        detached(used.kept)
        used.replays(graphs=5, operators=30)
        if max(seen) > rows:
            raise Wrong(AT_ONCE.format(max(seen), rows))


def mistakes(
    net: nn.Module, batches: list, rates: list
) -> dict[str | tuple[str, str], Callable[[], list]]:
    """What is wrong with a training step -> a function that gives the losses that it leads to."""
    run = partial(train, net, batches)
    return {
        EVERY_TIME_THE_FIRST: lambda: train(net, batches[:1] * 5, rates),
        FROZEN: lambda: run(rates[:1] * 5),
        RATE_BEFORE: lambda: run(rates[:1] + rates[:-1]),
        LAST: lambda: run(rates, zero="part"),
        UNCLIPPED: lambda: run(rates, clip="never"),
        ONCE: lambda: run(rates, clip="part"),
        UNDIVIDED: lambda: run(rates, divide="nothing"),
        DIVIDED_LATE: lambda: run(rates, divide="sum"),
        SUMMED: lambda: run(rates, zero="never"),
    }


def new_training(net: nn.Module) -> tuple:
    """A copy of net, Adam with its learning rate in a tensor, and a schedule that lowers it."""
    net = copy.deepcopy(net)
    lr = torch.tensor(0.3, device="cuda")
    optimizer = torch.optim.Adam(net.parameters(), lr=lr, capturable=True)
    return net, optimizer, LambdaLR(optimizer, lambda number: 0.7**number)


def eager_losses(training: tuple, batches: list, schedule: bool = True) -> list:
    """The losses of an eager training, with or without its schedule."""
    net, optimizer, scheduler = training
    losses = []
    for inputs, targets in batches:
        losses.append(train_step(net, optimizer, inputs, targets))
        if schedule:
            scheduler.step()
    return losses


def resumed(
    net: nn.Module,
    checkpoint: dict,
    batches: list,
    load: tuple = PARTS,
    warm: tuple | None = None,
    schedule: bool = True,
    random: torch.Tensor | None = None,
) -> list:
    """The losses of a training that resumes with the parts of checkpoint that are named. warm: the
    batch of a warm-up of three steps, after which only the weights were restored. random: the
    random state, if it is not the checkpoint's.
    """
    training = new_training(net)
    random = checkpoint["rng_state"] if random is None else random
    torch.cuda.set_rng_state(random)
    for name, part in zip(PARTS, training, strict=True):
        if name in load:
            part.load_state_dict(copy.deepcopy(checkpoint[name]))
    if warm is not None:
        weights = copied(training[0].state_dict())
        eager_losses(training, [warm] * 3, schedule=False)
        training[0].load_state_dict(weights)
        torch.cuda.set_rng_state(random)
    return eager_losses(training, batches[checkpoint["step"] :], schedule)


def resumed_losses(answer: Callable) -> None:
    """A training with dropout, by Adam with a schedule, saved and resumed by a graph."""
    batches, done = draw_batches(few(8, 11)), few(2, 4)
    first = new_training(perceptron(nn.Dropout(0.3)))
    eager_losses(first, batches[:done])
    checkpoint = {name: part.state_dict() for name, part in zip(PARTS, first, strict=True)}
    checkpoint |= {"step": done, "rng_state": torch.cuda.get_rng_state()}
    checkpoint = copy.deepcopy(checkpoint)
    expected = eager_losses(first, batches[done:])
    net = perceptron(nn.Dropout(0.3))  # of the new process
    random = torch.cuda.get_rng_state()
    training, loaded_after = new_training(net), []
    optimizer = training[1]
    with callers_own("batches", batches), watch() as seen:
        optimizer.register_load_state_dict_pre_hook(
            lambda *_: loaded_after.append(len(seen.captured))
        )
        losses = answer(*training, copy.deepcopy(checkpoint), batches)
    count = len(expected)
    found = tensors_of(losses, count)
    not_the_last(found)
    if not close(found, expected, margin=ADAM):
        if any(loaded_after):
            raise Wrong(LOADED_LATE)
        not_resumed(found, partial(resumed, net, checkpoint, batches), random, seen)
    as_expected(found, expected, margin=ADAM)
    detached(found)
    if len(seen.captured) > 1:
        raise Wrong(filled(RECAPTURED, len(seen.captured), count))
    replayed_after_a_warm_up(seen, count)


def replayed_after_a_warm_up(seen: Watched, count: int) -> None:
    """Raises Wrong unless each batch was replayed, up to three apart that were the warm-up."""
    not_eager(seen)
    if not count - 3 <= len(seen.replayed) <= count:
        raise Wrong(
            f"{len(seen.replayed)} replays for {count} batches: "
            "each needs one, after a warm-up of up to three training steps."
        )


def not_resumed(found: list, again: partial, random: torch.Tensor, seen: Watched) -> None:
    """Raises Wrong with the reason why the losses are not those of a resumed training.
    random: the state in which the new process called the answer.
    """
    checkpoint, batches = again.args[1:]
    wrong_losses: list[tuple[tuple[str, str], Callable[[], list]]] = [
        (NEW_DRAWS, partial(again, random=random)),
        (STAYS, partial(again, schedule=False)),
        (NEW_SCHEDULE, partial(again, PARTS[:2])),
        (NEW_AVERAGES, partial(again, ("model", "scheduler"))),
        (NEW_WEIGHTS, partial(again, PARTS[1:])),
        (WARM_AVERAGES, partial(again, warm=batches[0])),
        (WARM_AVERAGES, partial(again, warm=batches[checkpoint["step"]])),
    ]
    match_symptoms(found, wrong_losses, ADAM)
    if seen.captured and not close(found[0], again()[0]):
        raise Wrong(TRAINED)


def checkpoints(answer: Callable) -> None:
    """A graph that trains a network with dropout and batch normalization by Adam, whose rate falls:
    saved once, and taken up again twice.
    """
    net = perceptron(nn.BatchNorm1d(8), nn.Dropout(0.5))
    inputs = torch.randn(few(4, 9), 4, device="cuda")
    lr = torch.tensor(0.05, device="cuda")
    optimizer = torch.optim.Adam(net.parameters(), lr, capturable=True)

    def step():
        optimizer.zero_grad()
        loss = net(inputs).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    with unchanged(net, optimizer):
        replay = capture_step(step)
    known = known_to(net, optimizer)
    save, load = functions(answer(net, optimizer), "save", "load")
    four_losses(replay, lr)
    saved, right = save(), copied(known)
    straight = four_losses(replay, lr)
    for _ in range(2):
        load(saved)
        judge(net, optimizer, known, right)
        if not close(four_losses(replay, lr), straight):
            raise Wrong(
                "Dropout draws other numbers than after the checkpoint: "
                "save the random state, and set it."
            )


def four_losses(replay: Callable, lr: torch.Tensor) -> list:
    """The losses of the next four steps; the learning rate falls after each of them."""
    losses = []
    for _ in range(4):
        losses.append(replay().clone())
        lr.mul_(0.5)
    return losses


def known_to(net: nn.Module, optimizer: torch.optim.Optimizer) -> dict:
    """The tensors that a graph of a training step knows, by whose and what they are."""
    states = list(optimizer.state.values())
    return {
        ("network", "weights"): list(net.parameters()),
        ("network", "running averages of the batch normalization"): list(net.buffers()),
        ("optimizer", "averages"): [state[name] for state in states for name in AVERAGES],
        ("optimizer", "counts of steps"): [state["step"] for state in states],
        ("optimizer", "learning rate"): [optimizer.param_groups[0]["lr"]],
    }


def judge(net: nn.Module, optimizer: torch.optim.Optimizer, known: dict, right: dict) -> None:
    """Raises Wrong unless the tensors that the graph knows are still in use, and hold what is
    right.
    """
    now = known_to(net, optimizer)
    for (owner, what), tensors in known.items():
        if list(map(id, now[owner, what])) != list(map(id, tensors)):
            raise Wrong(filled(NEW_TENSORS, owner=owner, what=what))
        if not close(tensors, right[owner, what]):
            raise Wrong(filled(OTHER_VALUES, owner=owner, what=what))
