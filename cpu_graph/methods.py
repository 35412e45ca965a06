"""Methods of tensors that ask where a tensor is, move it, show it, or start a backward pass."""

import numbers

import torch

from cpu_graph.autograd import backward
from cpu_graph.errors import NUMPY, PAGEABLE, NotModelled
from cpu_graph.places import GPU, moved, wanting

Tensor = torch.Tensor


def to(device, function, tensor, /, *args, **kwargs):
    if args and isinstance(args[0], Tensor):
        args = (GPU if device.kind(args[0]) == "cuda" else "cpu", args[0].dtype, *args[1:])
    if args and type(args[0]) is int:
        args = (GPU, *args[1:])
    copy = kwargs.pop("copy", False)
    where, dtype, non_blocking, memory_format = torch._C._nn._parse_to(*args, **kwargs)
    if where is not None and where.type == "meta":
        return function(tensor, *args, **kwargs)
    here, want = device.kind(tensor), where.type if where else None
    if want not in (None, here) and not (want == "cpu" and here == "pinned"):
        tensor, copy = moved(device, tensor, want, non_blocking), False
    if dtype in (None, tensor.dtype) and not copy:
        return tensor
    return function(tensor, dtype or tensor.dtype, copy=copy, memory_format=memory_format or torch.preserve_format)


def on_host(device, function, tensor, /, *args, **kwargs):
    """A copy for the host to look at, once the work before it is done."""
    if device.kind(tensor) == "cuda":
        tensor = moved(device, tensor.detach(), "cpu")
    return function(tensor.detach() if function is Tensor.tolist else tensor, *args, **kwargs)


def numpy(device, function, tensor, /, *args, **kwargs):
    if device.kind(tensor) == "cuda":
        raise TypeError(NUMPY)
    return function(tensor, *args, **kwargs)


def shown(device, function, tensor, /, *args, **kwargs):
    if device.kind(tensor) != "cuda":
        return function(tensor, *args, **kwargs)
    if device.capture:
        device.refuse(900)
    text = on_host(device, function, tensor, *args, **kwargs)
    return text if function is Tensor.__format__ else text[:-1] + ", device='cuda:0')"


def set_item(device, function, tensor, index, value):
    if isinstance(value, numbers.Number) and device.kind(tensor) == "cuda":
        places = index if isinstance(index, tuple) else (index,)
        if device.capturing() and all(type(place) is int for place in places) and len(places) == tensor.dim():
            raise RuntimeError(PAGEABLE)  # for one element PyTorch copies from the CPU
        with wanting(device, "cuda"):
            value = torch.full((), value, dtype=tensor.dtype)
    return function(tensor, index, value)


def copied(device, function, tensor, memo):
    if device.kind(tensor) != "cuda" or type(tensor) is not Tensor:
        return function(tensor, memo)
    if not tensor.is_leaf:
        return function(tensor, memo)  # which raises
    copy = memo[id(tensor)] = tensor.detach().clone().requires_grad_(tensor.requires_grad)
    if tensor.grad is not None:
        copy.grad = tensor.grad.clone()
    return copy


def not_modelled(device, function, tensor, /, *args, **kwargs):
    if device.kind(tensor) == "cuda":
        raise NotModelled(f"{function.__qualname__} of a CUDA tensor is not modelled.")
    return function(tensor, *args, **kwargs)


HANDLERS = {
    Tensor.device.__get__: lambda d, f, t, *_: GPU if d.kind(t) == "cuda" else f(t),
    Tensor.is_cuda.__get__: lambda d, f, t, *_: d.kind(t) == "cuda",
    Tensor.is_cpu.__get__: lambda d, f, t, *_: d.kind(t) != "cuda" and f(t),
    Tensor.get_device: lambda d, f, t: 0 if d.kind(t) == "cuda" else f(t),
    Tensor.is_pinned: lambda d, f, t, *_: d.kind(t) == "pinned",
    Tensor.pin_memory: lambda d, f, t, *_: t if d.kind(t) == "pinned" else moved(d, t, "pinned"),
    Tensor.cuda: lambda d, f, t, device=None, non_blocking=False, **_: to(d, Tensor.to, t, GPU, None, non_blocking),
    Tensor.cpu: lambda d, f, t, **_: to(d, Tensor.to, t, "cpu"),
    Tensor.to: to,
    Tensor.tolist: on_host,
    Tensor.numpy: numpy,
    Tensor.__array__: numpy,
    Tensor.__repr__: shown,
    Tensor.__setitem__: set_item,
    Tensor.__deepcopy__: copied,
    Tensor.backward: backward,
    torch.autograd.backward: backward,
    torch.autograd.grad: backward,
    Tensor.__dlpack__: not_modelled,
}
