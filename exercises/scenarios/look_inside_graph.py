"""Scenarios: needless nodes, and lanes."""

import copy
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import combinations

import torch

from cpu_graph import on_stand_in
from cpu_graph.log import operator_of
from exercises.answers.graph_use import call_answer, watch_graphs
from exercises.answers.wrong import EVERY_TIME_THE_FIRST, Wrong
from exercises.scenarios.common import Runs, draw_int, unpack_tensors
from exercises.scenarios.eager import draw_batches, losses_of, perceptron, sgd
from exercises.scenarios.rules import refuse_grad, require_concurrent, require_one_graph, unmodified
from exercises.scenarios.warm_ups import require_untrained
from helpers.capture import capture_step
from helpers.model import training_step

PRODUCTS = ("aten::mm", "aten::addmm")
MIXED = "The results are in the order of the launches: give them in that of the works."
LANES = "One lane waits for the other: fork both first, and join after the last work."
COSTS = (
    [2.0, 3.0, 7.0, 1.0, 5.0, 6.0],
    [1.0, 1.0, 4.0, 2.0, 4.0, 3.0, 3.0],
    [1.0, 2.0, 3.0, 4.0, 5.0, 9.0],
)


def judge_graphed_training(answer: Callable) -> None:
    """Five steps of training, in a graph without a node more than they need."""
    net = perceptron(torch.nn.Tanh())
    batches = draw_batches(5)
    expected = losses_of(net, sgd, batches)
    untouched = copy.deepcopy(net)
    with unmodified("inputs or targets", batches):
        with require_untrained(net), watch_graphs() as built:
            train = answer(net, sgd(net.parameters()), *batches[0])
        used = call_answer(train, batches)
    used.require_launches(graphs=5, operators=15)
    first = partial(losses_of, untouched, sgd, batches[:1] * 5)
    used.require_results(expected, {EVERY_TIME_THE_FIRST: first})
    refuse_grad(used.kept)
    require_one_graph(built)
    if on_stand_in() is not None:  # on a GPU only a graph that was kept lists its nodes
        _require_few_nodes(built.captured[0], untouched, batches[0])


def _require_few_nodes(graph, net, batch):
    """Raises Wrong if the graph has nodes that a plain training step on net does not have."""
    step = partial(training_step, net, sgd(net.parameters()))
    plain = capture_step(step, *(tensor.clone() for tensor in batch))
    yours, needed = (Counter(map(operator_of, one.capture.nodes)) for one in (graph, plain.graph))
    more = yours - needed
    if more:
        names = ", ".join(f"{count} of {name}" for name, count in sorted(more.items()))
        raise Wrong(
            f"Your graph has nodes that the training does not need: {names}.",
            "Take the lines that launch them out of the step, or change their arguments.",
        )


def judge_capture_in_lanes(answer: Callable) -> None:
    """Works of one input that do not need each other, some of which take longer; two lanes for
    them.
    """
    costs = COSTS[draw_int(0, len(COSTS))]
    inputs = list(torch.randn(5, 2, 4, device="cuda"))
    weights = torch.randn(len(costs), 4, 4, device="cuda")
    works = [Runs(lambda x, weight=weight: (x @ weight).sin()) for weight in weights]
    expected = [[(x @ weight).sin() for weight in weights] for x in inputs]
    sample = inputs[0].clone()
    with unmodified("sample or x", sample, inputs):
        with watch_graphs() as built:
            function = answer(works, costs, sample)
        used = call_answer(function, inputs)
    for given in used.given:
        unpack_tensors(given, len(works), "results")
    used.require_launches(graphs=5, operators=5 + 5 * len(works))
    order = sorted(range(len(costs)), key=lambda number: -costs[number])
    mixed = [[given[number] for number in order] for given in expected]
    used.require_results(expected, {MIXED: mixed})
    require_one_graph(built)
    # on a GPU only a graph that was kept tells what waits for what, and torch's 32 streams of a
    # device come round again, so two new ones may be the same
    if on_stand_in() is not None:
        _require_shortest_lanes([work.captured[-1] for work in works], costs)
        nodes = built.captured[0].capture.nodes
        require_concurrent((one for one in nodes if one.operator.name() in PRODUCTS), LANES)


def _require_shortest_lanes(streams, costs):
    """Raises Wrong unless the works are on two streams, of which the longer takes no longer than it
    must.
    """
    lanes = {}
    for stream, cost in zip(streams, costs, strict=True):
        lanes[stream] = lanes.get(stream, 0.0) + cost
    if len(lanes) != 2:
        raise Wrong(
            f"The works are on {len(lanes)} stream{'s' * (len(lanes) > 1)}: two lanes are asked."
        )
    best = min(
        max(sum(part), sum(costs) - sum(part))
        for n in range(len(costs))
        for part in combinations(costs, n)
    )
    if max(lanes.values()) > best:
        parts = " and ".join(f"{lane:g}" for lane in lanes.values())
        raise Wrong(
            f"The lanes take {parts}, where {best:g} for the longer one "
            "would do: the longest works first."
        )
