"""Scenarios: a stopwatch for a pretended GPU, and a reader's first captures."""

import time
from collections.abc import Callable
from math import isclose
from unittest.mock import patch

import torch

from exercises.answers.graph_use import call_answer, require_no_freed_reads
from exercises.answers.tensors import are_equal, copy_tensors
from exercises.answers.wrong import Wrong
from exercises.scenarios.common import NO_WARM_UP, Runs, draw_int
from exercises.scenarios.rules import unmodified

HOST_US, GPU_US = 40, 360  # of a step
EARLIER_US = 5000  # of work launched before the steps
COUNT = 10


class _Pretended:
    """A clock, and a GPU that works on what the steps launch."""

    def __init__(self):
        self.now_us = 0
        self.busy_until_us = EARLIER_US
        self.steps = 0

    def step(self) -> None:
        self.steps += 1
        self.now_us += HOST_US
        self.busy_until_us = max(self.busy_until_us, self.now_us) + GPU_US

    def synchronize(self, *device: object) -> None:
        self.now_us = max(self.now_us, self.busy_until_us)

    def perf_counter(self) -> float:
        return self.now_us / 1e6


def judge_time_step(answer: Callable) -> None:
    """Ten steps of known times, after work that the GPU has not finished."""
    gpu = _Pretended()
    waits = patch.object(torch.cuda, "synchronize", gpu.synchronize)
    with waits, patch.object(time, "perf_counter", gpu.perf_counter):
        times = answer(gpu.step, COUNT)
    if gpu.steps != COUNT:
        raise Wrong(f"It calls step {gpu.steps} times, where {COUNT} are asked.")
    if not isinstance(times, tuple) or len(times) != 2:
        raise Wrong("Two numbers are to be returned: host time and step time.")
    host_us, step_us = times
    if not isclose(host_us, HOST_US):
        raise Wrong(
            f"The host time of the step is {HOST_US} µs, and it returns {host_us:.0f}.",
            "Between the first and the second reading of the clock, the CPU only calls step.",
        )
    right_us = GPU_US + HOST_US / COUNT  # the GPU waits for the first launch
    if not isclose(step_us, right_us):
        raise Wrong(
            f"The step time is {right_us:.0f} µs, and it returns {step_us:.0f}.",
            "Wait for the GPU before the clock starts, or earlier work is counted."
            if step_us > right_us
            else "Wait for the GPU before the clock is read for the last time.",
        )


def judge_make_replay(answer: Callable) -> None:
    """A function of one matrix, and five inputs; the sample is the first."""
    weight = torch.randn(4, 3, device="cuda")
    _judge_replays(answer, lambda x: torch.relu(x @ weight), [(draw_int(), 4)], operators=10)


def judge_graphed(answer: Callable) -> None:
    """A function from two matrices to two results, and five pairs; the sample is the first."""

    def function(x, y):
        product = x @ y
        return torch.relu(product), product.sum(0)

    _judge_replays(answer, function, [(draw_int(), 4), (4, 3)], operators=20)


def _judge_replays(answer: Callable, function: Callable, shapes: list, operators: int) -> None:
    """Raises Wrong unless the answer replays the function, on five inputs of these shapes."""
    inputs = [tuple(torch.randn(shape, device="cuda") for shape in shapes) for _ in range(5)]
    sample = copy_tensors(inputs[0])
    expected = [function(*one) for one in inputs]
    given = copy_tensors(inputs)
    function = Runs(function)
    with unmodified("x" if len(shapes) == 1 else "x or y", sample):
        used = call_answer(answer(function, *sample), inputs)
        if not are_equal(inputs, given):
            raise Wrong(
                "A call changes the new tensors that it is given.",
                "copy_ writes into the tensor before the dot: it should be the static input.",
            )
    used.require_launches(graphs=5, operators=operators)
    require_no_freed_reads()
    if function.cold:
        raise Wrong(NO_WARM_UP)
    used.require_results(expected)
