"""The ladder of "Reach the floor": the same training, from eager down to the kernels' own time.

RUNGS maps a name to build(batches), which gives a step: a function without arguments that trains
on the next batch, or on the next STEPS_PER_CALL, and returns the last loss, a 0-d CUDA tensor that
the next call may overwrite. step.model is what it trains; step.losses are all losses of a call of
several steps. Every rung starts from the same weights and leaves the random state as it found it.
"""

from contextlib import contextmanager
from functools import partial
from itertools import cycle, islice

import torch

from helpers.capture import capture_step
from helpers.model import DROPOUTS, make_model, training_step

STEPS = 10  # of the rungs that hold several steps in one graph


def fresh(dropouts, fused=True):
    """A model that has never run, always with the same weights, and its optimizer."""
    model = make_model(dropouts=dropouts)
    return model, torch.optim.SGD(model.parameters(), lr=0.1, fused=fused)


@contextmanager
def untouched(model):
    """Put weights and random state back afterwards: the warm-up trains for real."""
    weights = {name: value.detach().clone() for name, value in model.state_dict().items()}
    random_state = torch.cuda.get_rng_state()
    yield
    model.load_state_dict(weights)
    torch.cuda.set_rng_state(random_state)


def on_each(items, train, model):
    """The step that calls train with the next of the items, round and round."""
    upcoming = cycle(items)

    def step():
        return train(*next(upcoming))

    step.model = model
    return step


def eager(batches, dropouts=DROPOUTS, fused=None):
    model, optimizer = fresh(dropouts, fused)
    return on_each(batches, partial(training_step, model, optimizer), model)


def graphed_callables(batches, dropouts=DROPOUTS):
    model, optimizer = fresh(dropouts)
    with untouched(model):
        graphed = torch.cuda.make_graphed_callables(model, (batches[0][0].clone(),))
    return on_each(batches, partial(training_step, graphed, optimizer), model)


def whole_step(batches, dropouts=DROPOUTS):
    model, optimizer = fresh(dropouts)
    with untouched(model):
        replay = capture_step(partial(training_step, model, optimizer), *map(torch.clone, batches[0]))
    return on_each(batches, replay, model)


def capture_all(train, buffers):
    """A graph and its loss per (inputs, targets), all in one memory pool, for they run in turn."""
    capture_step(train, *buffers[0])  # for its warm-up
    pool, captured = torch.cuda.graph_pool_handle(), []
    for buffer in buffers:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            captured.append((graph, train(*buffer)))
    return captured


def replay(graph, loss):
    graph.replay()
    return loss


def inputs_in_place(batches, dropouts=DROPOUTS):
    model, optimizer = fresh(dropouts)
    with untouched(model):
        captured = capture_all(partial(training_step, model, optimizer), batches)
    return on_each(captured, replay, model)


def inputs_behind(batches, dropouts=DROPOUTS):
    model, optimizer = fresh(dropouts)
    buffers = [[tensor.clone() for tensor in batches[0]] for _ in range(2)]
    with untouched(model):
        captured = capture_all(partial(training_step, model, optimizer), buffers)
    main, side, upcoming = torch.cuda.current_stream(), torch.cuda.Stream(), cycle(batches[1:] + batches[:1])

    def train(captured, other):
        main.wait_stream(side)  # this step's inputs have arrived
        side.wait_stream(main)  # the step before has finished with the other buffer
        with torch.cuda.stream(side):
            for static, new in zip(other, next(upcoming), strict=True):
                static.copy_(new)
        return replay(*captured)

    return on_each(list(zip(captured, buffers[::-1], strict=True)), train, model)


def forward_and_loss(model, inputs, targets, bf16=False):
    with torch.autocast("cuda", torch.bfloat16, enabled=bf16, cache_enabled=False):
        return torch.nn.functional.mse_loss(model(inputs), targets)


def train_on(loss_of, model, optimizer, inputs, targets):
    optimizer.zero_grad(set_to_none=True)
    loss = loss_of(model, inputs, targets)
    loss.backward()
    optimizer.step()
    return loss.detach()


def ten_steps(batches, dropouts=DROPOUTS, bf16=False, compiled=False):
    model, optimizer = fresh(dropouts)
    loss_of = partial(forward_and_loss, bf16=bf16)
    if compiled:
        loss_of = torch.compile(loss_of, fullgraph=True, dynamic=False)  # the warm-up compiles
    train = partial(train_on, loss_of, model, optimizer)
    with untouched(model):
        replay = capture_step(lambda: [train(*batch) for batch in islice(cycle(batches), STEPS)], warmup=1)

    def step():
        step.losses = replay()
        return step.losses[-1]

    step.model = model
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
