"""Scenario: a reader's first capture."""

from collections.abc import Callable

import torch

from exercises.answers.graph_use import (
    Wrong,
    are_equal,
    call_answer,
    copy_tensors,
    require_no_freed_reads,
)
from exercises.scenarios.common import NO_WARM_UP, Runs, few
from exercises.scenarios.rules import callers_own


def graphed(answer: Callable) -> None:
    """A function of one matrix, and five inputs; the sample is the first."""
    weight = torch.randn(4, 3, device="cuda")
    inputs = torch.randn(5, few(), 4, device="cuda")
    sample = inputs[0].clone()
    function = Runs(lambda x: torch.relu(x @ weight))
    expected = [torch.relu(x @ weight) for x in inputs]
    given = copy_tensors(inputs)
    with callers_own("x", sample):
        replay = answer(function, sample)
        used = call_answer(replay, list(inputs))
        if not are_equal(inputs, given):
            raise Wrong(
                "A call changes the new x that it is given.",
                "copy_ writes into the tensor before the dot: it should be the static input.",
            )
    used.replays(graphs=5, operators=10)
    require_no_freed_reads()
    if function.cold:
        raise Wrong(NO_WARM_UP)
    used.gives(expected)


make_replay = graphed  # a graph to repair, used as a graph of one's own
