"""Backward passes and streams: a GPU's autograd has rules that the CPU's need not know."""

import torch
from torch.utils._pytree import tree_leaves

from cpu_graph.device_kind import wanting
from cpu_graph.errors import PER_CAPTURE, STALE_STREAM


def remember_stream(node, stream):
    """Mark new nodes of the autograd graph with the stream on which they are made."""
    new = [node]
    while new:
        node = new.pop()
        if node is not None and "stream" not in node.metadata:
            node.metadata["stream"] = stream
            new += [following for following, _ in node.next_functions]


def leaves_of_default_stream(root):
    """Whether a gradient would be added on the default stream, where its leaf was first used."""
    nodes, seen = [root.grad_fn], set()
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if node.name().endswith("AccumulateGrad") and node.metadata.get("stream") == 0:
            return True
        nodes += [following for following, _ in node.next_functions]
    return False


def backward(device, function, /, *args, **kwargs):
    """Autograd works on the stream of the forward pass, and the caller's stream waits for it."""
    root = next((leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)), None)
    block = root is not None and device.memory.find(root)
    if block and device.capturing() and function is not torch.autograd.grad and leaves_of_default_stream(root):
        if PER_CAPTURE:
            raise RuntimeError(STALE_STREAM)
        device.refuse(906)
    here, there = device.stream, block.writer if block and isinstance(block.writer, int) else device.stream
    streams = [torch.cuda.Stream(stream_id=number) for number in (here, there)]
    hop = here != there and device.capturing(here) == device.capturing(there)
    with wanting(device, "cuda" if block else None):
        if not hop:
            return function(*args, **kwargs)
        streams[1].wait_stream(streams[0])
        device.stream = there
        try:
            return function(*args, **kwargs)
        finally:
            device.stream = here
            streams[0].wait_stream(streams[1])
