"""The four loops of the examples that the course grew from, written anew from their description.

ORIGINALS maps a label to build(batches, model), which gives a step like those of
benchmarks.ladder.RUNGS: a function without arguments that trains on the next batch, with the model
as step.model. Sizes, optimizer and record_function ranges are those of helpers.model, which come
from the same examples. The last loop is kept as published, defect included: its label says what is
wrong with it.
"""

from functools import partial

import torch
from torch.nn.functional import mse_loss
from torch.profiler import record_function

from benchmarks.ladder import Batches, Step, on_each
from helpers.model import make_optimizer, training_step

WHOLE_STEP = "whole step by hand"
DEFECT = "block2 only, as published (block1 does not train)"


def eager(batches: Batches, model: torch.nn.Module) -> Step:
    """The loop without a graph."""
    return on_each(batches, partial(training_step, model, make_optimizer(model)), model)


def whole_step(batches: Batches, model: torch.nn.Module) -> Step:
    """Forward pass, loss, backward pass and optimizer in one graph; every step copies its
    batch in.
    """
    optimizer = make_optimizer(model)
    static_input, static_target = (torch.randn_like(tensor) for tensor in batches[0])
    warm_up(partial(training_step, model, optimizer, static_input, static_target))
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        static_loss = mse_loss(model(static_input), static_target)
        static_loss.backward()
        optimizer.step()

    def train(inputs, targets):
        with record_function("## copy_input_data ##"):
            static_input.copy_(inputs)
            static_target.copy_(targets)
        with record_function("## graph.replay ##"):
            graph.replay()
        return static_loss.detach()

    return on_each(batches, train, model)


def warm_up(step: Step) -> None:
    """Three steps on a side stream, each stream waiting for the other."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)


def graphed_model(batches: Batches, model: torch.nn.Module) -> Step:
    """Only the model's forward and backward pass in graphs; the loop stays as it is."""
    graphed = torch.cuda.make_graphed_callables(
        model, (torch.randn_like(batches[0][0]),), num_warmup_iters=3
    )
    return eager(batches, graphed)


def graphed_block2(batches: Batches, model: torch.nn.Module) -> Step:
    """Only block2 in graphs. Defect: the sample requires no gradient, so none is captured for
    block1.
    """
    with torch.no_grad():
        sample = model.block1(batches[0][0])
    model.block2 = torch.cuda.make_graphed_callables(model.block2, (sample,), num_warmup_iters=3)
    return eager(batches, model)


ORIGINALS = {
    "eager": eager,
    WHOLE_STEP: whole_step,
    "make_graphed_callables": graphed_model,
    DEFECT: graphed_block2,
}
