"""Streams: which work on side streams did not wait for the step's own stream, or was not waited
for?"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import torch

from capturable.user_lines import Line


class Joins:
    """The order that events make between streams, each known by a number; main is the step's own.

    found(rule, line, what) is called for work that the capture would not see, and at the end, by
    report_unjoined_work(), for streams whose work nobody waited for.
    """

    def __init__(self, main: int, found: Callable[[str, Line, str], None]) -> None:
        self.main, self.found = main, found
        self.work = {main: 0}  # how many operators ran on a stream
        self.knows = {main: {}}  # stream -> {stream: how much of its work it has waited for}
        self.lines = {}

    def ran(self, stream: int, line: Line) -> None:
        """An operator runs on a stream."""
        if stream not in self.work and self.main not in self.knows.get(stream, {}):
            what = "a side stream works without having waited for the step's own stream"
            self.found("stream", line, what)
        self.work[stream] = self.work.get(stream, 0) + 1
        self.lines[stream] = line

    def work_before_event(self, stream: int) -> dict[int, int]:
        """What an event that is recorded on a stream stands for."""
        return self.knows.get(stream, {}) | {stream: self.work.get(stream, 0)}

    def waited(self, stream: int, event: dict[int, int]) -> None:
        """A stream waits for what an event stands for."""
        known = self.knows.setdefault(stream, {})
        for other, work in event.items():
            known[other] = max(known.get(other, 0), work)

    def report_unjoined_work(self) -> None:
        """The step is over."""
        for stream, work in self.work.items():
            if stream != self.main and self.knows[self.main].get(stream, 0) < work:
                what = "the step's own stream does not wait for this work"
                self.found("stream", self.lines[stream], what)


@contextmanager
def watch_joins(found: Callable[[str, Line, str], None]) -> Iterator[Joins]:
    """Joins of the current CUDA stream, told of every event that is recorded or waited for."""
    seen, events = Joins(torch.cuda.current_stream().cuda_stream, found), {}

    def record(event, stream=None):
        stream = stream or torch.cuda.current_stream()
        events[id(event)] = event, seen.work_before_event(stream.cuda_stream)
        return recorded(event, stream)

    def wait(event, stream=None):
        stream = stream or torch.cuda.current_stream()
        _, known = events.get(id(event), (event, {}))
        seen.waited(stream.cuda_stream, known)
        return waited(event, stream)

    recorded, waited = torch.cuda.Event.record, torch.cuda.Event.wait
    with ExitStack() as stack:
        stack.enter_context(patch.object(torch.cuda.Event, "record", record))
        stack.enter_context(patch.object(torch.cuda.Event, "wait", wait))
        yield seen
    seen.report_unjoined_work()
