"""Judge code that should use a graph: run it on the stand-in or on a GPU, and count what it
launches.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from cpu_graph import cpu_graphs, on_stand_in


def run_scenario(scenario: Callable[[], None], seed: int, gpu: bool) -> Exception | None:
    """Run a scenario on a new stand-in, or on the GPU; returns what it raises.

    scenario takes nothing: it makes its tensors on "cuda", builds the answer, and uses it as a
    reader would, several times. torch's generators are seeded before it.
    """
    # count_launches: on a GPU, replays are then noted by whatever name an answer calls them
    with nullcontext() if gpu else cpu_graphs(), count_launches():
        torch.manual_seed(seed)
        stream = torch.cuda.current_stream()
        try:
            scenario()
        except Exception as error:
            torch.cuda.set_stream(stream)
            return error
    return None


@contextmanager
def count_launches() -> Iterator[Counter]:
    """Count the launches of the block: "graphs" that it replays, and "operators" that it runs
    outside them.

    Views are no launches, copies are. What a capture records is not counted, what a warm-up runs
    is: open the block after it. Works inside cpu_graphs() and on a GPU.
    """
    counts = Counter()
    if (device := on_stand_in()) is not None:
        before = device.launches.copy()
        try:
            yield counts
        finally:
            counts.update(device.launches - before)
        return

    def counted(replay, graph):
        counts["graphs"] += 1
        before = counts["operators"]
        replay(graph)
        counts["operators"] = before  # a replay's own: it writes seed and offset of its generators

    with OperatorCounter(counts), wrap_replays(counted):
        yield counts


_around: list[Callable] = []  # what is called in the place of a replay, innermost first


@contextmanager
def wrap_replays(wrapper: Callable[[Callable, Any], None]) -> Iterator[None]:
    """Call wrapper(replay, graph) in the place of each replay of the block.

    Also of a replay by a bound method, `graph.replay`, that was made in an earlier such block.
    """
    cls = torch.cuda.CUDAGraph
    original = cls.replay

    def replay(graph):
        call = original
        for one in _around:
            call = partial(one, call)
        call(graph)

    _around.append(wrapper)
    try:
        with nullcontext() if len(_around) > 1 else patch.object(cls, "replay", replay):
            yield
    finally:
        _around.remove(wrapper)


class OperatorCounter(TorchDispatchMode):
    """Counts the operators that work on CUDA tensors, outside of captures."""

    def __init__(self, counts):
        super().__init__()
        self.counts = counts

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        result = operator(*args, **(kwargs or {}))
        leaves = tree_leaves((args, kwargs, result))
        if any(torch.is_tensor(leaf) and leaf.is_cuda for leaf in leaves) and not operator.is_view:
            self.counts["operators"] += not torch.cuda.is_current_stream_capturing()
        return result
