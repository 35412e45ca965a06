"""What torch calls back sees the stand-in too: autograd's functions and hooks, operators in Python.

A mode is off inside of its own handler, and so in all that torch calls from there. Here both modes
are on again for the time of a callback.
"""

from contextlib import ExitStack, contextmanager
from functools import wraps

import torch
from torch._C import DispatchKey, DispatchKeySet, _dispatch_has_kernel_for_dispatch_key
from torch._ops import OpOverload, OpOverloadPacket
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from cpu_graph.errors import NO_KERNEL, WRONG_PLACE, torch_error

COMPOSITE = "CompositeExplicitAutograd", "CompositeImplicitAutograd"


@contextmanager
def enable_modes(device):
    """Let Python code that torch calls see the stand-in."""
    with ExitStack() as stack:
        if not device.closed:
            stack.enter_context(torch._C._EnableTorchFunction())
            function_modes = _get_current_function_mode_stack()
            dispatch_modes = _get_current_dispatch_mode_stack()
            for mode, active in zip(device.modes, (function_modes, dispatch_modes), strict=True):
                if not any(isinstance(one, mode) for one in active):
                    stack.enter_context(mode(device))
        yield


def with_modes(device, function):
    """A function that sees the stand-in when torch calls it."""

    @wraps(function)
    def call(*args, **kwargs):
        with enable_modes(device):
            return function(*args, **kwargs)

    return call


def callback_patches(device):
    """(where, name, what) for what calls Python code back."""
    hooks = torch.autograd.graph.saved_tensors_hooks

    def push(self):
        pair = with_modes(device, self.pack_hook), with_modes(device, self.unpack_hook)
        torch._C._autograd._push_saved_tensors_default_hooks(*pair)

    yield hooks, "__enter__", push
    run_backward = with_modes(device, torch.autograd._engine_run_backward)
    yield torch.autograd, "_engine_run_backward", run_backward
    real = torch.autograd.Function.__dict__["apply"]

    def apply(cls, *args, **kwargs):
        with enable_modes(device):
            result = real.__get__(None, cls)(*args, **kwargs)
        node = getattr(result[0] if isinstance(result, tuple) else result, "grad_fn", None)
        if node is not None and isinstance(node, torch.autograd.function.BackwardCFunction):
            add_gradient_check(device, cls, node, args)
        return result

    yield torch.autograd.Function, "apply", classmethod(apply)


def add_gradient_check(device, function, node, args):
    """Refuse gradients that a function's backward pass returns elsewhere than its tensors are."""
    kinds = [device.memory_kind(arg) if isinstance(arg, torch.Tensor) else None for arg in args]

    def check(gradients, _):
        for number, (kind, gradient) in enumerate(zip(kinds, gradients, strict=False)):
            there = None if gradient is None else device.memory_kind(gradient)
            if kind and there and (there == "cuda") != (kind == "cuda"):
                places = ("cuda:0", "cpu") if kind == "cuda" else ("cpu", "cuda:0")
                raise torch_error(WRONG_PLACE.format(function.__name__, number, *places))

    node.register_hook(check)


def has_python_kernel(operator, backend):
    """Whether an operator's kernel for "CUDA" or "CPU" is a function of Python."""
    if operator.namespace == "aten":
        return False
    kernels = {key for key in (*COMPOSITE, "CUDA", "CPU") if is_registered(operator, key)}
    missing = backend == "CUDA" and kernels == {"CPU"}
    if missing and not _dispatch_has_kernel_for_dispatch_key(operator.name(), "CUDA"):
        raise torch_error(NO_KERNEL.format(operator.name()), NotImplementedError)
    return bool(kernels & {backend, *COMPOSITE})


def is_registered(operator, key):
    name = operator.name().split("::")[-1]
    return f"{operator.namespace}/{name}/{key}" in torch.library._impls


def call_python_kernel(device, operator, backend, args, kwargs):
    """Call an operator's Python: its operators are launched or recorded one by one."""
    with enable_modes(device):
        return operator.redispatch(DispatchKeySet(getattr(DispatchKey, backend)), *args, **kwargs)


def python_composite(function):
    """The operator that a function of torch.ops is, if it is Python that calls others alone."""
    if isinstance(function, OpOverloadPacket) and function.overloads() == ["default"]:
        function = function.default
    if not isinstance(function, OpOverload) or function.namespace == "aten":
        return None
    return function if is_registered(function, "CompositeImplicitAutograd") else None
