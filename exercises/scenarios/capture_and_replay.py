"""Scenarios: a network predicts, a state moves."""

import copy
import gc
import weakref
from collections.abc import Callable

import torch
from torch import nn

from exercises.answers.graph_use import (
    call_answer,
    require_distinct_results,
    require_no_freed_reads,
)
from exercises.answers.tensors import are_close
from exercises.answers.wrong import Wrong
from exercises.scenarios.common import NO_WARM_UP, Runs, draw_int, require_replays, unpack_tensors
from exercises.scenarios.rules import call_with_one_graph, require_one_graph, unmodified
from exercises.scenarios.warm_ups import record_passes

FROZEN = (
    "Every result is divided by the sample's magnitude.",
    "That is a number, which the capture has frozen: compute it in the capture, as a tensor.",
)


def judge_make_predictor(answer: Callable) -> None:
    """A network of one layer, and five inputs; the sample is the first."""
    net, sample = _judge_predictor(answer, lambda net, inputs, sample: net(inputs), {})
    _require_weights_alive(answer, net, sample)


def judge_make_scaled_predictor(answer: Callable) -> None:
    """The same network; each result is divided by its largest magnitude."""
    _judge_predictor(
        answer,
        lambda net, inputs, sample: net(inputs) / net(inputs).abs().max(),
        {FROZEN: lambda net, inputs, sample: net(inputs) / net(sample).abs().max()},
    )


def _judge_predictor(answer, result_of, symptoms):
    """Build a predictor and use it. Returns the network and the sample.

    result_of(net, inputs, sample): what it should return, or, as a value of symptoms, what it
    returns if something is wrong.
    """
    net = nn.Linear(4, 3).cuda()
    batches = torch.randn(5, draw_int(), 4, device="cuda")
    sample = batches[0].clone()
    with torch.no_grad():
        expected = [result_of(net, inputs, sample) for inputs in batches]
        mistaken = {
            message: [wrong(net, inputs, sample) for inputs in batches]
            for message, wrong in symptoms.items()
        }

    every, recorded = record_passes(net)
    with unmodified("sample", sample):
        used = call_answer(call_with_one_graph(answer, net, sample), list(batches))
        # in each call a copy in, an empty tensor, a copy out
        used.require_launches(graphs=5, operators=15)
        require_no_freed_reads()
    used.require_results(expected, mistaken)
    if every.cold:
        raise Wrong(NO_WARM_UP)
    if recorded.captured:
        raise Wrong(
            "Autograd records the captured pass.",
            "A prediction needs no gradients: capture under torch.no_grad().",
        )
    return net, sample


def _require_weights_alive(answer, net, sample):
    """Raises Wrong if the weights of a network do not live as long as its predictor."""
    net = copy.deepcopy(net)
    weights = [weakref.ref(weight) for weight in net.parameters()]
    predict = answer(net, sample)
    del net
    gc.collect()
    if predict and not all(weight() is not None for weight in weights):
        raise Wrong(
            "The caller deletes the network after the capture, and then the graph reads freed "
            "memory: who keeps the weights?"
        )


def judge_trajectory(answer: Callable) -> None:
    """A state of three numbers, and a step that moves it."""
    states = draw_int(3)
    weight, shift = torch.randn(2, 3, device="cuda")
    start = torch.randn(3, device="cuda")
    step = Runs(lambda state: weight * state.sin() + shift)
    expected = [start]
    for _ in range(states):
        expected.append(step.function(expected[-1]))
    del expected[0]
    with unmodified("start", start):
        used = call_answer(lambda: answer(step, start, states), [()], what="It")
        found = unpack_tensors(used.kept[0], states, "states")
    require_no_freed_reads()
    if not are_close(found, expected):
        _raise_state_symptom(found, expected)
    require_replays(used.seen, states, "states")
    require_one_graph(used.seen)
    if step.cold:
        raise Wrong(NO_WARM_UP)


def _raise_state_symptom(found, expected):
    """Raises Wrong with what is wrong with a list of states."""
    if are_close(found, expected[:1] * len(found)):
        raise Wrong(
            "Every state is the first one: the graph must write the new "
            "state where it reads the old one."
        )
    require_distinct_results(found)
    if not are_close(found[0], expected[0]):
        raise Wrong("The first state is not the first: the warm-up has moved it, so put it back.")
    raise Wrong(
        "The states are not the eager ones: does a replay read the state that the last one wrote?"
    )
