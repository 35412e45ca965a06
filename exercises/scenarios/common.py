"""What several lessons' scenarios use: random sizes, what an answer returned, what it replayed."""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Any

import torch

from cpu_graph import on_stand_in
from cpu_graph.nodes import Node
from exercises.answers.comparison import short_repr
from exercises.answers.graph_use import GraphUse
from exercises.answers.wrong import EAGER, Wrong

NO_WARM_UP = (
    "It captures without a warm-up.",
    "Run what is captured once before the capture, because a library that is used for the first "
    "time cannot be set up in a capture.",
)
POOLS = ("Each graph has a pool of its own.", "Give the later ones the pool of the first.")
WRITTEN_WHILE_READ = (
    "While the CPU reads a result, the copy of the next one may already write to the same memory.",
    "Copy the next one to other memory.",
)


def require_replay(seen: GraphUse) -> None:
    """Raises Wrong if nothing was replayed."""
    if not seen.replayed:
        raise Wrong(EAGER)


class Runs:
    """A function that notes the stream of each of its runs, captured ones apart; cold: whether it
    was captured before it had run.
    """

    def __init__(self, function: Callable):
        self.function = function
        self.eager: list[torch.cuda.Stream] = []
        self.captured: list[torch.cuda.Stream] = []
        self.cold = False

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Run the function."""
        self.note()
        return self.function(*arguments, **named)

    def note(self) -> None:
        """Note a run."""
        capturing = torch.cuda.is_current_stream_capturing()
        self.cold |= capturing and not self.eager
        (self.captured if capturing else self.eager).append(torch.cuda.current_stream())


def require_one_pool(seen: GraphUse) -> None:
    """Raises Wrong if captured graphs have different memory pools."""
    if len(seen.pools) > 1:
        raise Wrong(POOLS)


def require_descending(captured: list[int]) -> None:
    """Raises Wrong unless graphs for so many rows were captured in falling order."""
    if captured != sorted(captured, reverse=True):
        raise Wrong(
            "A smaller graph is captured before a larger one, whose tensors do not fit into the "
            "memory that it has freed.",
            "Capture the largest first.",
        )


def require_smallest_fitting(replayed: list, sizes: list[int], counts: list[int]) -> None:
    """Raises Wrong unless each size has a graph of its own, and each request of so many rows
    replayed the smallest that holds it.
    """
    fitting = [sizes[bisect_left(sizes, count)] for count in counts]
    graphs = dict(zip(fitting, replayed, strict=True))
    if len(set(graphs.values())) < len(sizes) or [graphs[size] for size in fitting] != replayed:
        raise Wrong(
            "A request goes through a graph that is too large.", "Take the smallest that holds it."
        )


def unpack_tensors(given: Any, count: int, what: str = "losses") -> list:
    """What an answer returned, if it is a list of so many tensors, or one tensor of so many
    numbers.
    """
    is_flat = torch.is_tensor(given) and given.ndim == 1
    if not (isinstance(given, list | tuple) or is_flat) or not all(map(torch.is_tensor, given)):
        raise Wrong(f"A list of {what}, each a tensor, is asked, not {short_repr(given)}.")
    if len(given) != count:
        raise Wrong(f"It returns {len(given)} {what} where {count} are asked.")
    return list(given)


def require_integers(tokens: Iterable) -> None:
    """Raises Wrong if tokens are floats, which an embedding refuses."""
    if any(one.is_floating_point() for one in tokens):
        raise Wrong("The tokens are floats, which an embedding refuses.", "Return integers.")


def unpack(given: Any, *names: str) -> tuple:
    """What an answer returned, if it is as many values as there are names."""
    if not isinstance(given, tuple | list) or len(given) != len(names):
        raise Wrong(f"Return {len(names)} values: {', '.join(names)}.")
    return tuple(given)


def as_functions(given: Any, *names: str) -> tuple:
    """What an answer returned, if it is as many functions as there are names."""
    if not all(map(callable, unpack(given, *names))):
        raise Wrong(f"Return {len(names)} functions: {', '.join(names)}.")
    return tuple(given)


def require_replays(seen: GraphUse, count: int, what: str = "batches") -> None:
    """Raises Wrong unless graphs were replayed as often as there are batches."""
    require_replay(seen)
    if len(seen.replayed) != count:
        raise Wrong(f"{len(seen.replayed)} replays for {count} {what}: each needs one.")


def draw_int(low: int = 2, high: int = 7) -> int:
    """A number that the seed of the run chooses."""
    return int(torch.randint(low, high, ()))


def nodes_of(seen: GraphUse) -> list[Node]:
    """The nodes of the captured graphs. The stand-in knows them; on a GPU the list is empty."""
    if on_stand_in() is None:
        return []
    return [node for graph in seen.captured for node in graph.capture.nodes]
