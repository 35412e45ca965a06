"""What is wrong with an answer that captures a graph: used as a reader would use it, and told by
its symptoms.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._pytree import tree_leaves

from cpu_graph import on_stand_in
from exercises.answers.comparison import short_repr
from exercises.answers.launches import count_launches, wrap_replays
from exercises.answers.tensors import (
    are_close,
    copy_tensors,
    describe_first_difference,
    tensors_in,
)
from exercises.answers.wrong import (
    EAGER,
    EVERY_TIME_THE_FIRST,
    EVERY_TIME_THE_LAST,
    WRITTEN_OVER,
    Wrong,
    require_function,
)

ONE_BEHIND = ("Each result is that of the input before.", "Copy first, then replay.")
WHILE_USED = ("It captures while it is used.", "Capture once, before the first call.")
SAME_MEMORY = (
    "Two of your results are the same memory.",
    "Clone each result after the replay; a clone inside of the capture is memory of the graph.",
)


@dataclass
class GraphUse:
    """The graphs that a block has begun to capture, and those that it has replayed, in order."""

    captured: list = field(default_factory=list)
    replayed: list = field(default_factory=list)

    @property
    def pools(self) -> set:
        """The memory pools of the captured graphs."""
        return {graph.pool() for graph in self.captured}


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


@dataclass
class AnswerCalls:
    """What some calls of an answer gave, when it was returned and at the end, and what they
    launched.
    """

    given: list
    kept: list
    counts: Counter
    seen: GraphUse

    def require_launches(self, graphs: int, operators: int) -> None:
        """Raises Wrong unless so many graphs were launched in all calls together, and beside them
        at most so many operators.
        """
        found, outside = self.counts["graphs"], self.counts["operators"]
        self.require_only_replays()
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

    def require_only_replays(self) -> None:
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

    def require_results(self, expected: list, symptoms: Mapping | Iterable = ()) -> None:
        """Raises Wrong unless the results are the expected ones.

        symptoms: see raise_symptom; that no call, or the call before, has copied its input is
        among them.
        """
        require_no_freed_reads()
        if are_close(self.kept, expected):
            return
        if are_close(self.given, expected):
            addresses = [tensor.untyped_storage().data_ptr() for tensor in tensors_in(self.kept)]
            raise Wrong(SAME_MEMORY if len(set(addresses)) < len(addresses) else WRITTEN_OVER)
        pairs = symptoms.items() if isinstance(symptoms, Mapping) else symptoms
        require_expected(self.given, expected, pairs)


def require_expected(
    given: list, expected: list, symptoms: Iterable[tuple] = (), what: str = "Result"
) -> None:
    """Raises Wrong unless these are the expected results, with the symptom that they show or with
    where they part.
    """
    if are_close(given, expected):
        return
    raise_symptom(given, symptoms)
    if are_close(given, expected[:1] * len(expected)):
        raise Wrong(EVERY_TIME_THE_FIRST)
    if len(expected) > 2 and are_close(given[1:], expected[:-1]):
        raise Wrong(ONE_BEHIND)
    raise Wrong(describe_first_difference(given, expected, what))


def raise_symptom(given: Any, symptoms: Iterable[tuple[Any, Any]]) -> None:
    """Raises Wrong with the first symptom whose results were given.

    symptoms: what is wrong, as Wrong takes it, and the results that it leads to, or a function that
    computes them.
    """
    for message, results in symptoms:
        if are_close(given, results() if callable(results) else results):
            raise Wrong(message)


def require_distinct_results(results: list) -> None:
    """Raises Wrong if every result is the last one, which is another than the first."""
    if len(results) > 1 and are_close(results, results[-1:] * len(results)):
        raise Wrong(EVERY_TIME_THE_LAST)


def require_no_freed_reads() -> None:
    """Raises Wrong if a replay has read memory of a tensor that is gone; the stand-in knows it."""
    device = on_stand_in()
    hints = "\n".join(device.hints) if device else ""
    if read := re.search(r"memory whose tensor is gone \((?:aten::)?([^.) ]+)", hints):
        raise Wrong(
            f"In the graph, {read[1]} reads memory whose tensor is gone.",
            "Keep every tensor that a graph reads as long as the graph, and write new values into "
            "it with copy_: `x = new` only gives the name to another tensor.",
        )


def call_answer(
    answer: Callable, requests: Iterable, what: str = "The function that you return"
) -> AnswerCalls:
    """Call the answer with each request (a tuple of arguments, or one argument), and keep what it
    gives.

    Raises Wrong where it gives no tensors.
    """
    require_function(answer)
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
