"""An attempt to capture: try it and put everything back; where it fails, find the line.

The line is found by ending the step early, also inside of a with block. Where a block must not be
left is read from CPython's byte code (tried on 3.11 and 3.12).
"""

import dis
import functools
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from types import CodeType
from typing import Any, NamedTuple

import torch

from capturable.live_objects import live_objects
from capturable.restore import Restore
from capturable.restore.reachable import Place
from capturable.user_lines import Line, is_user_frame


class Attempt(NamedTuple):
    """A capture: the graph, what the step returned, the tensors that it may touch, which must stay
    alive, and the names that it bound to tensors of the graph, with these; or the error, and the
    user's line in its traceback."""

    graph: Any
    result: Any = None
    error: BaseException | None = None
    line: Line | None = None
    kept: Any = ()
    bound: Any = ()


def warm_up(step: Callable[[], Any], stream: torch.cuda.Stream) -> None:
    """Run the step once on the stream of the capture: what it keeps of its autograd graph is tied
    to the stream that made it."""
    current = torch.cuda.current_stream()
    stream.wait_stream(current)
    with torch.cuda.stream(stream):
        step()
    current.wait_stream(stream)


def capture_and_restore(
    step: Callable[[], Any], generators: Iterable, stream: torch.cuda.Stream
) -> Attempt:
    """Capture the step on a side stream, after a warm-up there; put everything back."""
    with Restore(step, everything=True) as restore:
        current = torch.cuda.current_stream()
        warm_up(step, stream)
        kept = live_objects(torch.Tensor)
        kept += [tensor.grad for tensor in kept if tensor.is_leaf and tensor.grad is not None]
        try:
            attempt = _try_capture(step, generators, stream)
            return attempt._replace(kept=kept, bound=list(rebound_places(restore)))
        finally:
            torch.cuda.set_stream(current)  # which a capture that fails leaves on its own stream
            torch.cuda.synchronize()


def rebound_places(restore: Restore) -> Iterator[tuple[Place, torch.Tensor]]:
    """The places that hold another tensor than before, with it."""
    for place, before in restore.places:
        now = place.get()
        if now is not before and issubclass(type(now), torch.Tensor):
            yield place, now


def _try_capture(
    step: Callable[[], Any], generators: Iterable, stream: torch.cuda.Stream
) -> Attempt:
    graph = torch.cuda.CUDAGraph()
    for generator in generators:
        graph.register_generator_state(generator)
    try:
        with (
            warnings.catch_warnings(),
            torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"),
        ):
            warnings.filterwarnings("ignore", message="The CUDA Graph is empty")  # of a part
            result = step()
        return Attempt(graph, result)
    except Exception as ended:  # whatever the step or the driver says
        inside = ended.__context__ if line_of(ended) is None and ended.__context__ else ended
        torch.cuda.set_stream(stream)
        # still, where the step has left another stream behind
        if torch.cuda.is_current_stream_capturing():
            with suppress(RuntimeError):
                graph.capture_end()
        # frees the generator of the lost capture
        with torch.cuda.graph(torch.cuda.CUDAGraph(), stream=stream):
            torch.zeros(1, device="cuda")
        return Attempt(None, None, inside, line_of(inside))


def line_of(error: BaseException) -> Line | None:
    """The innermost line of the user's in a traceback."""
    trace, line = error.__traceback__, None
    while trace:
        if is_user_frame(trace.tb_frame):
            line = Line.of(trace.tb_frame)._replace(number=trace.tb_lineno)
        trace = trace.tb_next
    return line


class _StopStep(BaseException):
    """Ends a step early."""


class TruncatedStep:
    """A step that ends after a number of the user's lines; lines are those that it ran.

    It does not end on the way out of a with block, which would leave the stream or the mode that it
    set, nor where an error is handled.
    """

    def __init__(self, step: Callable, stop: int | None = None) -> None:
        self.step = step
        self.stop = stop
        self.lines = []

    def __call__(self, *inputs: Any) -> None:
        """Run the step up to there."""
        self.lines, outer = [], sys.gettrace()
        sys.settrace(self._trace)
        try:
            self.step(*inputs)
        except _StopStep:
            pass
        finally:
            sys.settrace(outer)

    def _trace(self, frame: Any, event: str, _: Any) -> Callable | None:
        if not is_user_frame(frame):
            return None
        if event == "line" and frame.f_lasti not in _unstoppable_instructions(frame.f_code):
            if len(self.lines) == self.stop:
                raise _StopStep
            self.lines.append(Line.of(frame))
        return self._trace


@functools.cache
def _unstoppable_instructions(code: CodeType) -> frozenset[int]:
    """Where a step must not end: where a function's code begins to call __exit__(None, None,
    None), and where it handles an error, which an end there would leave behind as the context
    of later ones."""
    steps = list(dis.get_instructions(code))
    nothing = [step.opname == "LOAD_CONST" and step.argval is None for step in steps]
    calls = {i for i in range(len(steps) - 2) if all(nothing[i : i + 3])}
    swaps = {i - 1 for i in calls if steps[i - 1].opname == "SWAP"}
    return frozenset(steps[i].offset for i in calls | swaps | _error_handling_instructions(steps))


def _error_handling_instructions(steps: list[dis.Instruction]) -> set[int]:
    """Which instructions handle an error, by number: from PUSH_EXC_INFO, along jumps, to
    POP_EXCEPT or RERAISE."""
    at = {step.offset: i for i, step in enumerate(steps)}
    found: set[int] = set()
    queue = [i for i, step in enumerate(steps) if step.opname == "PUSH_EXC_INFO"]
    while queue:
        i = queue.pop()
        found.add(i)
        jumps = steps[i].opcode in dis.hasjrel + dis.hasjabs
        leads = {at[steps[i].argval]} if jumps else set()
        if not re.match("POP_EXCEPT|RERAISE|RAISE|RETURN|JUMP", steps[i].opname):
            leads.add(i + 1)
        queue += leads - found
    return found


def first_line_that_breaks_capture(
    step: Callable[[], Any], generators: Iterable, stream: torch.cuda.Stream
) -> Line | None:
    """The first line after which the step no longer captures: what runs before it does."""
    whole = TruncatedStep(step)
    with Restore(step, everything=True):
        whole()
    passes = 0
    fails = len(whole.lines)
    while fails - passes > 1:
        middle = (passes + fails) // 2
        if capture_and_restore(TruncatedStep(step, middle), generators, stream).error is None:
            passes = middle
        else:
            fails = middle
    return whole.lines[fails - 1] if fails else None
