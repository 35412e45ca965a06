"""Scenarios: two broken captures, a training run that goes on, a whole training step."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import nn

from exercises.answers.graph_use import (
    call_answer,
    raise_symptom,
    require_distinct_results,
    require_expected,
    watch_graphs,
)
from exercises.answers.launches import count_launches
from exercises.answers.tensors import are_close, copy_tensors
from exercises.answers.wrong import EVERY_TIME_THE_FIRST, Wrong
from exercises.scenarios.common import require_replays, unpack, unpack_tensors
from exercises.scenarios.eager import draw_batches, losses_of, momentum, perceptron, sgd
from exercises.scenarios.rules import refuse_grad, require_one_graph, unmodified
from exercises.scenarios.warm_ups import (
    ANEW,
    TRAINED,
    record_passes,
    require_no_draws,
    require_no_momentum,
    require_side_stream,
    require_untrained,
)
from helpers.capture import unchanged
from helpers.model import training_step

CALLERS = "inputs or targets"
LARGEST_NORM = 0.1
NOT_CLIPPED = "The gradients are not clipped: clip them after backward, inside the captured step."


def judge_train_epoch(answer: Callable) -> None:
    """Five batches, of which the graph must see each one; they still serve the next epoch."""
    net, batches = perceptron(nn.Tanh()), draw_batches(5)
    expected = losses_of(net, momentum, batches)
    of_the_first = losses_of(net, momentum, batches[:1] * 5)
    before, initial = copy_tensors(batches), copy.deepcopy(net)
    with unmodified("the first batch", batches):
        with watch_graphs() as seen:
            losses = answer(net, momentum(net.parameters()), batches)
        require_replays(seen, 5)
        require_one_graph(seen)
        losses = unpack_tensors(losses, 5)
        raise_symptom(losses, [(EVERY_TIME_THE_FIRST, of_the_first)])
        require_distinct_results(losses)
        warmed = partial(losses_of, initial, momentum)
        symptoms = [(TRAINED, warmed(before[:1] * n + before)[n:]) for n in range(1, 6)]
        require_expected(losses, expected, symptoms)
        refuse_grad(losses)


def judge_log_and_capture(answer: Callable) -> None:
    """The norm of the weights before training, and five steps of training from a graph."""
    net, batches = perceptron(nn.Tanh()), draw_batches(5)
    expected = losses_of(net, momentum, batches)
    norm_before = torch.cat([weight.detach().flatten() for weight in net.parameters()]).norm()
    optimizer = momentum(net.parameters())
    with unmodified(CALLERS, batches):
        with require_untrained(net):
            norm, train = unpack(answer(net, optimizer, *batches[0]), "the norm", "a function")
        if torch.is_tensor(norm) and norm.requires_grad:
            raise Wrong(
                "The norm of the weights requires a gradient: it keeps its autograd graph alive, "
                "and with it AccumulateGrad's stream.",
                "Detach it.",
            )
        used = call_answer(train, batches)
        used.require_results(expected)
        used.require_launches(graphs=5, operators=15)
        if not are_close([torch.as_tensor(norm)], [norm_before]):
            raise Wrong("The norm is not that of the weights before training.")
        refuse_grad(used.kept)


def judge_continue_with_graph(answer: Callable) -> None:
    """A network with batch normalisation and dropout, captured after three eager steps."""
    net, batches = perceptron(nn.BatchNorm1d(8), nn.Dropout(0.5)), draw_batches(8)
    optimizer = momentum(net.parameters())

    step = partial(training_step, net, optimizer)
    for batch in batches[:3]:
        step(*batch)
    with unchanged(net, optimizer):
        expected = [step(*batch) for batch in batches[3:]]
    with unmodified(CALLERS, batches):
        _, recorded = record_passes(net)
        with require_no_draws(), _require_training_restored(net, optimizer):
            train = answer(net, optimizer, step, *batches[3])
        require_side_stream(recorded.eager)
        used = call_answer(train, batches[3:])
        used.require_results(expected)
        used.require_launches(graphs=5, operators=15)
    refuse_grad(used.kept)


@contextmanager
def _require_training_restored(net: nn.Module, optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Raises Wrong if the block leaves a change in the training run."""

    def momenta():
        return [state["momentum_buffer"] for state in optimizer.state.values()]

    weights = copy_tensors(list(net.parameters()))
    buffers = copy_tensors(list(net.buffers()))
    gathered = momenta()
    values = copy_tensors(gathered)
    yield
    if not are_close(list(net.parameters()), weights):
        raise Wrong(TRAINED)
    if not are_close(list(net.buffers()), buffers):
        raise Wrong(
            "The warm-up moved the running statistics of the batch normalisation: restore the "
            "network's buffers too."
        )
    now = momenta()
    if [tensor.data_ptr() for tensor in now] != [tensor.data_ptr() for tensor in gathered]:
        raise Wrong(
            "The optimizer has new tensors, and the graph works on the old ones: copy the old "
            "values back in place, instead of load_state_dict."
        )
    if not any(tensor.count_nonzero() for tensor in now):
        raise Wrong(
            "The momentum of the training so far is gone: save its values before the warm-up, and "
            "copy them back."
        )
    if not are_close(now, values):
        raise Wrong("The warm-up changed the momentum: restore its values, in place.")


def judge_capture_training(answer: Callable) -> None:
    """A network with dropout and an optimizer with momentum, trained on five batches, its gradients
    clipped.
    """
    net, batches = perceptron(nn.Dropout(0.5)), draw_batches(5)
    before = copy_tensors(net.state_dict())
    twin = copy.deepcopy(net)
    step = partial(training_step, twin, _clipping_factory(momentum)(twin.parameters()))
    with unchanged():
        expected, trained = [step(*batch) for batch in batches], twin.state_dict()
    forgetful = losses_of(net, _clipping_factory(sgd), batches)
    unclipped = losses_of(net, momentum, batches)
    optimizer = momentum(net.parameters())
    with unmodified(CALLERS, batches):
        _, recorded = record_passes(net)
        with require_no_draws(), require_untrained(net):
            with count_launches() as building:
                train = answer(net, optimizer, *batches[0])
            require_side_stream(recorded.eager)
        if building["operators"] > 10:
            require_no_momentum(optimizer)
        used = call_answer(train, batches)
        if not optimizer.state:
            raise Wrong(
                "The optimizer has lost the state that the graph works on: "
                "set it to zero in place instead."
            )
        used.require_results(expected, {ANEW: forgetful, NOT_CLIPPED: unclipped})
        used.require_launches(graphs=5, operators=15)
    if _distance(net.state_dict(), trained) > 1e-2 * _distance(before, trained):
        raise Wrong(
            "The losses are close to the eager ones, but the weights after five steps are not: "
            "from which batches do the gradients of a step come?"
        )
    refuse_grad(used.kept)


def _distance(weights: dict, others: dict) -> float:
    """How far two state dicts are apart."""
    return sum((weights[name] - others[name]).square().sum().item() for name in weights) ** 0.5


def _clipping_factory(make: Callable) -> Callable:
    """An optimizer like make's, which clips the gradients before each step."""

    def build(parameters):
        parameters = list(parameters)
        optimizer = make(parameters)

        def clip(*_):
            nn.utils.clip_grad_norm_(parameters, LARGEST_NORM)

        optimizer.register_step_pre_hook(clip)
        return optimizer

    return build
