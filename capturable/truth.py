"""Truth: what a real capture says to a step, and whether its replays do what eager does."""

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_leaves

from capturable.explain import explain
from capturable.findings import Finding, Findings
from capturable.lines import Line, runs_users
from capturable.reach import MISSING
from capturable.rules import FIXES
from capturable.undo import Undo

REFUSED = ("sync", "copy", "generator", "optimizer", "kept graph", "stream", "autocast cache")
FROZEN = ("frozen number", "path", "shape", "moved tensor")


class Attempt(NamedTuple):
    """A capture: the graph and what the step returned, or the error, and the user's line in its traceback."""

    graph: Any
    result: Any = None
    error: BaseException | None = None
    line: Line | None = None


def verified(step: Callable, inputs: tuple, others: tuple, generators: Iterable, findings: Findings) -> Findings:
    """The findings, and what a real capture on a side stream, in a pool of its own, adds or takes back.

    A refusal at a line without a finding becomes one; where the capture passes, what it should have refused
    becomes a note, and so do frozen values when two replays, on inputs and others, end where eager ends.
    """
    attempt = _undone(step, inputs, generators)
    if attempt.error is not None:
        line = attempt.line or _bisect(step, inputs, generators)
        known = {(finding.file, finding.number) for finding in findings.faults}
        if line is None or (line.file, line.number) not in known:
            findings.append(_refusal(attempt.error, line))
        return findings
    parted = list(_parted(step, inputs, others, attempt))
    passed = REFUSED if parted else REFUSED + FROZEN
    findings[:] = [_downgraded(f) if f.rule in passed else f for f in findings]
    if parted and not any(finding.rule in FROZEN for finding in findings):
        what = "differs from eager after two replays"
        findings += [Finding("replay", name, what, FIXES["replay"]) for name in parted[:3]]
    return findings


def _refusal(error: BaseException, line: Line | None) -> Finding:
    """The finding for a capture that failed where no rule knows why."""
    known = explain(f"{type(error).__name__}: {error}")
    fix = known[0].fix if known else FIXES["capture"]
    said = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    place = (str(line), line.file, line.number) if line else ("at the end of the capture", "", 0)
    return Finding("capture", place[0], f"the capture fails: {said}", fix, "fault", *place[1:])


def _downgraded(finding: Finding) -> Finding:
    said = "the real capture passed" if finding.rule in REFUSED else "replays end where eager ends"
    return finding._replace(level="note", found=f"{finding.found}; but {said}")


def _undone(step: Callable, inputs: tuple, generators: Iterable) -> Attempt:
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


def _bisect(step: Callable, inputs: tuple, generators: Iterable) -> Line | None:
    """The first line after which the step no longer captures: what runs before it does."""
    whole = Until(step)
    with Undo(step, inputs):
        whole(*inputs)
    passes, fails, line = 0, whole.seen, None
    while fails - passes > 1:
        middle = Until(step, (passes + fails) // 2)
        if _undone(middle, inputs, generators).error is None:
            passes = middle.stop
        else:
            fails, line = middle.stop, middle.line
    return line or whole.line


def _parted(step: Callable, inputs: tuple, others: tuple, attempt: Attempt) -> Iterator[str]:
    """Names of tensors that two replays leave with other values than eager does, which is run twice."""

    def replay(*_: Any) -> Any:
        attempt.graph.replay()
        return attempt.result

    runs = (step, step, replay)
    eager, again, replayed = (_after_two(run, (step, attempt.result), inputs, others) for run in runs)
    for name, (start, end) in eager.items():
        _, second = again.get(name, (start, end))
        _, other = replayed.get(name, (start, start))
        if not _close(start, end, second, other):
            yield name[1] or "a tensor in reach"


def _after_two(run: Callable, roots: tuple, inputs: tuple, others: tuple) -> dict[tuple, tuple]:
    """Each tensor in reach of the roots or returned, by number and name, before and after a run with each batch."""
    with Undo(*roots, inputs) as undo:
        places = [(place, value.detach().clone()) for place, value in undo.places if _is_dense(value)]
        run(*inputs)
        for static, new in zip(tree_leaves(inputs), tree_leaves(others), strict=True):
            if isinstance(static, torch.Tensor):
                static.data.copy_(new)
        result = run(*inputs)
        ends = {(i, place.label): (before, place.get()) for i, (place, before) in enumerate(places)}
        outputs = [(f"output {i}", t) for i, t in enumerate(tree_leaves(result)) if _is_dense(t)]
        ends |= {(len(places), name): (torch.zeros_like(t), t) for name, t in outputs}
        return {name: (before, end.detach().clone()) for name, (before, end) in ends.items() if _is_dense(end)}


def _is_dense(value: Any) -> bool:
    return value is not MISSING and isinstance(value, torch.Tensor) and value.layout == torch.strided


def _close(start: torch.Tensor, end: torch.Tensor, again: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether other lies as near to end as what eager does twice, or within 1/1000 of what the steps changed."""
    if len({start.shape, end.shape, again.shape, other.shape}) > 1:
        return end.shape == other.shape and torch.equal(end, other)
    start, end, again, other = (t.double() for t in (start, end, again, other))
    if end.numel() == 0:
        return True
    allowed = 10 * (again - end).abs().max() + 1e-3 * (end - start).abs().max()
    return bool(torch.equal(end.nan_to_num(), other.nan_to_num()) or (other - end).abs().max() <= allowed)
