"""Count what code launches, on the stand-in and on a GPU: whether an answer really uses a graph."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from cpu_graph.graphs import CUDAGraph


@contextmanager
def launches() -> Iterator[Counter]:
    """Count the launches of the block: "graphs" that it replays, and "operators" that it runs outside them.

    Views are no launches, copies are. What a capture records is not counted, what a warm-up runs
    is: open the block after it. Works inside cpu_graphs() and on a GPU.
    """
    if (device := CUDAGraph.stand_in) is not None:
        before, counts = device.counts.copy(), Counter()
        try:
            yield counts
        finally:
            counts.update(device.counts - before)
        return
    with Operators() as operators, patch.object(torch.cuda.CUDAGraph, "replay", counted(operators.counts)):
        yield operators.counts


def counted(counts):
    replay = torch.cuda.CUDAGraph.replay

    def counting(graph):
        counts["graphs"] += 1
        return replay(graph)

    return counting


class Operators(TorchDispatchMode):
    """Counts the operators that work on CUDA tensors, outside of captures."""

    def __init__(self):
        super().__init__()
        self.counts = Counter()

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        result = operator(*args, **(kwargs or {}))
        tensors = [leaf for leaf in tree_leaves((args, kwargs, result)) if isinstance(leaf, torch.Tensor)]
        if any(tensor.is_cuda for tensor in tensors) and not operator.is_view:
            self.counts["operators"] += not torch.cuda.is_current_stream_capturing()
        return result
