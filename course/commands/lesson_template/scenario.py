"""Scenarios of Verb object: rows are scaled, a total grows."""

from collections.abc import Callable

import torch

from exercises.answers.graph_use import call_answer
from exercises.scenarios.common import draw_int
from exercises.scenarios.rules import unmodified


def judge_make_scaler(answer: Callable) -> None:
    """A weight, and five inputs; the sample is the first."""
    weight = torch.randn(4, device="cuda")
    batches = torch.randn(5, draw_int(), 4, device="cuda")
    sample = batches[0].clone()
    with unmodified("sample", sample):
        used = call_answer(answer(weight, sample), list(batches))
    used.require_launches(graphs=5, operators=10)
    used.require_results([batch * weight for batch in batches])


def judge_running_total(answer: Callable) -> None:
    """Five inputs, and the sum of all so far after each; the sample is the first input."""
    batches = torch.randn(5, draw_int(), device="cuda")
    totals = list(batches.cumsum(0))
    sample = batches[0].clone()
    with unmodified("sample", sample):
        used = call_answer(answer(sample), list(batches))
    used.require_launches(graphs=5, operators=10)
    warm_up = "The warm-up has added to the total: put it back to zero, in place."
    first = "Every call adds the first input: copy the new one into the static input."
    used.require_results(
        totals,
        {
            warm_up: [total + 3 * batches[0] for total in totals],
            first: [number * batches[0] for number in range(1, 6)],
        },
    )
