"""Where tensors are made, and copies from one kind of memory to another."""

from contextlib import contextmanager
from threading import local

import torch

from cpu_graph.errors import ONE_DEVICE, NotModelled, cuda_error
from cpu_graph.trees import tensors_in

GPU = torch.device("cuda", 0)


class PlacementRequest(local):
    """What the function of torch under way asks of the operators that it calls, in each thread."""

    want = generator = None
    crossing = non_blocking = False


@contextmanager
def placing(device, want, crossing=False, non_blocking=False, generator=None):
    """Make new results in "cuda", "pinned" or "cpu" memory; crossing: let clone copy there."""
    asked = device.asked
    before = dict(vars(asked))
    vars(asked).update(want=want, crossing=crossing, non_blocking=non_blocking, generator=generator)
    try:
        yield
    finally:
        vars(asked).clear()
        vars(asked).update(before)


def device_type(where):
    """The kind of memory that a device argument asks for."""
    if where is None:
        return None
    device = torch.device("cuda", where) if isinstance(where, int) else torch.device(where)
    if device.type == "cuda" and device.index not in (None, 0):
        raise cuda_error(101, ONE_DEVICE)
    return device.type


def default_place(function):
    """Where torch.set_default_device lets a function make its tensors, or None."""
    default = torch.utils._device.CURRENT_DEVICE
    made = default is not None and function in torch.utils._device._device_constructors()
    return device_type(default) if made else None


def any_on_gpu(device, tree):
    return any(device.memory_kind(tensor) == "cuda" for tensor in tensors_in(tree))


def copy_to(device, tensor, want, non_blocking=False):
    """A copy in another kind of memory, seen by autograd."""
    if isinstance(tensor, torch.nn.parameter.UninitializedTensorMixin):
        raise NotModelled("Moving a lazy layer before its first call is not modelled.")
    if want == "cpu" and non_blocking and device.memory_kind(tensor) == "cuda":
        want = "pinned"
    with placing(device, want, crossing=True, non_blocking=non_blocking):
        return torch.clone(tensor)
