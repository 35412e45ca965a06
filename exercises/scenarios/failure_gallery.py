"""Scenarios: a capture that fails in several ways, and one that is wrong without an error."""

from collections.abc import Callable

import torch
from torch import nn

from exercises.answers.graph_use import call_answer
from exercises.answers.tensors import are_close
from exercises.answers.wrong import Wrong
from exercises.scenarios.common import draw_int
from exercises.scenarios.eager import perceptron
from exercises.scenarios.rules import call_with_one_graph, refuse_grad, unmodified

ALL_ROWS = "Rows with a negative sum have a score other than 0."
STANDS_STILL = (
    "The average stops moving: two calls with the same x and momentum return the same.",
    "Each replay reads the old average and writes the new one elsewhere: write it in place.",
)


def judge_capture_scores(answer: Callable) -> None:
    """Batches of the same number of rows; about half of their rows have a negative sum."""
    model = perceptron(nn.Tanh())
    rows = draw_int(4, 9)
    batches = [torch.randn(rows, 4, device="cuda") for _ in range(4)]
    with torch.no_grad():
        outputs = [model(batch) for batch in batches]
    counts = [(batch.sum(1, keepdim=True) >= 0) for batch in batches]
    expected = [torch.where(count, 2 * y, 0) for count, y in zip(counts, outputs, strict=True)]
    sample = batches[0].clone()
    with unmodified("sample or x", sample, batches):
        used = call_answer(call_with_one_graph(answer, model, sample), batches)
    for number, (yours, right) in enumerate(zip(used.given, expected, strict=True), 1):
        shape = getattr(yours, "shape", None)
        if shape != right.shape:
            said = tuple(shape) if shape is not None else type(yours).__name__
            raise Wrong(
                f"Result {number} has the shape {said}, expected {tuple(right.shape)}.",
                "Keep every row, and give those with a negative sum a score of 0.",
            )
    used.require_results(expected, {ALL_ROWS: [2 * y for y in outputs]})
    refuse_grad(used.kept)
    used.require_launches(graphs=len(batches), operators=4 * len(batches))


def judge_capture_average(answer: Callable) -> None:
    """Calls that tell apart what is frozen: the same one twice, then a momentum of 0."""
    length = draw_int()
    x, other, last = (torch.randn(length, device="cuda") for _ in range(3))
    calls = [(x, 0.5), (x, 0.5), (other, 0.0), (other, 0.25), (last, 0.75)]
    average = torch.zeros(length, device="cuda")
    expected = []
    for value, momentum in calls:
        average = average + momentum * (value - average)
        expected.append(average)
    sample = torch.randn(length, device="cuda")
    with unmodified("sample or x", sample, calls):
        used = call_answer(call_with_one_graph(answer, sample), calls)
    first, second, third = used.given[:3]
    if not are_close(used.given, expected):
        if are_close(first, second):
            raise Wrong(STANDS_STILL)
        if not are_close(second, third):
            raise Wrong(
                "With a momentum of 0 the average moves.",
                "The graph holds the momentum of the capture: put it into a tensor on the GPU, "
                "and fill that before the replay.",
            )
        if not are_close(first, expected[0]):
            raise Wrong(
                "The average does not begin at 0.",
                "The warm-up ran the step and moved it: set it back after the capture.",
            )
    used.require_results(expected)
    used.require_launches(graphs=len(calls), operators=4 * len(calls))
