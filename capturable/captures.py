"""Captures: try one and put everything back; where one fails, find the line."""

import sys
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch

from capturable.lines import Line, runs_users
from capturable.undo import Undo


class Attempt(NamedTuple):
    """A capture: the graph and what the step returned, or the error, and the user's line in its traceback."""

    graph: Any
    result: Any = None
    error: BaseException | None = None
    line: Line | None = None


def captured(step: Callable, inputs: tuple, generators: Iterable) -> Attempt:
    """Capture the step after a warm-up on the same side stream; put everything back."""
    with Undo(step, inputs):
        stream, current = torch.cuda.Stream(), torch.cuda.current_stream()
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            step(*inputs)
        current.wait_stream(stream)
        try:
            return _capture(step, inputs, generators, stream)
        finally:
            torch.cuda.set_stream(current)  # which a capture that fails leaves on its own stream
            torch.cuda.synchronize()


def _capture(step: Callable, inputs: tuple, generators: Iterable, stream: torch.cuda.Stream) -> Attempt:
    graph = torch.cuda.CUDAGraph()
    for generator in generators:
        graph.register_generator_state(generator)
    try:
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            result = step(*inputs)
        return Attempt(graph, result)
    except Exception as ended:  # whatever the step or the driver says
        inside = ended.__context__ if _line(ended) is None and ended.__context__ else ended
        with torch.cuda.graph(torch.cuda.CUDAGraph(), stream=stream):  # frees the generator of the lost capture
            torch.zeros(1, device="cuda")
        return Attempt(None, None, inside, _line(inside))


def _line(error: BaseException) -> Line | None:
    """The innermost line of the user's in a traceback."""
    trace, line = error.__traceback__, None
    while trace:
        if runs_users(trace.tb_frame):
            line = Line.of(trace.tb_frame)._replace(number=trace.tb_lineno)
        trace = trace.tb_next
    return line


class _Stop(BaseException):
    """Ends a step early."""


class Until:
    """A step that ends after a number of the user's lines; seen counts them, line is the last."""

    def __init__(self, step: Callable, stop: int | None = None) -> None:
        self.step, self.stop, self.seen, self.line = step, stop, 0, None

    def __call__(self, *inputs: Any) -> None:
        """Run the step up to there."""
        self.seen, outer = 0, sys.gettrace()
        sys.settrace(self._trace)
        try:
            self.step(*inputs)
        except _Stop:
            pass
        finally:
            sys.settrace(outer)

    def _trace(self, frame: Any, event: str, _: Any) -> Callable | None:
        if not runs_users(frame):
            return None
        if event == "line":
            if self.seen == self.stop:
                raise _Stop
            self.seen, self.line = self.seen + 1, Line.of(frame)
        return self._trace


def bisect(step: Callable, inputs: tuple, generators: Iterable) -> Line | None:
    """The first line after which the step no longer captures: what runs before it does."""
    whole = Until(step)
    with Undo(step, inputs):
        whole(*inputs)
    passes, fails, line = 0, whole.seen, None
    while fails - passes > 1:
        middle = Until(step, (passes + fails) // 2)
        if captured(middle, inputs, generators).error is None:
            passes = middle.stop
        else:
            fails, line = middle.stop, middle.line
    return line or whole.line
