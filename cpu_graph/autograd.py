"""Backward passes and streams: a GPU's autograd has rules that the CPU's need not know."""

from contextlib import contextmanager

import torch
from torch.utils._pytree import tree_leaves

from cpu_graph.errors import PER_CAPTURE, STALE_STREAM, torch_error
from cpu_graph.hints import note_accumulation
from cpu_graph.placement import placing


def remember_stream(node, stream):
    """Mark new nodes of the autograd graph with the stream on which they are made."""
    new = [node]
    while new:
        node = new.pop()
        if node is not None and "stream" not in node.metadata:
            node.metadata["stream"] = stream
            new += [following for following, _ in node.next_functions]


def accumulators(root, inputs):
    """The nodes that add gradients to the leaves below a tensor; inputs: those alone, if given."""
    wanted = {id(leaf) for leaf in tree_leaves(inputs)}
    nodes = [root.grad_fn]
    seen = set()
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        adds = node.name().endswith("AccumulateGrad")
        if adds and (inputs is None or id(node.variable) in wanted):
            yield node
        nodes += [following for following, _ in node.next_functions]


def refuse_default_stream_gradients(device, nodes):
    """Refuse gradients that would be added on the default stream, where their leaf was
    first used.
    """
    if any(node.metadata.get("stream") == 0 for node in nodes) and not is_stale_override_on():
        if PER_CAPTURE:
            raise torch_error(STALE_STREAM)
        device.refuse(906)


def is_stale_override_on():
    """Whether torch.autograd.graph.set_override_stale_capture_stream, of 2.15, is on."""
    return getattr(torch._C, "_override_stale_capture_stream", bool)()


@contextmanager
def mark_in_backward(device):
    """A backward pass: what it adds to a gradient is another one."""
    before, device.in_backward = device.in_backward, True
    try:
        yield
    finally:
        device.in_backward = before


def backward(device, function, /, *args, **kwargs):
    """Autograd works on the stream of the forward pass, and the caller's stream waits for it."""
    roots = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    block = device.memory.find(roots[0]) if roots else None
    if not block:
        with placing(device, None):
            return function(*args, **kwargs)
    if device.capturing() and function is not torch.autograd.grad:
        nodes = list(accumulators(roots[0], kwargs.get("inputs")))
        refuse_default_stream_gradients(device, nodes)
        leaves = [node.variable for node in nodes]
        note_accumulation(device, leaves)
        device.capture.leaves += leaves
    here, there = (device.stream, block.writer if isinstance(block.writer, int) else device.stream)
    streams = [torch.cuda.Stream(stream_id=number) for number in (here, there)]
    hop = here != there and device.capturing(here) == device.capturing(there)
    with placing(device, "cuda"), mark_in_backward(device):
        if not hop:
            return function(*args, **kwargs)
        streams[1].wait_stream(streams[0])
        device.stream = there
        try:
            return function(*args, **kwargs)
        finally:
            device.stream = here
            streams[0].wait_stream(streams[1])
