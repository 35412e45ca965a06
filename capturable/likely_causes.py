"""Why a step with CUDA graphs differs from the eager one, in the words of the failure gallery: what
the stand-in has noticed, what check finds in the eager step, and signs of a single cause."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from capturable.causes import entry_of, standard_cause_name
from capturable.comparison_inputs import batch_tensors
from capturable.explain import explain
from capturable.load_step import LoadedStep, root_error
from capturable.restore.reachable import is_a
from capturable.value_differences import as_cpu_float64, same

MOST = 3
CPU_DRAWS = "CPU random numbers"
OF_KINDS = {  # what the stand-in calls by another name
    "memory gone": "An input that was freed",
    "value of the capture": "A number that is frozen",
    "gradients added": "Gradients that grow",
    "gradient overwritten": "Accumulated gradients that are wrong",
}
OF_RULES = {  # a rule of check that names a frozen value
    "frozen number": "A number that is frozen",
    "path": "A branch that is frozen",
    "CPU work": "A counter on the CPU",
    CPU_DRAWS: "A random number from the CPU",
    "moved tensor": "A state that is not written back",
    "shape": "A graph replayed for another layout than captured",
}


def likely_causes(comparing: Any, noticed: Sequence[Any], remarks: Sequence[str]) -> list[str]:
    """A few causes, each with what points to it and the fix; none where nothing points to one.

    comparing: the comparison that has found a difference, a Comparing of compare. noticed, remarks:
    of the stand-in.
    """
    kind = comparing.difference.kind
    causes = [*_causes_from_stand_in_notes(noticed)]
    if kind == "error":
        error = root_error(comparing.error)
        message = f"{type(error).__name__}: {error}"
        causes = [*(_describe_cause(entry.title) for entry in explain(message)[:1]), *causes]
        return causes[:MOST]
    if not causes:  # what was seen is no guess
        causes = [*_causes_from_symptoms(comparing), *(f"a guess: {remark}" for remark in remarks)]
        if kind in ("result", "state"):
            causes += _causes_from_preflight(comparing)
    return list(dict.fromkeys(causes))[:MOST] or _padding_cause(comparing)


def _describe_cause(title: str, seen: str = "") -> str:
    """The cause's name, what points to it, and the fix."""
    entry = entry_of(title)
    return f"{standard_cause_name(entry)}{': ' if seen else ''}{seen}\n    fix: {entry.fix}"


def _causes_from_stand_in_notes(noticed: Sequence[Any]) -> Iterator[str]:
    # others of a kind often have its cause, and memory that is gone may follow from what is told
    first = {finding.kind: finding for finding in reversed(noticed)}
    for finding in sorted(first.values(), key=lambda each: each.kind == "memory gone"):
        if finding.kind != "not computed yet":  # as compare itself reads it
            rate = finding.sentence.startswith("lr of ")
            known = "A learning rate that stays" if rate else OF_KINDS.get(finding.kind)
            name = standard_cause_name(entry_of(known)) if known else finding.kind
            yield f"{name}: {finding.sentence}"


def _causes_from_symptoms(comparing: Any) -> Iterator[str]:
    """Causes that have a sign of their own."""
    kind, call, name, _ = comparing.difference
    if kind == "later":
        yield _describe_cause("A result that is overwritten")
    if kind == "construction":
        yield from _causes_from_initial_state(comparing.state(comparing.graphed).get(name, 0.0))
    if "['lr']" in name:
        yield _describe_cause("A learning rate that stays")
    if comparing.unread:
        seen = f"the step with graphs does not read {' and '.join(comparing.unread)} of a batch"
        yield _describe_cause("A new tensor under the old name", seen)
    elif kind == "result":
        yield from _causes_from_stale_result(comparing, name)
    if comparing.captured:
        seen = f"a guess, because call {call} captures a graph"
        yield _describe_cause("A capture that trains once more", seen)
    for drawn in comparing.drew:
        on_gpu = "GPU" in drawn
        title = "A generator that the graph does not know" if on_gpu else OF_RULES[CPU_DRAWS]
        yield _describe_cause(title, f"the eager step draws from {drawn}, a replay does not")


def _causes_from_initial_state(value: Any) -> Iterator[str]:
    """Why a value of the step with graphs differs before the first call."""
    if as_cpu_float64(value).isnan().any():  # memory of the capture, which has computed nothing
        yield _describe_cause("A state that is not written back")
        return
    yield _describe_cause("A capture that trains once more")
    if is_a(value, torch.nn.Parameter):
        yield "a guess: the factories draw other random numbers for it: make the model first"


def _causes_from_stale_result(comparing: Any, name: str) -> Iterator[str]:
    """The graph returned what it had returned before, and eager did not."""
    pairs = zip(comparing.eager.results, comparing.graphed.results, strict=False)
    values = [(eager.get(name), graphed.get(name)) for eager, graphed in pairs]
    for call, (eager, graphed) in enumerate(values[:-1], 1):
        if same(graphed, values[-1][1]) and not same(eager, values[-1][0]):
            seen = f"{name} of call {len(values)} is that of call {call}"
            yield _describe_cause("A new tensor under the old name", seen)
            return


def _padding_cause(comparing: Any) -> list[str]:
    """A batch of fewer rows than others, where nothing else is known."""
    rows = [
        next((len(leaf) for leaf in batch_tensors(batch) if leaf.dim()), 0)
        for batch in comparing.batches
    ]
    call = comparing.difference.call
    if comparing.difference.kind != "result" or rows[call - 1] == max(rows):
        return []
    seen = f"a guess, because call {call} has {rows[call - 1]} rows, others {max(rows)}"
    return [_describe_cause("Padded rows that reach the real ones", seen)]


def _causes_from_preflight(comparing: Any) -> Iterator[str]:
    """What check finds in the eager step."""
    first, *others = comparing.batches
    form = [tensor.shape for tensor in batch_tensors(first)]
    alike = [batch for batch in others if [tensor.shape for tensor in batch_tensors(batch)] == form]
    other = alike[0] if alike else first
    try:
        findings = LoadedStep(comparing.again.step, *first, *other).preflight(verify=False)
    except Exception:  # the step cannot be run once more, or not be put back: nothing is known
        return
    for finding in findings.faults:
        if finding.kind == "frozen" and finding.rule in OF_RULES:
            rate = "lr" in finding.found.split() or "learning rate" in finding.found
            title = "A learning rate that stays" if rate else OF_RULES[finding.rule]
            seen = f"a guess, of the eager step: {finding.place}\n    {finding.found}"
            seen += f"\n    fix: {finding.fix}"
            yield f"{standard_cause_name(entry_of(title))}: {seen}"
