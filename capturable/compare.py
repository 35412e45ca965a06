"""compare: does a step with CUDA graphs do what the eager step does, call by call?

    print(compare(make_eager, make_graphed))

A factory makes a model, an optimizer and whatever else a step needs, and returns (step, batch,
another batch, ...). step_state knows what a step keeps, comparison_inputs what it is called with,
likely_causes why two steps may differ.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from capturable.comparison_inputs import (
    batch_tensors,
    copied_batch,
    fill_padding_of_step,
    fill_with_rubbish,
    shuffled_batches,
)
from capturable.findings import count
from capturable.inputs import Call, walk_leaves
from capturable.likely_causes import likely_causes
from capturable.load_step import args_and_kwargs
from capturable.operators import OpLog, storage_address
from capturable.restore.reachable import is_a
from capturable.stand_in import gpu_or_stand_in, is_not_modelled
from capturable.step_state import StepState, random_states, seed_all, set_random_states
from capturable.value_differences import (
    first_differing_element,
    is_numeric,
    largest_gap,
    max_abs,
    rounding,
    same,
)

CALLS = 12
RTOL = 1e-4
REPEATED = 10  # times as far as two eager runs are apart
NO_GRAPH = "no graph was replayed: both steps ran eagerly"
BUILT = "after the construction, before any call"
UNSEEN = "Not looked at: time, other threads and processes, paths that no batch took."


class NotComparable(ValueError):
    """Why two steps cannot be compared, in one sentence."""


class Difference(NamedTuple):
    """The first difference. kind: construction, error, result, state, random or later; call: its
    number from 1, 0 for the construction; name: what differs; text: how."""

    kind: str
    call: int
    name: str
    text: str

    def __str__(self) -> str:
        when = f"in call {self.call}" if self.call else BUILT
        return f"Different {when}: {self.name}{self.text}"


@dataclass
class Comparison:
    """What compare found. difference: the first one, or None; causes: what it may come from; notes:
    what was not compared, or is not blamed on the graph; agreed, counted: what was compared."""

    difference: Difference | None = None
    causes: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    agreed: str = ""
    counted: str = ""

    @property
    def equal(self) -> bool:
        """Whether no difference was found."""
        return self.difference is None

    def __str__(self) -> str:
        """Text for a terminal, or below a notebook's cell."""
        parts = [self.agreed if self.difference is None else str(self.difference)]
        parts += [f"    may come from: {cause}" for cause in self.causes]
        parts += [f"Note: {note}." for note in dict.fromkeys(self.notes)]
        return "\n".join([*parts, self.counted, UNSEEN])

    __repr__ = __str__


class Side:
    """One of the steps, with random states of its own."""

    def __init__(self, make: Callable[[], Any], seed: int) -> None:
        seed_all(seed)
        made = make()
        self.random = random_states()
        self.step, *batches = made if isinstance(made, tuple) else (made,)
        if not callable(self.step):
            raise NotComparable("a factory returns (step, batch, ...), and one returns no step")
        self.batches = [Call(*args_and_kwargs(batch)) for batch in batches]
        self.state = StepState(self.step)
        self.kept: list[dict[str, Any]] = []  # of each call, what it returned,
        self.results: list[dict[str, Any]] = []  # and what that held at once

    def call(self, batch: Call) -> None:
        """Call the step, with its own random states."""
        set_random_states(self.random)
        result = self.step(*batch.args, **batch.kwargs)
        # without its autograd graph, which would be in the way of a later capture
        kept = {name: _detached(part) for name, part in walk_leaves("result", result)}
        self.kept.append(kept)
        self.results.append(_copies(kept))
        self.random = random_states()


def compare(
    make_eager: Callable[[], Any],
    make_graphed: Callable[[], Any],
    *,
    calls: int = CALLS,
    pad: Sequence[str] = (),
    read_at_once: bool = False,
    rtol: float = RTOL,
    seed: int = 0,
) -> Comparison:
    """Compare a step with CUDA graphs to the eager step, on the GPU, or else on its stand-in.

    Each factory makes all that its step needs anew, and returns (step, batch, ...); a batch is a
    tuple of arguments, a dict of keyword arguments or a tensor. The eager factory's batches are the
    inputs of all calls, in a shuffled order (of a single one the rows are shuffled); those of the
    other factory are the samples of its capture, and hold rubbish from then on. The eager factory
    is used twice, to know what does not repeat without a graph. pad: names of tensors in which the
    step pads its inputs, or of rows of them ("static_x[5:]"); they hold rubbish before each call.
    read_at_once: a result may be overwritten by a later call. rtol: how far two results may be
    apart, as a part of the largest number, and state, as a part of what the calls changed. Raises
    NotComparable, one sentence, and whatever the eager step raises.
    """
    with gpu_or_stand_in() as device, _graphs_counted() as counts:
        eager, again = Side(make_eager, seed), Side(make_eager, seed)
        counts.clear()
        graphed = Side(make_graphed, seed)
        built = counts.copy()
        comparing = Comparing(eager, again, graphed, rtol, counts)
        comparing.run(calls, pad, read_at_once, seed)
        comparison = comparing.comparison
        if comparison.difference is None:
            comparison.agreed = comparing.agreement_text()
            if counts["replays"] < len(graphed.results):
                some = "some calls replayed no graph" if counts["replays"] else NO_GRAPH
                comparison.notes.append(some)
        else:
            noticed, remarks = _stand_in_hints(device)
            comparing.find_unread_tensors()
            comparison.causes = likely_causes(comparing, noticed, remarks)
        comparison.counted = _graph_counts_text(comparing, device, built, counts - built)
        return comparison


class Comparing:
    """The comparison under way: the steps, called in turn with equal batches."""

    def __init__(
        self, eager: Side, again: Side, graphed: Side, rtol: float, counts: Counter
    ) -> None:
        self.eager = eager
        self.again = again
        self.graphed = graphed
        self.rtol = rtol
        self.counts = counts
        self.comparison = Comparison()
        self.exact = True  # whether all is equal to the bit so far
        self.batches: list[Call] = []
        self.captured = 0  # graphs, in the last call
        self.drew: list[str] = []  # random states that the eager step's last call alone changed
        self.unread: list[str] = []  # parts of a batch that the eager step alone reads
        self.error: Exception | None = None
        self.names = eager.state.matching_names(graphed.state)
        self.gradients = not eager.state.has_optimizer()  # they are what the step is for
        _refuse_shared_tensors(eager, again, graphed)
        left = [name for name in eager.state.places if name not in self.names]
        if left:
            note = f"the step with graphs has no counterpart of {', '.join(left)}"
            self.comparison.notes.append(note)
        self.start = _copies(self.state(eager))

    def state(self, side: Side) -> dict[str, Any]:
        """What a step keeps, under the eager step's names."""
        names = self.names if side is self.graphed else {name: name for name in self.names}
        called = len(side.results) > 0  # gradients that a capture leaves are nobody's result
        return side.state.values(names, self.gradients and called)

    def run(self, calls: int, pad: Sequence[str], read_at_once: bool, seed: int) -> None:
        """Compare until something differs."""
        self.batches = shuffled_batches(self._input_batches(), calls, seed)
        if self._state_differs("construction", 0):
            return
        self._start_random_states()
        for sample in (leaf for batch in self.graphed.batches for leaf in batch_tensors(batch)):
            fill_with_rubbish(sample)
        padded: set[str] = set()
        for number, batch in enumerate(self.batches, 1):
            padded |= fill_padding_of_step(self.graphed.step, pad, self.batches)
            if self._call_and_compare(number, batch):
                return
        if unknown := [name for name in pad if name not in padded]:
            raise NotComparable(f"the step with graphs reaches no tensor named {unknown[0]}")
        if not read_at_once:
            self._compare_kept_results()

    def _input_batches(self) -> list[Call]:
        if self.eager.batches:
            return self.eager.batches
        return [copied_batch(one) for one in self.graphed.batches] or [Call((), {})]

    def _start_random_states(self) -> None:
        """Let the step with graphs begin with the random states of the eager one."""
        theirs = self.graphed.random
        drawn = [name for name, mine in self.eager.random.items() if not same(mine, theirs[name])]
        if drawn:
            self.comparison.notes.append(
                f"the construction with graphs changed {' and '.join(drawn)}, "
                "which was put back for the comparison: restore it after the warm-up"
            )
        self.graphed.random = dict(self.eager.random)

    def _call_and_compare(self, number: int, batch: Call) -> bool:
        """Call all steps with a batch; whether the one with graphs differs."""
        drawn = self.eager.random, self.graphed.random
        captures = self.counts["captures"]
        self.eager.call(copied_batch(batch))
        self.again.call(copied_batch(batch))
        try:
            self.graphed.call(copied_batch(batch))
        except Exception as error:  # whatever the step or the driver says
            if is_not_modelled(error):
                raise NotComparable(f"the stand-in does not know this step: {error}") from error
            self.error = error
            said = (str(error).strip().splitlines() or ["no message"])[0]
            return self._keep_diff("error", number, type(error).__name__, f": {said}")
        self.captured = self.counts["captures"] - captures
        self.drew = [
            name
            for name, state in self.eager.random.items()
            if not same(state, drawn[0][name]) and same(self.graphed.random[name], drawn[1][name])
        ]
        results = [side.results[-1] for side in (self.eager, self.again, self.graphed)]
        return (
            self._values_differ("result", number, results, {})
            or self._state_differs("state", number)
            or self._random_states_differ(number)
        )

    def _state_differs(self, kind: str, call: int) -> bool:
        states = map(self.state, (self.eager, self.again, self.graphed))
        return self._values_differ(kind, call, states, self.start)

    def _values_differ(self, kind: str, call: int, values: Iterable[dict], start: dict) -> bool:
        """Compare values by name, of the eager step, of another run of it, and of the graphed one.
        start: what state has changed from; {} for results."""
        eager, again, graphed = values
        if kind == "result" and eager.keys() != graphed.keys():
            names = ", ".join(sorted(eager.keys() ^ graphed.keys()))
            return self._keep_diff(kind, call, names, " is returned by one of the two steps alone")
        sizes = [max_abs(value) for name, value in eager.items() if name.endswith(".grad")]
        gradients = max(sizes, default=0.0)
        for name in eager | graphed:
            # an optimizer makes its state, which begins with zeros, in its first step
            expected = eager[name] if name in eager else _zero_like(graphed[name])
            actual = graphed[name] if name in graphed else _zero_like(expected)
            if same(expected, actual):
                continue
            if not (is_numeric(expected) and is_numeric(actual)):
                text = f": eager {expected!r:.60}, with graphs {actual!r:.60}"
                return self._keep_diff(kind, call, name, text)
            if _shape(expected) != _shape(actual):
                text = f" has the shape {_shape(actual)}, and {_shape(expected)} eagerly"
                return self._keep_diff(kind, call, name, text)
            changed = largest_gap(expected, start.get(name, 0.0)) if start else max_abs(expected)
            # a gradient that should be zero is the rounding of others
            size = gradients if name.endswith(".grad") else max_abs(expected)
            allowed = self.rtol * changed + rounding(expected) * size
            repeats = largest_gap(expected, again.get(name, expected))
            if repeats:
                note = f"{name} differs by {repeats:.3g} between two eager runs"
                self.comparison.notes.append(note)
            apart = first_differing_element(expected, actual, allowed + REPEATED * repeats)
            if apart:
                return self._keep_diff(kind, call, name, str(apart))
            self.exact = False
        return False

    def _random_states_differ(self, call: int) -> bool:
        for name, state in self.eager.random.items():
            repeats = same(state, self.again.random[name])
            if repeats and not same(state, self.graphed.random[name]):
                return self._keep_diff("random", call, name, " is not that of the eager step")
        return False

    def _compare_kept_results(self) -> None:
        """Compare what earlier calls returned, now that all are over."""
        kept = zip(self.eager.kept, self.again.kept, self.graphed.kept, strict=True)
        for number, values in enumerate(kept, 1):
            if self._values_differ("later", number, values, {}):
                return

    def _keep_diff(self, kind: str, call: int, name: str, text: str) -> bool:
        if kind == "later":
            text = f"{text}, read after call {len(self.batches)}"
        self.comparison.difference = Difference(kind, call, name, text)
        return True

    @property
    def difference(self) -> Difference:
        """The difference that was found."""
        assert self.comparison.difference
        return self.comparison.difference

    def find_unread_tensors(self) -> None:
        """Call both steps with another batch if a call differs: do they read all of it, and does
        the result follow it?"""
        if self.difference.kind in ("result", "state"):
            batch = self.batches[self.difference.call % len(self.batches)]
            with suppress(Exception):
                read = _batch_tensors_read(self.eager, copied_batch(batch))
                self.unread = sorted(read - _batch_tensors_read(self.graphed, copied_batch(batch)))

    def agreement_text(self) -> str:
        """What was compared, and how equal it is."""
        how = "Equal, bit for bit" if self.exact else f"Equal but for rounding (rtol {self.rtol:g})"
        state = f"{len(self.state(self.eager))} tensors and numbers of state after each"
        return f"{how}: the results of {len(self.batches)} calls, {state}, random states."


def _stand_in_hints(device: Any) -> tuple[list, list[str]]:
    """What the stand-in has told so far, and what it remarks of the captures."""
    if device is None:
        return [], []
    remarks = [remark for captured in device.captures for remark in captured.remarks]
    return list(device.findings), remarks


def _graph_counts_text(comparing: Comparing, device: Any, built: Counter, later: Counter) -> str:
    """How many graphs were captured and replayed, and what a call launches."""
    where = "a GPU" if device is None else "the stand-in for CUDA graphs, in place of a GPU"
    calls = len(comparing.graphed.results)
    told = (
        f"On {where}: {count(built['captures'], 'capture')} at the construction, "
        f"{later['captures']} in {count(calls, 'call')}, {count(later['replays'], 'replay')}."
    )
    if comparing.comparison.difference is not None:
        return told
    batch = comparing.batches[-1]
    eager = _launches_of_call(comparing.eager, copied_batch(batch), device)
    graphed = _launches_of_call(comparing.graphed, copied_batch(batch), device)
    return (
        f"{told}\nOne call launches {count(eager['operators'], 'operator')} eagerly; with graphs, "
        f"{count(graphed['graphs'], 'graph')} and {count(graphed['operators'], 'operator')}."
    )


def _launches_of_call(side: Side, batch: Call, device: Any) -> Counter:
    """The graphs and operators that one more call launches."""
    if device is not None:
        before = device.launches.copy()
        side.call(batch)
        return device.launches - before
    with _graphs_counted() as counts, _OperatorCounter() as log:
        side.call(batch)
    return Counter(graphs=counts["replays"], operators=log.launched)


def _batch_tensors_read(side: Side, batch: Call) -> set[str]:
    """The names of a batch's tensors that an operator takes in a call."""
    with OpLog(written=lambda tensor: None) as log:
        side.call(batch)
    taken = {where for op in log.ops for where in op.outside}
    named = [*walk_leaves("args", batch.args), *walk_leaves("kwargs", batch.kwargs)]
    tensors = [(name, part) for name, part in named if is_a(part, torch.Tensor)]
    return {name for name, tensor in tensors if storage_address(tensor) in taken}


class _OperatorCounter(TorchDispatchMode):
    """Counts the operators on the GPU that are no views."""

    def __init__(self) -> None:
        super().__init__()
        self.launched = 0

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        result = operator(*args, **(kwargs or {}))
        leaves = tree_leaves((args, kwargs, result))
        on_gpu = any(isinstance(leaf, torch.Tensor) and leaf.is_cuda for leaf in leaves)
        self.launched += on_gpu and not operator.is_view
        return result


def _shape(value: Any) -> tuple:
    return tuple(value.shape) if isinstance(value, torch.Tensor) else ()


def _zero_like(value: Any) -> Any:
    return torch.zeros_like(value) if isinstance(value, torch.Tensor) else 0.0


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, torch.Tensor) else value


def _copies(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value.detach().clone() if isinstance(value, torch.Tensor) else value
        for name, value in values.items()
    }


def _refuse_shared_tensors(*sides: Side) -> None:
    """Raise NotComparable if two of the steps have a tensor in common."""
    seen: dict[int, int] = {}
    kept = [side.state.values({n: n for n in side.state.places}, True) for side in sides]
    for number, values in enumerate(kept):
        for name, value in values.items():
            where = storage_address(value) if isinstance(value, torch.Tensor) else 0
            if where and seen.setdefault(where, number) != number:
                raise NotComparable(
                    f"{name} belongs to two of the steps that are compared: "
                    "a factory makes its model, its optimizer and its tensors anew"
                )


@contextmanager
def _graphs_counted() -> Iterator[Counter]:
    """Count the captures and the replays of the block."""
    counts: Counter = Counter()
    cls = torch.cuda.CUDAGraph
    capture_end, replay = cls.capture_end, cls.replay

    def counted_end(graph: Any) -> None:
        capture_end(graph)
        counts["captures"] += 1

    def counted_replay(graph: Any) -> None:
        counts["replays"] += 1
        replay(graph)

    with patch.object(cls, "capture_end", counted_end), patch.object(cls, "replay", counted_replay):
        yield counts
