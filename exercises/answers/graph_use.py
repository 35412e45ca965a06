"""What is wrong with an answer that captures a graph: used
as a reader would use it, and told by its symptoms.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from exercises.answers.comparison import brief
from exercises.answers.launches import launches

EAGER = "Nothing was replayed: this runs eagerly."
EVERY_TIME_THE_FIRST = (
    "Every result is that of the first input: copy the new input into the static input."
)


class Wrong(Exception):
    """What is wrong with an answer, in the reader's terms."""


@dataclass
class Watched:
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
            raise Wrong(f"It captures {len(self.captured)} graphs: one is enough.")


@contextmanager
def watch() -> Iterator[Watched]:
    """Note each capture and each replay of the block, on the stand-in or on a GPU."""
    seen, cls = Watched(), torch.cuda.CUDAGraph
    begin, replay = cls.capture_begin, cls.replay

    def begun(graph, *args, **options):
        seen.captured.append(graph)
        return begin(graph, *args, **options)

    def replayed(graph):
        seen.replayed.append(graph)
        return replay(graph)

    with patch.object(cls, "capture_begin", begun), patch.object(cls, "replay", replayed):
        yield seen


def copied(value: Any) -> Any:
    """The value with tensors of its own, without history."""
    return tree_map_only(torch.Tensor, lambda tensor: tensor.detach().clone(), value)


def close(these: Any, those: Any) -> bool:
    """Whether two results, or lists of results, hold the same tensors, but for rounding."""
    these, those = (list(filter(torch.is_tensor, tree_leaves(side))) for side in (these, those))
    return len(these) == len(those) and all(
        a.shape == b.shape and torch.allclose(a.detach(), b.detach().to(a), rtol=1e-2, atol=1e-3)
        for a, b in zip(these, those, strict=True)
    )


@dataclass
class Used:
    """What some calls of an answer gave, when it was
    returned and at the end, and what they launched.
    """

    given: list
    kept: list
    counts: Counter
    seen: Watched

    def replays(self, graphs: int, operators: int) -> None:
        """Raises Wrong unless so many graphs were launched,
        and beside them at most so many operators.
        """
        found, outside = self.counts["graphs"], self.counts["operators"]
        if self.seen.captured:
            raise Wrong("It captures while it is used: capture once, before the first call.")
        if not found:
            raise Wrong(EAGER)
        if found != graphs:
            raise Wrong(
                f"{found} graph launches where {graphs} are asked: one graph for all the work of a "
                "call."
            )
        if outside > operators:
            raise Wrong(
                f"{outside} operators ran outside of the graph, where {operators} would do: "
                "capture them too."
            )

    def gives(self, expected: list, symptoms: Mapping[str, list | Callable[[], list]]) -> None:
        """Raises Wrong unless the results are the expected ones.

        symptoms: what is wrong -> the results that it leads to, or a function that computes them.
        """
        if close(self.kept, expected):
            return
        if close(self.given, expected):
            addresses = [
                leaf.untyped_storage().data_ptr()
                for leaf in tree_leaves(self.kept)
                if torch.is_tensor(leaf)
            ]
            if len(set(addresses)) < len(addresses):
                raise Wrong("Your second result is the first one's memory: clone it.")
            raise Wrong(
                "A result was right when it was returned, and a later replay wrote over it: clone "
                "it."
            )
        for message, results in symptoms.items():
            if close(self.given, results() if callable(results) else results):
                raise Wrong(message)
        raise Wrong(parting(self.given, expected))


def parting(given: list, expected: list) -> str:
    """Where two lists of results part, in words."""
    for number, (yours, right) in enumerate(zip(given, expected, strict=True), 1):
        if not close(yours, right):
            return f"Result {number} is not eager's: yours {shown(yours)}, expected {shown(right)}."
    return "The results differ from eager's."


def shown(value: Any) -> str:
    """The first numbers of a result, or its shape where it is no small one."""
    tensors = [leaf for leaf in tree_leaves(value) if torch.is_tensor(leaf)]
    if len(tensors) != 1:
        return f"{len(tensors)} tensors"
    values = [round(number, 3) for number in tensors[0].detach().flatten()[:3].tolist()]
    rest = ", ..." if tensors[0].numel() > 3 else ""
    return f"{tuple(tensors[0].shape)} {', '.join(map(str, values))}{rest}"


def returned(answer: Any) -> Callable:
    """The function that an answer returned. Raises Wrong if it is none."""
    if not callable(answer):
        raise Wrong(f"A function is to be returned, not {brief(answer)}.")
    return answer


def use(answer: Callable, requests: Iterable, what: str = "The function that you return") -> Used:
    """Call the answer with each request (a tuple of
    arguments, or one argument), and keep what it gives.

    Raises Wrong where it gives no tensors.
    """
    returned(answer)
    used, counts = [], Counter()
    with watch() as seen:
        for request in requests:
            with launches() as one:
                result = answer(*(request if isinstance(request, tuple) else (request,)))
            counts.update(one)
            if not any(map(torch.is_tensor, tree_leaves(result))):
                question = "is a `return` missing?" if result is None else "a tensor is asked."
                raise Wrong(f"{what} gives {brief(result)}: {question}")
            used.append((copied(result), result))
    return Used([given for given, _ in used], [kept for _, kept in used], counts, seen)
