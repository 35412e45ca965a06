"""Where tensors are made, and copies from one kind of memory to another."""

from contextlib import contextmanager

import torch

from cpu_graph.errors import NotModelled
from cpu_graph.trees import tensors_in

GPU = torch.device("cuda", 0)


@contextmanager
def wanting(device, want, crossing=False, non_blocking=False, generator=None):
    """Make new results in "cuda", "pinned" or "cpu" memory; crossing: let clone copy there."""
    before = device.want, device.crossing, device.non_blocking, device.generator
    device.want = want
    device.crossing = crossing
    device.non_blocking = non_blocking
    device.generator = generator
    try:
        yield
    finally:
        device.want, device.crossing, device.non_blocking, device.generator = before


def place(where):
    """The kind of memory that a device argument asks for."""
    if where is None:
        return None
    device = torch.device("cuda", where) if isinstance(where, int) else torch.device(where)
    if device.type == "cuda" and device.index not in (None, 0):
        raise NotModelled(f"{device}: a second device is not modelled.")
    return device.type


def any_on_gpu(device, tree):
    return any(device.kind(tensor) == "cuda" for tensor in tensors_in(tree))


def moved(device, tensor, want, non_blocking=False):
    """A copy in another kind of memory, seen by autograd."""
    if want == "cpu" and non_blocking and device.kind(tensor) == "cuda":
        want = "pinned"
    with wanting(device, want, crossing=True, non_blocking=non_blocking):
        return torch.clone(tensor)
