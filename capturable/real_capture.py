"""What a real capture says to a step, and whether its replays do what eager does."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from capturable.capture_attempt import (
    Attempt,
    capture_and_restore,
    first_line_that_breaks_capture,
    warm_up,
)
from capturable.explain import explain
from capturable.findings import Finding, Findings
from capturable.inputs import Call, merge_python_values, tensor_pairs
from capturable.restore import Restore
from capturable.rules import fix_of
from capturable.stand_in import is_not_modelled
from capturable.user_lines import Line

REFUSED = ("sync", "copy", "generator", "optimizer", "kept graph", "stream", "autocast cache")
# what is said at a line after the one that broke the capture
LATER = "previous error during capture"
REPEATED = 1e-5  # the part of a change by which eager may differ from itself: sums in another order
FROZEN = ("frozen number", "path", "shape", "moved tensor")


def verified(
    step: Callable,
    static: Call,
    real: Call,
    generators: Iterable,
    findings: Findings,
    final: bool = True,
) -> Findings:
    """The findings, and what a real capture on a side stream, in a private pool, adds or takes
    back.

    A refusal at a line without a finding becomes one; where the capture passes, what it should have
    refused becomes a note, and so do frozen values when two replays, on both batches, end where
    eager ends. Where eager does not end twice at the same values, or gives a .grad a new tensor,
    that shows nothing, and the finding stays. final: whether findings may be taken back, which is
    for a GPU to do; the stand-in adds some, and none where it does not know the step.
    """
    run = partial(step, *static.args, **static.kwargs)
    with Restore(run, everything=True):
        stream = torch.cuda.Stream()
        # what a first step makes, such as optimizer state, is there in replays
        warm_up(run, stream)
        attempt = capture_and_restore(run, generators, stream)
        if attempt.error is None:
            parted, refuted = _replay_diff(step, static, real, attempt)
            return _findings_after_capture(
                findings, parted, refuted if final else (), REFUSED if final else ()
            )
        if is_not_modelled(attempt.error):
            return findings
        line = None if LATER in str(attempt.error) else attempt.line
        line = line or first_line_that_breaks_capture(run, generators, stream)
        known = {(finding.file, finding.number) for finding in findings.faults}
        if line is not None and (line.file, line.number) in known:
            return findings
        return Findings([*findings, _refusal(attempt.error, line)], findings.report)


def _findings_after_capture(
    findings: Findings, parted: list[str], refuted: tuple[str, ...], accepted: tuple[str, ...]
) -> Findings:
    """The findings about a step that captures, and whose replays leave the tensors named with
    other values; refuted: the rules of frozen values that replays like eager refute; accepted:
    those that a capture refutes."""
    passed = accepted if parted else accepted + refuted
    rows = [_downgraded(f) if f.rule in passed and f.level == "fault" else f for f in findings]
    if parted and not any(finding.rule in FROZEN for finding in rows):
        what = "differs from eager in two replays"
        rows += [Finding("replay", name, what, fix_of("replay")) for name in parted[:3]]
    return Findings(rows, findings.report)


def _refusal(error: BaseException, line: Line | None) -> Finding:
    """The finding for a capture that failed where no rule knows why."""
    known = explain(f"{type(error).__name__}: {error}")
    fix = known[0].fix if known else fix_of("capture")
    said = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    place = (str(line), line.file, line.number) if line else ("at the end of the capture", "", 0)
    return Finding("capture", place[0], f"the capture fails: {said}", fix, "fault", *place[1:])


def _downgraded(finding: Finding) -> Finding:
    said = "the real capture passed" if finding.rule in REFUSED else "replays end where eager ends"
    return finding._replace(level="note", found=f"{finding.found}; but {said}")


def _replay_diff(
    step: Callable, static: Call, real: Call, attempt: Attempt
) -> tuple[list[str], tuple[str, ...]]:
    """Names of tensors that two replays leave with other values than eager does, which is run
    twice; and the rules that replays without such tensors refute."""

    def replay(*_: Any, **__: Any) -> Any:
        attempt.graph.replay()
        for place, tensor in attempt.bound:  # as the capture has left the names
            place.put(tensor)
        return attempt.result

    runs = (step, step, replay)
    eager, again, replayed = (_run_twice(step, run, static, real) for run in runs)
    parted, repeats = [], True
    for name, (start, end) in eager.items():
        _, second = again.get(name, (start, end))
        _, other = replayed.get(name, (start, start))
        repeats = repeats and _close(start, end, end, second, REPEATED)
        if not _close(start, end, second, other):
            parted.append(name[1] or "a tensor in reach")
    if not repeats:
        return parted, ()
    moves = _moves_gradients(step, static)
    return parted, tuple(rule for rule in FROZEN if rule != "moved tensor" or not moves)


def _moves_gradients(step: Callable, static: Call) -> bool:
    """Whether a step puts another tensor in the place of a .grad: Python is back at the old one
    after the capture, so a comparison does not see what replays write."""
    with Restore(step, static.args, static.kwargs, everything=True) as restore:
        before = [(leaf, leaf.grad) for leaf, *_ in restore.leaves if leaf.grad is not None]
        step(*static.args, **static.kwargs)
        return any(leaf.grad is not gradient for leaf, gradient in before)


def _run_twice(step: Callable, run: Callable, static: Call, real: Call) -> dict[tuple, tuple]:
    """Each tensor in the step's reach, by number and name, before and after two runs, and what both
    returned.

    Between them the real batch is copied into the static one; its Python values go to the second
    run, as they go to an eager step.
    """
    with Restore(step, static, everything=True) as restore:
        places = [
            (place, value.detach().clone()) for place, value in restore.places if _is_dense(value)
        ]
        results = [_clone_outputs(run(*static.args, **static.kwargs))]
        for tensor, new in tensor_pairs(static, real):
            tensor.data.copy_(new)
        second = merge_python_values(static, real)
        results.append(_clone_outputs(run(*second.args, **second.kwargs)))
        ends = {(i, place.label): (before, place.get()) for i, (place, before) in enumerate(places)}
        for number, result in enumerate(results):
            for i, tensor in enumerate(result):
                ends[number - 2, f"output {i}"] = (torch.zeros_like(tensor), tensor)
        return {
            name: (before, end.detach().clone())
            for name, (before, end) in ends.items()
            if _is_dense(end)
        }


def _clone_outputs(result: Any) -> list[torch.Tensor]:
    """The tensors that a run returned, as they are before the next one."""
    return [leaf.detach().clone() for leaf in tree_leaves(result) if _is_dense(leaf)]


def _is_dense(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout == torch.strided


def _close(
    start: torch.Tensor,
    end: torch.Tensor,
    again: torch.Tensor,
    other: torch.Tensor,
    part: float = 1e-3,
) -> bool:
    """Whether other lies as near to end as what eager does twice, or within a part of what the
    steps changed."""
    if len({start.shape, end.shape, again.shape, other.shape}) > 1:
        return end.shape == other.shape and torch.equal(end, other)
    start, end, again, other = (t.double() for t in (start, end, again, other))
    if end.numel() == 0:
        return True
    allowed = 10 * (again - end).abs().max() + part * (end - start).abs().max()
    return bool(
        torch.equal(end.nan_to_num(), other.nan_to_num()) or (other - end).abs().max() <= allowed
    )
