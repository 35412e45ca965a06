"""Methods of tensors that ask where a tensor is, move it, show it, or start a backward pass."""

import numbers
import re

import torch
from torch._tensor_str import _add_suffixes

from cpu_graph import errors
from cpu_graph.autograd import backward
from cpu_graph.errors import MissingAttribute, NotModelled, torch_error
from cpu_graph.memory import UnknownAddress
from cpu_graph.placement import GPU, copy_to, device_type, placing

Tensor = torch.Tensor
SUFFIX = re.compile(r",\s+(size=\([^)]*\)(, dtype=\S+)?|dtype=\S+)\)$")
TYPES = {
    f"torch.{name}Tensor": dtype
    for name, dtype in {
        "Float": torch.float32,
        "Double": torch.float64,
        "Half": torch.float16,
        "BFloat16": torch.bfloat16,
        "Long": torch.int64,
        "Int": torch.int32,
        "Short": torch.int16,
        "Char": torch.int8,
        "Byte": torch.uint8,
        "Bool": torch.bool,
    }.items()
}
# torch's function -> what the stand-in does instead: handler(device, function, *args, **kwargs)
HANDLERS = {}


def handles(*functions):
    """Register a handler for functions of torch."""

    def register(handler):
        HANDLERS.update(dict.fromkeys(functions, handler))
        return handler

    return register


@handles(Tensor.device.__get__)
def where_it_is(device, function, tensor, *_):
    return GPU if device.memory_kind(tensor) == "cuda" else function(tensor)


@handles(Tensor.is_cuda.__get__)
def is_cuda(device, function, tensor, *_):
    return device.memory_kind(tensor) == "cuda"


@handles(Tensor.is_cpu.__get__)
def is_cpu(device, function, tensor, *_):
    return function(tensor) if device.memory_kind(tensor) != "cuda" else False


@handles(Tensor.get_device, torch.get_device)
def get_device(device, function, tensor):
    return 0 if device.memory_kind(tensor) == "cuda" else function(tensor)


@handles(Tensor.is_pinned)
def is_pinned(device, function, tensor, *_):
    return device.memory_kind(tensor) == "pinned"


@handles(Tensor.pin_memory)
def pin_memory(device, function, tensor, *_):
    kind = device.memory_kind(tensor)
    if kind == "cuda":
        name = type_of(device, Tensor.type, tensor)
        raise torch_error(f"cannot pin '{name}' only dense CPU tensors can be pinned")
    return tensor if kind == "pinned" else copy_to(device, tensor, "pinned")


@handles(Tensor.cuda)
def cuda(stand_in, function, tensor, device=None, non_blocking=False, memory_format=None):
    device_type(device)
    return to(stand_in, Tensor.to, tensor, GPU, None, non_blocking, memory_format=memory_format)


@handles(Tensor.cpu)
def cpu(device, function, tensor, memory_format=None):
    return to(device, Tensor.to, tensor, "cpu", memory_format=memory_format)


@handles(Tensor.type_as)
def type_as(device, function, tensor, other):
    return to(device, Tensor.to, tensor, other)


@handles(Tensor.to)
def to(device, function, tensor, /, *args, **kwargs):
    if args and isinstance(args[0], Tensor):
        args = (GPU if device.memory_kind(args[0]) == "cuda" else "cpu", args[0].dtype, *args[1:])
    if args and type(args[0]) is int:
        device_type(args[0])
        args = (GPU, *args[1:])
    copy = kwargs.pop("copy", False)
    flags = [number for number, one in enumerate(args) if type(one) is bool]
    if len(flags) == 2:  # non_blocking, copy: _parse_to takes the first alone
        copy = args[flags[1]]
        args = args[: flags[1]] + args[flags[1] + 1 :]
    where, dtype, non_blocking, memory_format = torch._C._nn._parse_to(*args, **kwargs)
    if where is not None and where.type == "meta":
        return function(tensor, *args, **kwargs)
    here = device.memory_kind(tensor)
    want = device_type(where)
    converts = dtype not in (None, tensor.dtype)
    if here == "pinned" and want == "cuda" and converts and not non_blocking:
        tensor = function(tensor, dtype)  # on the CPU, where the result is not pinned
    if want not in (None, here) and not (want == "cpu" and here == "pinned"):
        tensor = copy_to(device, tensor, want, non_blocking)
        copy = False
    memory_format = memory_format or torch.preserve_format
    if dtype in (None, tensor.dtype) and not copy and memory_format is torch.preserve_format:
        return tensor
    return function(tensor, dtype or tensor.dtype, copy=copy, memory_format=memory_format)


@handles(Tensor.tolist)
def tolist(device, function, tensor, /, *args, **kwargs):
    """A copy for the host to look at, once the work before it is done; of pinned memory at once."""
    if device.memory_kind(tensor) != "cpu":
        tensor = copy_to(device, tensor.detach(), "cpu")
    return function(tensor.detach() if function is Tensor.tolist else tensor, *args, **kwargs)


@handles(Tensor.numpy, Tensor.__array__)
def numpy(device, function, tensor, /, *args, **kwargs):
    if device.memory_kind(tensor) == "cuda":
        raise torch_error(errors.NUMPY, TypeError)
    return function(tensor, *args, **kwargs)


@handles(Tensor.__repr__)
def shown(device, function, tensor, /, *args, **kwargs):
    if device.memory_kind(tensor) != "cuda":
        return function(tensor, *args, **kwargs)
    if device.capture:
        device.refuse(900)
    text = tolist(device, function, tensor.detach(), *args, **kwargs)
    return printed_suffixes(text, tensor)


def printed_suffixes(text, tensor):
    """What a CPU tensor shows, with the device and what autograd knows, in torch's order."""
    start = SUFFIX.search(text)
    own = start.group(0).removesuffix(")").strip(", \n").split(", dtype") if start else []
    own = own[:1] + [f"dtype{part}" for part in own[1:]]
    suffixes = ["device='cuda:0'", *filter(None, own)]
    if tensor.grad_fn is not None:
        suffixes.append(f"grad_fn=<{type(tensor.grad_fn).__name__}>")
    elif tensor.requires_grad:
        suffixes.append("requires_grad=True")
    body = text[: start.start()] if start else text[:-1]
    return _add_suffixes(body, suffixes, indent=len("tensor("), force_newline=False)


@handles(Tensor.type)
def type_of(device, function, tensor, dtype=None, non_blocking=False, **_):
    """The name of its type, or a tensor of another one."""
    if isinstance(dtype, str):
        want = "cuda" if ".cuda." in dtype else "cpu"
        dtype = TYPES[dtype.replace(".cuda", "")]
        return to(device, Tensor.to, tensor, want, dtype, non_blocking)
    if dtype is not None:
        return to(device, Tensor.to, tensor, dtype, non_blocking)
    name = function(tensor)
    on_gpu = device.memory_kind(tensor) == "cuda"
    return name.replace("torch.", "torch.cuda.", 1) if on_gpu else name


@handles(Tensor.__setitem__)
def set_item(device, function, tensor, index, value):
    if isinstance(value, numbers.Number) and device.memory_kind(tensor) == "cuda":
        indices = index if isinstance(index, tuple) else (index,)
        one_element = len(indices) == tensor.dim() and all(type(one) is int for one in indices)
        if device.capturing() and one_element and not errors.SINCE_2_15:
            raise torch_error(errors.PAGEABLE)  # for one element PyTorch copied from the CPU
        masked = len(indices) == 1 and getattr(index, "dtype", None) is torch.bool
        with placing(device, "cpu" if masked else "cuda"):  # through a mask a number stays one
            value = torch.full((), value, dtype=tensor.dtype, device="cpu")
    return function(tensor, index, value)


@handles(Tensor.__deepcopy__)
def copied(device, function, tensor, memo):
    if device.memory_kind(tensor) != "cuda" or type(tensor) is not Tensor:
        return function(tensor, memo)
    if not tensor.is_leaf:
        return function(tensor, memo)  # which raises
    copy = memo[id(tensor)] = tensor.detach().clone().requires_grad_(tensor.requires_grad)
    if tensor.grad is not None:
        copy.grad = tensor.grad.clone()
    return copy


@handles(Tensor.grad.__set__)
def set_gradient(device, function, tensor, gradient):
    kinds = [device.memory_kind(one) for one in (gradient, tensor) if one is not None]
    places = ["cuda" if kind == "cuda" else "cpu" for kind in kinds]
    if len(set(places)) == 2:
        raise torch_error(errors.GRADIENT_PLACE.format(*places))
    return function(tensor, gradient)


@handles(Tensor.__cuda_array_interface__.__get__)
def interface(device, function, tensor, *_):
    if device.memory_kind(tensor) == "cuda":
        raise MissingAttribute("Tensor.__cuda_array_interface__ is not modelled.")
    return function(tensor)


@handles(Tensor.__dlpack__)
def not_modelled(device, function, tensor, /, *args, **kwargs):
    if device.memory_kind(tensor) == "cuda":
        raise NotModelled(f"{function.__qualname__} of a CUDA tensor is not modelled.")
    return function(tensor, *args, **kwargs)


@handles(torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu)
def recurrent(device, function, *args, **kwargs):
    """Without oneDNN, whose operators keep results that no shape function knows."""
    with torch.backends.mkldnn.flags(enabled=False):
        results = function(*args, **kwargs)
    trains = args[index_of_first_flag(args) + 3]  # has_biases, num_layers, dropout, train
    if device.memory_kind(args[0]) == "cuda" and torch.backends.cudnn.enabled and not trains:
        for result in results:
            if result.requires_grad:
                result.register_hook(refuse_rnn_backward)
    return results


def index_of_first_flag(args):
    return next(number for number, one in enumerate(args) if type(one) is bool)


def refuse_rnn_backward(gradient):
    raise torch_error(errors.RNN_BACKWARD)


@handles(torch.nn.functional.one_hot)
def one_hot(device, function, tensor, num_classes=-1):
    """With a number of classes a GPU looks at no value; the CPU's operator looks for the
    largest.
    """
    if device.memory_kind(tensor) != "cuda":
        return function(tensor, num_classes)
    with placing(device, "cuda"):
        if num_classes <= 0 or tensor.dtype is not torch.int64:
            return function(tensor, num_classes)
        zeros = torch.zeros(*tensor.shape, num_classes, dtype=torch.int64, device="cpu")
    return zeros.scatter_(-1, tensor.unsqueeze(-1), 1)


@handles(torch.unravel_index)
def unravel_index(device, function, tensor, shape):
    """Its divisors are made on the CPU and copied: a capture refuses that."""
    if device.memory_kind(tensor) != "cuda":
        return function(tensor, shape)
    sizes = torch.tensor([*shape] if isinstance(shape, (tuple, list)) else [shape], device="cpu")
    steps = sizes.flip(0).cumprod(0).flip(0) // sizes
    steps, sizes = copy_to(device, steps, "cuda"), copy_to(device, sizes, "cuda")
    return (tensor.unsqueeze(-1).floor_divide(steps) % sizes).unbind(-1)


@handles(Tensor.data_ptr)
def address(device, function, tensor):
    block = device.memory.find(tensor)
    known = block is None or not block.unknown_address
    return function(tensor) if known else UnknownAddress(device.memory, block, function(tensor))


handles(Tensor.backward, torch.autograd.backward, torch.autograd.grad)(backward)


def quantile(device, function, input, *args, **kwargs):
    """On the CPU alone torch asks first whether q lies between 0 and 1."""
    device.in_range = device.memory_kind(input) == "cuda"
    try:
        with placing(device, "cuda" if device.in_range else None):
            return function(input, *args, **kwargs)
    finally:
        device.in_range = False


if not errors.SINCE_2_15:
    handles(torch.quantile, torch.nanquantile, Tensor.quantile, Tensor.nanquantile)(quantile)


@handles(torch._C._VariableFunctions._pad_packed_sequence)
def pad_packed_sequence(device, function, data, batch_sizes, *args):
    """The rows lie where the packed ones do, the lengths of the sequences on the CPU."""
    if device.memory_kind(data) != "cuda":
        return function(data, batch_sizes, *args)
    lengths = function(torch.empty(data.shape, device="cpu"), batch_sizes, *args)[1]
    with placing(device, "cuda"):
        return function(data, batch_sizes, *args)[0], lengths


def refuse_integer_dropout(device, input, p=0.5, training=True, inplace=False, *, train=True):
    """A GPU has a kernel of its own for dropout, which knows no whole numbers."""
    trains = training and train  # torch.dropout's name for training
    fused = device.memory_kind(input) == "cuda" and trains and 0 < p < 1 and input.numel()
    if fused and not inplace and input.dtype in errors.SCALARS:
        words = f"\"fused_dropout\" not implemented for '{errors.SCALARS[input.dtype]}'"
        raise torch_error(words, NotImplementedError)


CHECKS = dict.fromkeys((torch.nn.functional.dropout, torch.dropout), refuse_integer_dropout)
