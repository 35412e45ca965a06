"""What the stand-in does with torch's functions:
device="cuda", pin_memory, and tensors' methods.
"""

import torch
from torch.overrides import TorchFunctionMode

from cpu_graph.autograd import remember_stream
from cpu_graph.callbacks import call_python_kernel, python_composite
from cpu_graph.errors import NO_PINNING, torch_error
from cpu_graph.methods import CHECKS, HANDLERS
from cpu_graph.placement import any_on_gpu, copy_to, default_place, device_type, placing
from cpu_graph.trees import tensors_in

FROM_DATA = {torch.tensor, torch.as_tensor, torch.asarray, torch.Tensor.new_tensor}
# what they make, they make where it is asked for, wherever a tensor among the arguments is
NEW = "arange empty eye full linspace logspace ones rand randint randn scalar_tensor zeros"
ON_THE_HOST = {torch.Tensor.__getitem__, torch.Tensor.__setitem__}
ON_THE_HOST |= {getattr(torch, name) for name in NEW.split()}


def sync_scalars(args):
    """Wait for each number on the GPU in a list: torch does in C++, which no mode sees."""
    for tensor in tensors_in(*args) if isinstance(args[0], list | tuple) else ():
        if tensor.numel() == 1:
            tensor.item()


class Functions(TorchFunctionMode):
    """Sees every function and method of torch that user code calls."""

    def __init__(self, device):
        super().__init__()
        self.device = device

    def __torch_function__(self, function, types, args=(), kwargs=None):
        device = self.device
        kwargs = dict(kwargs or {})
        if function in HANDLERS:
            return HANDLERS[function](device, function, *args, **kwargs)
        operator = python_composite(function)
        if operator:
            return call_python_kernel(device, operator, "CPU", args, kwargs)
        if function in CHECKS:
            CHECKS[function](device, *args, **kwargs)
        want = device_type(kwargs.pop("device", None)) or default_place(function)
        if want == "meta":
            return function(*args, device="meta", **kwargs)
        if want:
            kwargs["device"] = "cpu"
        if kwargs.get("pin_memory") and want != "cuda":
            want = "pinned"
        if kwargs.pop("pin_memory", None) and want == "cuda":
            raise torch_error(NO_PINNING)
        if want is None and function is torch.Tensor.new_tensor and any_on_gpu(device, args[0]):
            want = "cuda"
        if function in FROM_DATA:
            sync_scalars(args)
            made = function(*args, **kwargs)
            there = not want or device.memory_kind(made) == want
            return made if there else copy_to(device, made, want)
        if want is None and function not in ON_THE_HOST and any_on_gpu(device, (args, kwargs)):
            want = "cuda"  # what such a function makes inside, it makes where its arguments are
        with placing(device, want, generator=kwargs.get("generator") or device.asked.generator):
            result = function(*args, **kwargs)
        if (
            device.is_owner_thread
            and torch.is_grad_enabled()
            and isinstance(result, torch.Tensor)
            and result.grad_fn
        ):
            remember_stream(result.grad_fn, device.stream)
        return result
