"""Scenarios: a stopwatch for a capture, a warm-up that counts, a graph where it is worth it."""

import copy
import gc
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from unittest.mock import patch

import torch
from torch import nn

from cpu_graph.log import launch_log
from exercises.answers.graph_use import (
    Watched,
    Wrong,
    as_expected,
    copied,
    not_the_last,
    use,
    watch,
)
from exercises.scenarios.common import (
    Runs,
    draw_batches,
    few,
    losses_of,
    not_eager,
    on_side_stream,
    passes,
    perceptron,
    several,
    sgd,
    sgd_step,
    tensors_of,
)
from exercises.scenarios.rules import callers_own, one_graph

WARM_UP = 3
WARM_ON_THE_FIRST = "All three steps of the warm-up train on the first batch: give each its own."
ALWAYS_THE_SAME = (
    "Every replay trains on the same batch.",
    "Copy the new batch into the static inputs.",
)


@dataclass
class Stopwatch:
    """A clock whose differences are unique, and what had happened at each reading of it."""

    seen: Watched
    step: Runs
    collections: int = 0
    readings: list = field(default_factory=list)

    def __call__(self) -> float:
        """The time; it doubles with each reading."""
        self.readings.append(
            {
                "steps": len(self.step.eager),
                "collections": self.collections,
                "captures": len(self.seen.captured),
                "replays": len(self.seen.replayed),
                "pending": len(launch_log()),
            }
        )
        return float(2 ** len(self.readings))

    def interval(self, seconds: float) -> tuple[dict, dict] | None:
        """The two readings that lie so many seconds apart."""
        for first in range(len(self.readings)):
            for last in range(first + 1, len(self.readings)):
                if math.isclose(seconds, 2 ** (last + 1) - 2 ** (first + 1)):
                    return self.readings[first], self.readings[last]
        return None


def time_capture(answer: Callable) -> None:
    """A step that counts how often it runs, and a clock that looks at what the GPU has to do."""
    net, [(inputs, targets)] = perceptron(nn.Tanh()), draw_batches(1)
    step = Runs(sgd_step(net))
    with watch() as seen:
        clock = Stopwatch(seen, step)

        def collect(*_):
            clock.collections += 1
            return 0

        with patch.object(gc, "collect", collect):
            result = answer(step, inputs, targets, clock)
    times = several(result, "the time of the warm-up", "the time of the capture")
    for name, seconds in zip(PARTS, times, strict=True):
        _covers_its_part(name, clock.interval(seconds))
    on_side_stream(step.eager)


def _covers_its_part(name, span):
    """Raises Wrong unless exactly the part's own work was done between the two readings."""
    if span is None:
        raise Wrong(f"The time of the {name} is not the difference of two readings of clock().")
    first, last = span
    if first["pending"] or last["pending"]:
        raise Wrong(
            f"For the time of the {name}, the clock is read while the GPU still has work to do.",
            "Wait for the GPU before each reading.",
        )
    for what, word in WORDS.items():
        found, expected = last[what] - first[what], PARTS[name].get(what, 0)
        if found != expected:
            number = f"{found} {word}{'' if found == 1 else 's'}"
            raise Wrong(f"The time of the {name} covers {number}, not {expected}.")


PARTS = {"warm-up": {"steps": WARM_UP}, "capture": {"captures": 1}}
WORDS = {
    "steps": "eager step",
    "collections": "garbage collection",
    "captures": "capture",
    "replays": "replay",
}


def train_from_warm_up(answer: Callable) -> None:
    """A training of some batches; three of them belong to the warm-up."""
    net, batches = perceptron(nn.Tanh()), draw_batches(few(5, 9))
    initial, count = copy.deepcopy(net), len(batches)
    step = Runs(sgd_step(net))
    with callers_own("batches", batches):
        with watch() as seen:
            losses = answer(step, batches)
        not_eager(seen)
        one_graph(seen)
        losses = tensors_of(losses, count)
        if len(step.eager) != WARM_UP or len(seen.replayed) != count - WARM_UP:
            raise Wrong(
                f"For {count} batches it runs {len(step.eager)} eager steps and replays the graph "
                f"{len(seen.replayed)} times, not {WARM_UP} and "
                f"{count - WARM_UP}: each batch is trained once."
            )
    not_the_last(losses[WARM_UP:])
    losses_on = partial(losses_of, initial, sgd)
    warm, others = batches[:WARM_UP], batches[WARM_UP:]
    symptoms = [
        (WARM_ON_THE_FIRST, losses_on(warm[:1] * WARM_UP + others)),
        (ALWAYS_THE_SAME, losses_on(warm + others[:1] * len(others))),
        (ALWAYS_THE_SAME, losses_on(warm + warm[:1] * len(others))),
    ]
    as_expected(losses, losses_on(batches), symptoms)
    on_side_stream(step.eager)


def graph_if_it_pays(answer: Callable) -> None:
    """A network, with numbers of calls and times for which a graph is worth its capture and others
    for which it is not.
    """
    net = nn.Linear(4, 3).cuda()
    batches = list(torch.randn(4, few(), 4, device="cuda"))
    with torch.no_grad():
        expected = list(map(net, batches))
    _, recorded = passes(net)
    step_us = 200.0
    for calls, busy_us, capture_us in [(100, 60.0, 3e3), (20, 60.0, 3e3), (10**6, 225.0, 1.0)]:
        pays = capture_us <= calls * (step_us - busy_us)
        sample = copied(batches[0])
        case = (
            f"{calls} calls of {step_us:g} µs, in which the GPU works for {busy_us:g} µs; "
            f"a capture takes {capture_us:g} µs"
        )
        with callers_own("inputs", sample):
            with watch() as built:
                function = answer(net, sample, calls, step_us, busy_us, capture_us)
            if built.captured and not pays:
                raise Wrong(f"A capture costs more here than its replays can save ({case}).")
            used = use(function, batches)
            if pays and not built.captured and not used.seen.captured:
                raise Wrong(f"A graph is worth its capture here, and it stays eager ({case}).")
        used.gives(expected)
        if pays:
            used.replays(graphs=4, operators=8)
        elif used.counts["graphs"] or used.seen.captured:
            raise Wrong(f"It captures in the first call, where a graph costs more ({case}).")
        if recorded.captured:
            raise Wrong("Autograd records the captured pass, and the calls need no gradients.")
