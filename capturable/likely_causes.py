"""Why a step with CUDA graphs may differ from the eager one: causes that its results point to, in
the words of the failure gallery."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from capturable.causes import entries, standard_name
from capturable.comparison_inputs import tensors
from capturable.explain import explain
from capturable.inputs import Call
from capturable.values_apart import same

MOST = 3
OF_RULES = {  # a rule of check that names a frozen value, and the cause
    "frozen number": "A number that is frozen",
    "path": "A branch that is frozen",
    "CPU work": "A counter on the CPU",
    "CPU random numbers": "A random number from the CPU",
    "moved tensor": "A state that is not written back",
    "shape": "A graph replayed for another layout than captured",
}


@dataclass
class Evidence:
    """What is known of a difference. kind, call: as in Difference; name: of what differs; eager,
    graphed: the results of all calls so far; start, eager_state, graphed_state: state by name;
    batches: the inputs of all calls; drew: random states that the eager step's call changed, and
    the other one's did not; noticed: the stand-in's findings."""

    kind: str
    call: int
    name: str
    step: Callable
    error: BaseException | None = None
    eager: list[dict[str, Any]] = field(default_factory=list)
    graphed: list[dict[str, Any]] = field(default_factory=list)
    start: dict[str, Any] = field(default_factory=dict)
    eager_state: dict[str, Any] = field(default_factory=dict)
    graphed_state: dict[str, Any] = field(default_factory=dict)
    batches: list[Call] = field(default_factory=list)
    drew: list[str] = field(default_factory=list)
    noticed: list[Any] = field(default_factory=list)


def likely_causes(evidence: Evidence) -> list[str]:
    """A few causes, each with what points to it and the fix."""
    if evidence.kind == "error":
        return [_told(entry.title) for entry in explain(_text(evidence.error))[:1]]
    if evidence.kind == "construction":
        return [_told("A capture that trains once more")]
    if evidence.kind == "later":
        return [_told("A result that is overwritten")]
    # what was seen comes before what numbers suggest
    found = [*_noticed(evidence), *_of_results(evidence), *_checked(evidence)]
    return list(dict.fromkeys(found))[:MOST]


def _told(title: str, seen: str = "") -> str:
    """The cause's name, what points to it, and the fix."""
    entry = next(entry for entry in entries() if entry.title == title)
    return f"{standard_name(entry)}{': ' if seen else ''}{seen}\n    fix: {entry.fix}"


def _text(error: BaseException | None) -> str:
    return f"{type(error).__name__}: {error}"


def _noticed(evidence: Evidence) -> Iterator[str]:
    races = [finding for finding in evidence.noticed if finding.kind == "race"]
    for finding in evidence.noticed:
        if finding not in races[1:]:  # often of the same missing wait
            name = "Freed static input" if finding.kind == "memory gone" else finding.kind
            yield f"{name}: {finding.sentence}"


def _of_results(evidence: Evidence) -> Iterator[str]:
    """Causes that numbers point to."""
    if "['lr']" in evidence.name:
        yield _told("A learning rate that stays")
    if evidence.kind == "result":
        yield from _repeated(evidence)
    if evidence.drew:
        names = " and ".join(evidence.drew)
        gpu = any("GPU" in name for name in evidence.drew)
        title = (
            "A generator that the graph does not know" if gpu else "A random number from the CPU"
        )
        yield _told(title, f"the eager step draws from {names}, a replay does not")
    rows = [_rows(batch) for batch in evidence.batches]
    if rows[evidence.call - 1] < max(rows):
        seen = f"call {evidence.call} has {rows[evidence.call - 1]} rows, others {max(rows)}"
        yield _told("Padded rows that reach the real ones", seen)
    if evidence.kind == "state":
        yield from _unmoved(evidence)


def _repeated(evidence: Evidence) -> Iterator[str]:
    """The graph returned what it had returned before, and eager did not."""
    pairs = zip(evidence.eager, evidence.graphed, strict=False)
    values = [(eager.get(evidence.name), graphed.get(evidence.name)) for eager, graphed in pairs]
    for call, (eager, graphed) in enumerate(values[:-1], 1):
        if same(graphed, values[-1][1]) and not same(eager, values[-1][0]):
            seen = f"{evidence.name} of call {len(values)} is that of call {call}"
            yield _told("A new tensor under the old name", seen)
            return


def _unmoved(evidence: Evidence) -> Iterator[str]:
    """State that changes eagerly, and not with graphs."""
    moving = [
        name
        for name, value in evidence.eager_state.items()
        if not same(value, evidence.start.get(name, 0.0))
    ]
    unmoved = [
        name
        for name in moving
        if same(evidence.graphed_state.get(name, 0.0), evidence.start.get(name, 0.0))
    ]
    if evidence.name not in unmoved:
        return
    parameters = [name for name in moving if "param_groups" not in name and "state[" not in name]
    some = len([name for name in unmoved if name in parameters]) < len(parameters)
    title = "A partial graph that stops training" if some else "A state that is not written back"
    yield _told(title, f"{evidence.name} never changes with graphs")


def _rows(batch: Call) -> int:
    return next((len(leaf) for leaf in tensors(batch) if leaf.dim()), 0)


def _checked(evidence: Evidence) -> Iterator[str]:
    """What check finds in the eager step."""
    from capturable.preflight import preflight

    first, *others = evidence.batches
    forms = [[tensor.shape for tensor in tensors(batch)] for batch in evidence.batches]
    alike = [batch for batch, form in zip(others, forms[1:], strict=True) if form == forms[0]]
    other = alike[0] if alike else first
    try:
        found = preflight(
            evidence.step,
            *first.args,
            kwargs=first.kwargs,
            other_inputs=other.args,
            other_kwargs=other.kwargs,
            verify=False,
        )
    except Exception:  # the step cannot be run once more, or not be put back: nothing is known
        return
    for finding in found.faults:
        if finding.kind == "frozen" and finding.rule in OF_RULES:
            rate = "lr" in finding.found.split() or "learning rate" in finding.found
            title = "A learning rate that stays" if rate else OF_RULES[finding.rule]
            entry = next(entry for entry in entries() if entry.title == title)
            seen = f"{finding.place}\n    {finding.found}\n    fix: {finding.fix}"
            yield f"{standard_name(entry)}: {seen}"
