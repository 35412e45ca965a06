"""The stand-in under torch's names: put there for a block of code, and taken away again."""

from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from cpu_graph.device import Device
from cpu_graph.functions import Functions
from cpu_graph.generators import Generator
from cpu_graph.graphs import CUDAGraph
from cpu_graph.names import replacements
from cpu_graph.operators import Operators
from cpu_graph.streams import Event, Stream


@contextmanager
def cpu_graphs():
    """Let torch's CUDA names work on CPU tensors in the block: streams, graphs, device="cuda" and so on.

    Everything is put back afterwards. What the stand-in does not model raises NotModelled; what a
    GPU refuses raises what it raises there. Tensors made in the block are CPU tensors after it.
    A real GPU is not touched. Raises RuntimeError inside another such block.
    """
    if CUDAGraph.stand_in is not None:
        raise RuntimeError("cpu_graphs() does not nest.")
    device = Device()
    with ExitStack() as stack:
        for cls in (CUDAGraph, Stream, Event, Generator):
            stack.enter_context(patch.object(cls, "stand_in", device))
        for target, name, value in replacements(device):
            stack.enter_context(patch.object(target, name, value, create=not hasattr(target, name)))
        stack.enter_context(Operators(device))
        stack.enter_context(Functions(device))
        yield device
