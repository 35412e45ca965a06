"""The ladder of "Shorten a step to its kernel time": the same training, from eager down to the kernels' own time.

RUNGS: name -> build(batches), which gives a step: a function without arguments that trains on the next batch, or on
the next STEPS_PER_CALL, and returns the last loss, a 0-d CUDA tensor that the next call may overwrite. step.model is
what it trains, step.losses all losses of several steps. All start from the same weights and random state.
"""

from collections.abc import Callable, Iterable
from functools import partial
from itertools import cycle, islice

import torch
from torch import Tensor, nn

from helpers.capture import capture_step, unchanged
from helpers.model import DROPOUTS, make_model, training_step

Batches = list[tuple[Tensor, Tensor]]  # as make_batches gives them
Step = Callable[[], Tensor]

STEPS = 10  # of the rungs that hold several steps in one graph


def fresh(
    dropouts: tuple[float, ...], fused: bool | None = True
) -> tuple[nn.Module, torch.optim.Optimizer]:
    """A model that has never run, always with the same weights, and its optimizer."""
    model = make_model(dropouts=dropouts)
    return model, torch.optim.SGD(model.parameters(), lr=0.1, fused=fused)


def on_each(items: Iterable[tuple], train: Callable, model: nn.Module) -> Step:
    """The step that calls train with the next of the items, round and round."""
    upcoming = cycle(items)

    def step():
        return train(*next(upcoming))

    step.model = model
    return step


def eager(
    batches: Batches, dropouts: tuple[float, ...] = DROPOUTS, fused: bool | None = None
) -> Step:
    """The ordinary step; fused=None leaves the kind of optimizer to PyTorch."""
    model, optimizer = fresh(dropouts, fused)
    return on_each(batches, partial(training_step, model, optimizer), model)


def graphed_callables(batches: Batches, dropouts: tuple[float, ...] = DROPOUTS) -> Step:
    """Forward and backward in graphs; loss and optimizer eager."""
    model, optimizer = fresh(dropouts)
    with unchanged(model, optimizer):
        graphed = torch.cuda.make_graphed_callables(model, (batches[0][0].clone(),))
    return on_each(batches, partial(training_step, graphed, optimizer), model)


def captured(
    buffers: Iterable[Iterable[Tensor]], dropouts: tuple[float, ...]
) -> tuple[nn.Module, list[Step]]:
    """A new model, and a replay of its whole step per (inputs, targets), all in one pool: they run in turn."""
    model, optimizer = fresh(dropouts)
    train = partial(training_step, model, optimizer)
    pool = torch.cuda.graph_pool_handle()
    replays = []
    with unchanged(model, optimizer):
        for buffer in buffers:
            replays.append(capture_step(train, *buffer, warmup=0 if replays else 3, pool=pool))
    return model, replays


def whole_step(batches: Batches, dropouts: tuple[float, ...] = DROPOUTS) -> Step:
    """All in one graph; every step copies its batch in."""
    model, (replay,) = captured([map(torch.clone, batches[0])], dropouts)
    return on_each(batches, replay, model)


def inputs_in_place(batches: Batches, dropouts: tuple[float, ...] = DROPOUTS) -> Step:
    """One graph per batch, which reads it where it lies."""
    model, replays = captured(batches, dropouts)
    return on_each(zip(replays, strict=True), lambda replay: replay(), model)


def inputs_behind(batches: Batches, dropouts: tuple[float, ...] = DROPOUTS) -> Step:
    """Two graphs; while one runs, a side stream copies the next batch in for the other."""
    buffers = [[tensor.clone() for tensor in batches[0]] for _ in range(2)]
    model, replays = captured(buffers, dropouts)
    main = torch.cuda.current_stream()
    side = torch.cuda.Stream()
    upcoming = cycle(batches[1:] + batches[:1])

    def train(replay, other):
        main.wait_stream(side)  # this step's inputs have arrived
        side.wait_stream(main)  # the step before has finished with the other buffer
        with torch.cuda.stream(side):
            for static, new in zip(other, next(upcoming), strict=True):
                static.copy_(new)
        return replay()

    return on_each(zip(replays, buffers[::-1], strict=True), train, model)


def forward_and_loss(
    model: nn.Module, inputs: Tensor, targets: Tensor, bf16: bool = False
) -> Tensor:
    """The loss, a 0-d tensor; with bf16 under autocast, which ends here."""
    with torch.autocast("cuda", torch.bfloat16, enabled=bf16):
        return torch.nn.functional.mse_loss(model(inputs), targets)


def train_on(
    loss_of: Callable,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    inputs: Tensor,
    targets: Tensor,
) -> Tensor:
    """A training step around loss_of(model, inputs, targets); returns the loss without its graph of gradients."""
    optimizer.zero_grad(set_to_none=True)
    loss = loss_of(model, inputs, targets)
    loss.backward()
    optimizer.step()
    return loss.detach()


def ten_steps(
    batches: Batches,
    dropouts: tuple[float, ...] = DROPOUTS,
    bf16: bool = False,
    compiled: bool = False,
) -> Step:
    """STEPS steps in one graph; step.losses are those of the last call."""
    model, optimizer = fresh(dropouts)
    loss_of = torch.compile(forward_and_loss, fullgraph=True, dynamic=False, disable=not compiled)
    train = partial(train_on, partial(loss_of, bf16=bf16), model, optimizer)
    with unchanged(model, optimizer):
        replay = capture_step(
            lambda: [train(*batch) for batch in islice(cycle(batches), STEPS)], warmup=1
        )
        step = on_each([()], lambda: replay()[-1], model)
        step.losses = replay()  # undone; these tensors hold the losses of every later call
    return step


RUNGS = {
    "eager": eager,
    "fused optimizer": partial(eager, fused=True),
    "make_graphed_callables": graphed_callables,
    "whole step": whole_step,
    "inputs in place": inputs_in_place,
    "inputs behind the step": inputs_behind,
    "ten steps": ten_steps,
    "ten steps, compiled": partial(ten_steps, compiled=True),
    "ten steps, bf16": partial(ten_steps, bf16=True),
    "ten steps, bf16 compiled": partial(ten_steps, bf16=True, compiled=True),
}
STEPS_PER_CALL = {name: STEPS for name in RUNGS if name.startswith("ten steps")}
