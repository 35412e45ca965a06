"""What is wrong with an answer that captures a graph: used as a reader would use it, and told by
its symptoms.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from cpu_graph import on_stand_in
from exercises.answers.comparison import short_repr
from exercises.answers.launches import count_launches, wrap_replays

EAGER = "Nothing was replayed: this runs eagerly."
UNWRITTEN = (
    "and nan is what a capture leaves behind: no replay has written it, or a stream did not wait"
)
EVERY_TIME_THE_FIRST = (
    "Every result is that of the first input.",
    "Copy the new input into the static input.",
)
EVERY_TIME_THE_LAST = (
    "Every result is the last one.",
    "The next replay writes over it: clone each result after its replay.",
)
ONE_BEHIND = ("Each result is that of the input before.", "Copy first, then replay.")
WHILE_USED = ("It captures while it is used.", "Capture once, before the first call.")
FREED = (
    "In the graph, {operator} reads memory whose tensor is gone.",
    "Keep every tensor that a graph reads as long as the graph, and write new values into it with "
    "copy_: `x = new` only gives the name to another tensor.",
)
SAME_MEMORY = (
    "Two of your results are the same memory.",
    "Clone each result after the replay; a clone inside of the capture is memory of the graph.",
)
WRITTEN_OVER = (
    "A result was right when it was returned, and a later replay wrote over it.",
    "Clone it after the replay; a clone inside of the capture is memory of the graph.",
)
# How far an answer may lie from eager, as a share of the largest number of the tensor. The stand-in
# runs the same CPU kernels for both, so only another order of sums is left. On a GPU, cuBLAS may
# take another algorithm in a capture, TF32 keeps 10 bits of an input, and atomic additions change
# their order; there an answer has passed the stand-in before.
ON_THE_STAND_IN = 1e-5
ON_A_GPU = 1e-2
SMALLEST = 1e-2  # of a scale: where a sum cancels, only rounding errors are left


class Wrong(Exception):
    """What is wrong with an answer, in the reader's terms: what is seen, and the repair.

    said: both in one text, or a pair of the two. Whoever repairs a broken capture reads the second
    only after some runs.
    """

    def __init__(self, said: str | tuple[str, str], repair: str = ""):
        self.symptom, self.repair = said if isinstance(said, tuple) else (said, repair)
        super().__init__(f"{self.symptom} {self.repair}".rstrip())


@dataclass
class GraphUse:
    """The graphs that a block has begun to capture, and those that it has replayed, in order."""

    captured: list = field(default_factory=list)
    replayed: list = field(default_factory=list)

    @property
    def pools(self) -> set:
        """The memory pools of the captured graphs."""
        return {graph.pool() for graph in self.captured}

    def captures_at_most_one(self) -> None:
        """Raises Wrong if more than one graph was captured."""
        if len(self.captured) > 1:
            raise Wrong(f"It captures {len(self.captured)} graphs.", "One is enough.")


@contextmanager
def watch_graphs() -> Iterator[GraphUse]:
    """Note each capture and each replay of the block, on the stand-in or on a GPU."""
    seen, cls = GraphUse(), torch.cuda.CUDAGraph
    begin = cls.capture_begin

    def begun(graph, *args, **options):
        seen.captured.append(graph)
        return begin(graph, *args, **options)

    def replayed(replay, graph):
        seen.replayed.append(graph)
        replay(graph)

    with patch.object(cls, "capture_begin", begun), wrap_replays(replayed):
        yield seen


def copy_tensors(value: Any) -> Any:
    """The value with tensors of its own, without history."""
    return tree_map_only(torch.Tensor, lambda tensor: tensor.detach().clone(), value)


def are_equal(these: Any, those: Any) -> bool:
    """Whether two results, or lists of results, hold the same tensors, bit for bit."""
    these, those = _tensors(these), _tensors(those)
    return len(these) == len(those) and all(map(_is_equal, these, those))


def are_close(these: Any, those: Any, *, margin: float = ON_THE_STAND_IN) -> bool:
    """Whether two results, or lists of results, hold the same tensors, but for rounding.

    margin: on the stand-in, as a share of the largest number of a tensor.
    """
    these, those = _tensors(these), _tensors(those)
    return len(these) == len(those) and all(
        a.shape == b.shape and not bool(_is_apart(a, b, margin).any())
        for a, b in zip(these, those, strict=True)
    )


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf.detach() for leaf in tree_leaves(value) if torch.is_tensor(leaf)]


def _is_equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Also where both hold NaN."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    one, other = one.cpu(), other.cpu()
    return bool(((one == other) | ((one != one) & (other != other))).all())


def _is_apart(yours: torch.Tensor, right: torch.Tensor, margin: float) -> torch.Tensor:
    """Where two tensors of one shape differ by more than rounding; NaN differs from everything."""
    yours, right = yours.cpu(), right.cpu()
    if not right.is_floating_point():
        return yours != right
    yours, right = yours.double(), right.double()
    finite = right[right.isfinite()]
    scale = max(SMALLEST, finite.abs().max().item()) if finite.numel() else SMALLEST
    margin = margin if on_stand_in() else max(margin, ON_A_GPU)
    return ~((yours == right) | ((yours - right).abs() <= margin * scale))


@dataclass
class AnswerCalls:
    """What some calls of an answer gave, when it was returned and at the end, and what they
    launched.
    """

    given: list
    kept: list
    counts: Counter
    seen: GraphUse

    def replays(self, graphs: int, operators: int) -> None:
        """Raises Wrong unless so many graphs were launched in all calls together, and beside them
        at most so many operators.
        """
        found, outside = self.counts["graphs"], self.counts["operators"]
        self.only_replays()
        if found != graphs:
            found, graphs, where = self._per_call(found, graphs)
            raise Wrong(
                f"{found} graph launches {where}, where {graphs} would do.",
                "One graph holds all the work of a call." if graphs == 1 else "",
            )
        if outside > operators:
            outside, operators, where = self._per_call(outside, operators)
            raise Wrong(
                f"{outside} operators ran outside of the graph "
                f"{where}, where {operators} would do.",
                "Capture them too.",
            )

    def only_replays(self) -> None:
        """Raises Wrong if a call captured, or if none replayed a graph."""
        if self.seen.captured:
            raise Wrong(WHILE_USED)
        if not self.seen.replayed:
            raise Wrong(EAGER)

    def _per_call(self, found: int, asked: int) -> tuple[int, int, str]:
        """Two counts over all calls, for each call if both divide; and what they are counts of."""
        calls = max(1, len(self.given))
        if found % calls or asked % calls:
            return found, asked, f"in {calls} calls"
        return found // calls, asked // calls, "in a call"

    def gives(
        self, expected: list, symptoms: Mapping | None = None, margin: float = ON_THE_STAND_IN
    ) -> None:
        """Raises Wrong unless the results are the expected ones.

        symptoms: see match_symptoms; that no call, or the call before, has copied its input is
        among them. margin: see close.
        """
        require_no_freed_reads()
        if are_close(self.kept, expected, margin=margin):
            return
        if are_close(self.given, expected, margin=margin):
            addresses = [tensor.untyped_storage().data_ptr() for tensor in _tensors(self.kept)]
            raise Wrong(SAME_MEMORY if len(set(addresses)) < len(addresses) else WRITTEN_OVER)
        require_expected(self.given, expected, (symptoms or {}).items(), margin)


def require_expected(
    given: list,
    expected: list,
    symptoms: Iterable[tuple[Any, Any]] = (),
    margin: float = ON_THE_STAND_IN,
    what: str = "Result",
) -> None:
    """Raises Wrong unless these are the expected results, with the symptom that they show or with
    where they part.
    """
    if are_close(given, expected, margin=margin):
        return
    match_symptoms(given, symptoms, margin)
    if are_close(given, expected[:1] * len(expected), margin=margin):
        raise Wrong(EVERY_TIME_THE_FIRST)
    if len(expected) > 2 and are_close(given[1:], expected[:-1], margin=margin):
        raise Wrong(ONE_BEHIND)
    raise Wrong(describe_first_difference(given, expected, margin, what))


def match_symptoms(
    given: Any, symptoms: Iterable[tuple[Any, Any]], margin: float = ON_THE_STAND_IN
) -> None:
    """Raises Wrong with the first symptom whose results were given.

    symptoms: what is wrong, as Wrong takes it, and the results that it leads to, or a function that
    computes them.
    """
    for message, results in symptoms:
        if are_close(given, results() if callable(results) else results, margin=margin):
            raise Wrong(message)


def require_distinct_results(results: list) -> None:
    """Raises Wrong if every result is the last one, which is another than the first."""
    if len(results) > 1 and are_close(results, results[-1:] * len(results)):
        raise Wrong(EVERY_TIME_THE_LAST)


def fill_placeholders(said: tuple[str, str], *values: Any, **named: Any) -> tuple[str, str]:
    """A symptom and its repair with values in their places."""
    symptom, repair = said
    return symptom.format(*values, **named), repair.format(*values, **named)


def require_no_freed_reads() -> None:
    """Raises Wrong if a replay has read memory of a tensor that is gone; the stand-in knows it."""
    device = on_stand_in()
    hints = "\n".join(device.hints) if device else ""
    if read := re.search(r"memory whose tensor is gone \((?:aten::)?([^.) ]+)", hints):
        raise Wrong(fill_placeholders(FREED, operator=read[1]))


def describe_first_difference(
    given: list, expected: list, margin: float = ON_THE_STAND_IN, what: str = "Result"
) -> str:
    """Where two lists of results part, in words: the tensor, its first number that differs, and
    both numbers.
    """
    for number, (yours, right) in enumerate(zip(given, expected, strict=True), 1):
        if not are_close(yours, right, margin=margin):
            part = _describe_tensor_difference(_tensors(yours), _tensors(right), margin)
            return f"{what} {number} differs from the eager one: {part}."
    return "The results differ from the eager ones."


def _describe_tensor_difference(
    yours: list[torch.Tensor], right: list[torch.Tensor], margin: float
) -> str:
    if len(yours) != len(right):
        return f"it holds {len(yours)} tensors instead of {len(right)}"
    number = [are_close(*pair, margin=margin) for pair in zip(yours, right, strict=True)].index(
        False
    )
    which = f"its tensor {number + 1} of {len(right)}" if len(right) > 1 else "it"
    one, other = yours[number], right[number]
    if one.shape != other.shape:
        return f"{which} has the shape {tuple(one.shape)} instead of {tuple(other.shape)}"
    at = _is_apart(one, other, margin).nonzero()[0].tolist()
    values = one[tuple(at)].item(), other[tuple(at)].item()
    texts = [f"{value:.4g}" for value in values]
    if texts[0] == texts[1]:
        texts = [f"{value:.9g}" for value in values]
    said = f"{which} holds {texts[0]}{f' at {at}' if at else ''} instead of {texts[1]}"
    return f"{said}, {UNWRITTEN}" if math.isnan(values[0]) else said


def returned_function(answer: Any) -> Callable:
    """The function that an answer returned. Raises Wrong if it is none."""
    if not callable(answer):
        raise Wrong(f"A function is to be returned, not {short_repr(answer)}.")
    return answer


def call_answer(
    answer: Callable, requests: Iterable, what: str = "The function that you return"
) -> AnswerCalls:
    """Call the answer with each request (a tuple of arguments, or one argument), and keep what it
    gives.

    Raises Wrong where it gives no tensors.
    """
    returned_function(answer)
    used, counts = [], Counter()
    with watch_graphs() as seen:
        for request in requests:
            with count_launches() as one:
                result = answer(*(request if isinstance(request, tuple) else (request,)))
            counts.update(one)
            if not any(map(torch.is_tensor, tree_leaves(result))):
                question = "is a `return` missing?" if result is None else "a tensor is asked."
                raise Wrong(f"{what} gives {short_repr(result)}: {question}")
            used.append((copy_tensors(result), result))
    return AnswerCalls([given for given, _ in used], [kept for _, kept in used], counts, seen)
