"""Scenarios: a function that profiles a step, and a loop that does not wait for the GPU.

For the first the profiler's schedule runs as ever, but nothing is recorded: what a trace would hold
is counted. So it says the same with and without a GPU.
"""

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import profiler as torch_profiler
from torch.nn.functional import mse_loss
from torch.profiler import ProfilerActivity

from exercises.answers.tensors import are_close, copy_tensors
from exercises.answers.wrong import Wrong
from exercises.scenarios.eager import draw_batches, perceptron
from exercises.scenarios.repair_ten_scripts import HostReads
from helpers.capture import capture_step

WARMUP, ACTIVE = 2, 5  # calls of the step
SLOW = ("record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules")


def judge_profile_steps(answer: Callable) -> None:
    """A small network, two calls of warm-up and five that are recorded."""
    net, batches = perceptron(), draw_batches(1)
    inputs, _ = batches[0]
    with tempfile.TemporaryDirectory() as folder, watch_profilers() as (options, events):

        def step():
            events.append("call")
            net(inputs).sum().backward()

        path = Path(folder) / "trace.json"
        answer(step, str(path))
        _require_profiler_setup(options, events)
        if not path.exists():
            raise Wrong(
                "No trace is saved at path: call export_chrome_trace(path), in on_trace_ready or "
                "after the block."
            )
        _require_recorded_calls(events)


def _require_profiler_setup(given: list[dict[str, Any]], events: list[str]) -> None:
    """Raises Wrong if a profiler was told the wrong things, or nothing."""
    if not given:
        raise Wrong("It does not use torch.profiler.profile.")
    for options in given:
        activities = options.get("activities")
        for needed in (ProfilerActivity.CPU, ProfilerActivity.CUDA):
            if activities is not None and needed not in activities:
                raise Wrong(
                    f"The trace lacks the {'GPU' if needed == ProfilerActivity.CUDA else 'CPU'}: "
                    f"add ProfilerActivity.{needed.name} to activities."
                )
        if slow := [name for name in SLOW if options.get(name)]:
            raise Wrong(f"{slow[0]} slows the CPU, which you want to measure: leave it off.")
        if options.get("schedule") is None:
            raise Wrong(
                "Without a schedule the warm-up is recorded too, and the trace has no steps: pass "
                "schedule=schedule(...)."
            )
    if "mark" not in events:
        raise Wrong(
            "profiler.step() is never called, so the schedule does not advance and nothing is "
            "recorded: call it after each step."
        )


def _require_recorded_calls(events: list[str]) -> None:
    """Raises Wrong unless the trace that was saved last holds the calls that were asked for."""
    if "save" not in events:
        raise Wrong("The file at path holds no trace: save it with export_chrome_trace.")
    saved = max(at for at, event in enumerate(events) if event == "save")
    start = max(at for at, event in enumerate(events[:saved]) if event == "start")
    before = events[:start].count("call")
    held = events[start : events.index("stop", start)].count("call")
    if held == 0 and events.count("start") > 1:
        raise Wrong(
            "What is saved after the block is a second round, which recorded nothing: pass "
            "repeat=1 to schedule, or save the trace in on_trace_ready."
        )
    if held != ACTIVE:
        raise Wrong(
            f"The trace that is saved holds {held} calls of step, where {ACTIVE} are asked: "
            "call step and profiler.step() as often as the schedule counts, and save the trace "
            "when its steps are over."
        )
    if before < WARMUP:
        raise Wrong(
            f"Calls of step before the recording: {before}, where {WARMUP} are asked. The "
            "schedule needs warmup=2, and profiler.step() comes after step()."
        )


@contextmanager
def watch_profilers() -> Iterator[tuple[list[dict[str, Any]], list[str]]]:
    """The options of each torch.profiler.profile of the block, and what happens to them, in order:
    "start", "stop", "mark" and "save". Nothing is recorded.
    """
    options: list[dict[str, Any]] = []
    events: list[str] = []
    cls = torch_profiler.profile
    begin, mark = cls.__init__, cls.step

    def begun(self, **given):
        options.append(given)
        begin(self, **given)

    def marked(self):
        events.append("mark")
        mark(self)

    def save(self, path, *_, **__):
        if [event for event in events if event in ("start", "stop")][-1:] != ["stop"]:
            raise Wrong("The trace is saved before its steps are over.")
        events.append("save")
        Path(path).write_text(json.dumps({"traceEvents": []}))

    with patch.multiple(
        cls,
        __init__=begun,
        step=marked,
        prepare_trace=lambda self: None,
        start_trace=lambda self: events.append("start"),
        stop_trace=lambda self: events.append("stop"),
        export_chrome_trace=save,
    ):
        yield options, events


def judge_mean_and_largest(answer: Callable) -> None:
    """Five batches, and a step that replays a graph and returns the same loss every time."""
    net, batches = perceptron(), draw_batches(5)
    with torch.no_grad():
        losses = torch.stack([mse_loss(net(inputs), targets) for inputs, targets in batches])
        step = capture_step(lambda x, y: mse_loss(net(x), y), *copy_tensors(batches[0]))
    counts: Counter = Counter()
    before_a_step = []  # how often the CPU had read when a step was launched

    def counted_step(inputs, targets):
        before_a_step.append(counts["reads"])
        return step(inputs, targets)

    with HostReads(counts):
        results = answer(counted_step, batches)
    if len(before_a_step) != len(batches):
        raise Wrong(f"It calls step {len(before_a_step)} times for {len(batches)} batches.")
    if before_a_step[-1]:
        raise Wrong(
            f"The CPU waited {before_a_step[-1]} times for the GPU "
            "before the last step was launched.",
            "A branch on a tensor waits, too: compute on the GPU, and read after the loop.",
        )
    if not isinstance(results, tuple) or not all(isinstance(one, float) for one in results):
        raise Wrong("Two floats are to be returned.", "Read them after the loop.")
    given = torch.tensor(results, device="cuda")
    if are_close(given, losses[-1:].expand(2)):
        raise Wrong("Both are the loss of the last step.", "The next replay overwrites the loss.")
    if not are_close(given, torch.stack([losses.mean(), losses.max()])):
        raise Wrong("They are not the mean and the largest of the losses.")
