"""Scenarios: a graph serves requests, a network predicts, a state moves. Each raises Wrong with the
symptom it finds.
"""

import copy
import gc
import weakref
from collections.abc import Callable

import torch
from torch import nn

from exercises.answers.graph_use import (
    EAGER,
    EVERY_TIME_THE_FIRST,
    ON_THE_STAND_IN,
    Wrong,
    close,
    copied,
    nothing_freed,
    use,
    watch,
)
from exercises.scenarios.common import ONE_BEHIND, few
from exercises.scenarios.rules import callers_own, one_graph

SHARED = "they share the graph's memory, so clone each."
FROZEN = (
    "Every result is divided by the sample's magnitude.",
    "That is a number, which the capture has frozen: compute it in the capture, as a tensor.",
)


def serve(answer: Callable) -> None:
    """A graph that doubles three numbers, and a few requests."""
    static_input = torch.randn(3, device="cuda")
    before = copied(static_input)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        static_output = 2 * static_input
    requests = list(torch.randn(few(3), 3, device="cuda"))
    given = copied(requests)
    expected = [2 * request for request in requests]

    used = use(lambda: answer(graph, static_input, static_output, requests), [()], what="It")
    found = used.kept[0]
    replays = used.counts["graphs"]
    if not isinstance(found, list) or len(found) != len(requests):
        raise Wrong(f"It should return a list of {len(requests)} results, one for each request.")
    if not close(requests, given):
        raise Wrong("It changes the requests: copy each into static_input.")
    if used.seen.captured:
        raise Wrong("It captures a graph of its own: replay the one that it was given.")
    if replays == 0:
        raise Wrong(EAGER)
    if replays != len(requests):
        raise Wrong(
            f"The number of replays is {replays} for {len(requests)} requests: each needs one."
        )
    if close(found, expected):
        return
    if close(found, [2 * before] * len(found)):
        raise Wrong(
            "Every result is that of the old static_input: write each request into it with copy_."
        )
    if close(found, [found[-1]] * len(found)):
        raise Wrong(f"Every result is the last one: {SHARED}")
    if close(found, [2 * before, *expected[:-1]]):
        raise Wrong(ONE_BEHIND)
    raise Wrong("The results are not twice the requests.")


def make_predictor(answer: Callable) -> None:
    """A network of one layer, and five inputs; the sample is the first."""
    net, sample = _predict(answer, lambda net, inputs, sample: net(inputs), {}, margin=0.0)
    _keeps_weights(answer, net, sample)


def make_scaled_predictor(answer: Callable) -> None:
    """The same network; each result is divided by its largest magnitude."""
    _predict(
        answer,
        lambda net, inputs, sample: net(inputs) / net(inputs).abs().max(),
        {
            FROZEN: lambda net, inputs, sample: net(inputs) / net(sample).abs().max(),
        },
    )


def _predict(answer, result_of, symptoms, margin=ON_THE_STAND_IN):
    """Build a predictor and use it. Returns the network and the sample.

    result_of(net, inputs, sample): what it should return, or, as a value of symptoms, what it
    returns if something is wrong.
    """
    net = nn.Linear(4, 3).cuda()
    batches = torch.randn(5, few(), 4, device="cuda")
    sample = batches[0].clone()
    with torch.no_grad():
        expected = [result_of(net, inputs, sample) for inputs in batches]
        mistaken = {
            message: [wrong(net, inputs, sample) for inputs in batches]
            for message, wrong in symptoms.items()
        }

    passes = _watched(net)
    with callers_own("sample", sample):
        with watch() as seen:
            predict = answer(net, sample)
        built = list(passes)
        used = use(predict, list(batches))
        used.replays(graphs=5, operators=15)  # in each call a copy in, an empty tensor, a copy out
        nothing_freed()
    one_graph(seen)
    used.gives(
        expected,
        {EVERY_TIME_THE_FIRST: [expected[0]] * 5, ONE_BEHIND: [expected[0], *expected[:-1]]}
        | mistaken,
        margin,
    )
    if built and built[0] != "eager":
        raise Wrong(
            "It captures without a warm-up.",
            "Call net once before the capture, because a library that is used for the first time "
            "cannot be set up in a capture.",
        )
    if "capture with gradients" in built:
        raise Wrong(
            "Autograd records the captured pass.",
            "A prediction needs no gradients: capture under torch.no_grad().",
        )
    return net, sample


def _keeps_weights(answer, net, sample):
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


def _watched(net):
    """The forward passes of a network from now on: "eager", "capture" or "capture with
    gradients".
    """
    passes = []

    def note(module, inputs, outputs):
        if not torch.cuda.is_current_stream_capturing():
            passes.append("eager")
        else:
            passes.append("capture with gradients" if outputs.requires_grad else "capture")

    net.register_forward_hook(note)
    return passes


def trajectory(answer: Callable) -> None:
    """A state of three numbers, and a step that moves it."""
    states = few(3)
    weight, shift = torch.randn(2, 3, device="cuda")
    start = torch.randn(3, device="cuda")
    calls = []

    def step(state):
        calls.append("capture" if torch.cuda.is_current_stream_capturing() else "eager")
        return weight * state.sin() + shift

    expected = [step(start)]
    while len(expected) < states:
        expected.append(step(expected[-1]))
    calls.clear()

    with callers_own("start", start):
        used = use(lambda: answer(step, start, states), [()], what="It")
        found, graphs = used.given[0], used.counts["graphs"]
        if len(found) != states:
            raise Wrong(f"It gives {len(found)} states where {states} are asked.")
    nothing_freed()
    if not close(used.kept[0], expected):
        raise Wrong(_drift(used.kept[0], expected))
    if graphs == 0:
        raise Wrong(EAGER)
    if graphs != states:
        raise Wrong(
            f"{graphs} graph launches for {states} states: capture "
            "one step, and replay it for each."
        )
    one_graph(used.seen)
    if calls[:1] == ["capture"]:
        raise Wrong(
            "It captures without a warm-up: call step(state) once before the capture. Nobody "
            "needs the result."
        )


def _drift(found, expected):
    """What is wrong with a list of states."""
    if close(found, [expected[-1]] * len(found)):
        return f"Every state is the last one: {SHARED}"
    if close(found, [expected[0]] * len(found)):
        return (
            "Every state is the first one: the graph must write the new "
            "state where it reads the old one."
        )
    if not close(found[0], expected[0]):
        return "The first state is not the first: the warm-up has moved the state, so put it back."
    return (
        "The states are not the eager ones: does a replay read the state that the last one wrote?"
    )
