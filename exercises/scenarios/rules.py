"""The rules that the texts of exercises state, each as a function.

A scenario whose text has the sentence of a rule calls it: tests/exercises/test_rules.py compares
the two.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import combinations
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from cpu_graph import on_stand_in
from cpu_graph.log import is_replay, launch_log, ordered
from cpu_graph.nodes import Node
from exercises.answers.graph_use import GraphUse, watch_graphs
from exercises.answers.tensors import are_equal, copy_tensors
from exercises.answers.wrong import Wrong


def require_one_graph(seen: GraphUse) -> None:
    """One graph: raises Wrong if more than one was captured."""
    if len(seen.captured) > 1:
        raise Wrong(f"It captures {len(seen.captured)} graphs.", "One is enough.")


def call_with_one_graph(answer: Callable, *arguments: Any) -> Any:
    """What an answer returns; raises Wrong if it captured more than one graph."""
    with watch_graphs() as seen:
        returned = answer(*arguments)
    require_one_graph(seen)
    return returned


@contextmanager
def unmodified(what: str, *values: Any) -> Iterator[None]:
    """The caller's tensors do not change: raises Wrong if one of values has after the block.

    what: their names in the exercise.
    """
    before = copy_tensors(values)
    yield
    if not are_equal(values, before):
        raise Wrong(
            f"It changes a tensor of the caller: {what}.",
            "Every replay writes new values into its static inputs, so capture on clones.",
        )


def refuse_grad(results: Any) -> None:
    """A loss is returned without its autograd graph: raises Wrong if a result requires a
    gradient.
    """
    if any(torch.is_tensor(leaf) and leaf.requires_grad for leaf in tree_leaves(results)):
        raise Wrong(
            "A result requires a gradient, so it keeps the autograd graph of its step alive.",
            "Return it detached.",
        )


def require_concurrent(nodes: Iterable[Node], said: str | tuple[str, str]) -> None:
    """Branches may run at the same time: raises Wrong(said) if something orders two of the nodes
    that are on different streams.
    """
    for one, other in combinations(nodes, 2):
        if one.stream != other.stream and ordered(one, other):
            raise Wrong(said)


def require_graph_overlap() -> None:
    """Graphs may run at the same time: called after a replay, raises Wrong if it had to wait for
    the replay before it, on the GPU or on the CPU. Only the stand-in knows.
    """
    replays: dict[int, list[Node]] = {}
    for node in launch_log():
        if is_replay(node):
            replays.setdefault(node.stream[0], []).append(node)
    earlier, later = ([[], []] + [replays[number] for number in sorted(replays)])[-2:]
    if on_stand_in() and all(one.before(other.clock) for one in earlier for other in later):
        raise Wrong(
            "The second replay cannot begin before the first one has ended.",
            "Leave out the wait between them.",
        )


def occupy_freed(shapes: Iterable[torch.Size]) -> list[torch.Tensor]:
    """The caller may free its tensors right after: takes the memory that these shapes had, as the
    caller's next tensors would. Keep what it returns.
    """
    return [torch.full(shape, 7.0, device="cuda") for shape in shapes]
