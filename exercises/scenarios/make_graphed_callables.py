"""Scenarios: graphed callables in a training loop."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from exercises.answers.comparison import short_repr
from exercises.answers.graph_use import (
    GraphUse,
    call_answer,
    raise_symptom,
    require_expected,
    watch_graphs,
)
from exercises.answers.tensors import are_close, copy_tensors
from exercises.answers.wrong import EAGER, Wrong
from exercises.scenarios.common import NO_WARM_UP, require_replay, unpack_tensors
from exercises.scenarios.eager import accumulated_gradients, draw_batches, grads_of, losses_of, sgd
from exercises.scenarios.rules import refuse_grad, unmodified
from exercises.scenarios.warm_ups import Net

OTHER_MODE = (EAGER, "A graphed module replays only in the mode that it was graphed in.")
STILL_DROPS = (
    "The first block still drops.",
    "A graph keeps the mode that a block had in the capture.",
)
ALL_OFF = ("All dropout is off.", "Only that of the first block should be.")
TWICE = (
    "The losses are those of a training in which, from the second step "
    "on, each gradient counts twice.",
    "What does .grad hold just before autograd adds the new gradient to it?",
)
LAST_TWICE = (
    "After two micro-batches .grad holds twice the gradient of the second one.",
    "It is the graph's own memory, which the second replay overwrites.",
)


def judge_graph_without_one_dropout(answer: Callable) -> None:
    """A block with dropout, which is to be off, and a second dropout, which is to stay on."""
    block = nn.Sequential(nn.Linear(4, 64), nn.Dropout(0.5))
    net = Net(block, nn.Tanh(), nn.Dropout(0.5), nn.Linear(64, 2)).cuda()
    frozen, unfrozen, without = (copy.deepcopy(net) for _ in range(3))
    frozen[0].eval()
    without.eval()
    batches = draw_batches(3)
    sample = batches[0][0].clone()
    with unmodified("inputs", sample):
        graphed = _require_module(_answer(answer, net, sample))
        for batch in batches:
            found, seen = _output_and_gradients(graphed, batch)
            if not seen.replayed:
                raise Wrong(OTHER_MODE)
            if are_close(found, _output_and_gradients(frozen, batch)[0]):
                continue
            symptoms = [(STILL_DROPS, _output_and_gradients(unfrozen, batch)[0])]
            symptoms += [(ALL_OFF, _output_and_gradients(without, batch)[0])]
            raise_symptom(found, symptoms)
            raise Wrong("Output and gradients are not eager's with the first block in eval().")


def judge_train_in_place(answer: Callable) -> None:
    """Five batches, one for each step of plain SGD."""
    net = Net(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)).cuda()
    batches = draw_batches(5)
    start = copy.deepcopy(net)
    expected = losses_of(start, sgd, batches)
    doubled = losses_of(start, sgd, batches, rates=[0.1] + 4 * [0.2])
    Net.runs = 0
    with unmodified("the first batch", batches):
        with watch_graphs() as seen:
            losses = answer(net, sgd(net.parameters()), batches)
        require_replay(seen)
        if not Net.runs:
            raise Wrong(NO_WARM_UP)
        if isinstance(losses, list):  # of numbers, perhaps
            losses = list(map(torch.as_tensor, losses))
        losses = unpack_tensors(losses, len(batches))
        if len(seen.captured) > 2:
            raise Wrong(
                f"{len(seen.captured)} graphs were captured.", "Graph once, before the loop."
            )
        if len(seen.replayed) != 10:
            raise Wrong(f"{len(seen.replayed)} graphs were replayed where 5 steps need 2 each.")
        require_expected(losses, expected, [(TWICE, doubled)], what="Loss")
        refuse_grad(losses)


def judge_graph_siamese(answer: Callable) -> None:
    """Three pairs of batches, each with one forward and one backward pass."""
    net = Net(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)).cuda()
    twin = copy.deepcopy(net)
    inputs = [batch for batch, _ in draw_batches(8)]
    samples = [batch.clone() for batch in inputs[:2]]
    with unmodified("a or b", samples):
        loss_of = _answer(answer, net, *samples)
        for pair in zip(inputs[2::2], inputs[3::2], strict=True):
            net.zero_grad(set_to_none=True)
            twin.zero_grad(set_to_none=True)
            expected = (twin(pair[0]) - twin(pair[1])).square().mean()
            expected.backward()
            used = call_answer(loss_of, [pair])
            loss = used.kept[0]
            if not torch.is_tensor(loss) or not loss.requires_grad:
                raise Wrong("backward() cannot run on what it returns.", "Return the loss itself.")
            loss.backward()
            used.require_only_replays()
            _require_siamese(loss, expected, net, twin)


def _require_siamese(loss: torch.Tensor, expected: torch.Tensor, net: Net, twin: Net) -> None:
    """Raises Wrong unless loss and gradients of a pair are eager's."""
    if not loss.count_nonzero():
        raise Wrong(
            "The loss is 0, whatever the pair.",
            "The second call writes its output where that of the first one was.",
        )
    if not are_close(loss, expected):
        raise Wrong("The loss differs from eager.")
    if not are_close(grads_of(net), grads_of(twin)):
        raise Wrong(
            "The loss is right, but the gradients differ from eager.",
            "Does the second forward pass overwrite what the backward pass of the first one reads?",
        )


def judge_graph_for_accumulation(answer: Callable) -> None:
    """A model with batch normalization, and an ordinary loop of three steps with two micro-batches
    each.
    """
    net = Net(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2)).cuda()
    twin, batches = copy.deepcopy(net), draw_batches(6)
    before, sample = copy_tensors(net.state_dict()), batches[0][0].clone()
    buffers = {name: buffer.data_ptr() for name, buffer in net.named_buffers()}
    with unmodified("inputs", sample):
        graphed = _require_module(_answer(answer, net, sample))
        if not are_close(graphed.state_dict(), before):
            raise Wrong(
                "The warm-up moved the running statistics of batch normalization.",
                "Copy their values back in place.",
            )
        for name, buffer in graphed.named_buffers():
            if buffer.data_ptr() != buffers[name]:
                raise Wrong(
                    f"{name} is a new tensor, but the graph still updates the old one.",
                    "Copy the value back in place.",
                )
        for pair in (batches[:2], batches[2:4], batches[4:]):
            for module in (graphed, twin):
                module.zero_grad(set_to_none=False)
            expected = accumulated_gradients(twin, pair)
            with watch_graphs() as seen:
                found = accumulated_gradients(graphed, pair)
            once = copy.deepcopy(twin)
            once.zero_grad()
            last = accumulated_gradients(once, pair[1:])
            if not seen.replayed:
                raise Wrong(OTHER_MODE)
            twice = [2 * gradient for gradient in last]
            require_expected(found, expected, [(LAST_TWICE, twice)], what="Gradient")
        if not are_close(graphed.state_dict(), twin.state_dict()):
            raise Wrong("The running statistics after the training are not those of eager.")


def _answer(answer: Callable, net: Net, *samples: torch.Tensor) -> Any:
    """What the answer returns for net; raises Wrong if it captured net without a warm-up."""
    Net.runs = 0
    with watch_graphs() as seen:
        graphed = answer(net, *samples)
    if seen.captured and not Net.runs:
        raise Wrong(NO_WARM_UP)
    return graphed


def _require_module(graphed: Any) -> nn.Module:
    """What the answer returned, if that is a module."""
    if not isinstance(graphed, nn.Module):
        raise Wrong(f"The graphed module is to be returned, not {short_repr(graphed)}.")
    return graphed


def _output_and_gradients(module: nn.Module, batch: tuple) -> tuple[list, GraphUse]:
    """Output and gradients of one pass with the same random numbers, and what was replayed."""
    torch.manual_seed(0)
    module.zero_grad(set_to_none=True)
    with watch_graphs() as seen:
        output = copy_tensors(module(batch[0]))
        torch.manual_seed(0)
        gradients = accumulated_gradients(module, [batch])
    return [output, *gradients], seen
