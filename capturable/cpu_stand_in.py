"""The CPU in place of a GPU: what differs there, so that a step can be checked on a machine
without one."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch.overrides import TorchFunctionMode

from capturable.operators import address
from capturable.user_lines import here

FACTORIES = {
    getattr(torch, name)
    for name in ("arange", "empty", "eye", "full", "linspace", "logspace", "ones", "zeros")
}
CPU_READERS = {  # these check or convert values on the CPU, and not on a GPU
    torch.Tensor.__setitem__,
    *(
        getattr(owner, name)
        for owner in (torch, torch.Tensor)
        for name in ("quantile", "nanquantile")
    ),
}
DEVICES = "_get_capturable_supported_devices"  # of torch.optim (tried on torch 2.11 to 2.15)


class CpuStandIn(TorchFunctionMode):
    """Knows which reads of values would not happen, or would not wait, with a GPU.

    inside: whether a function runs that reads or makes values on the CPU only. A tensor that is
    made without a device, and what is computed from such tensors alone, would be on the CPU even
    with a GPU.
    """

    def __init__(self) -> None:
        super().__init__()
        self.inside = False
        self.on_host: dict[
            int, torch.UntypedStorage
        ] = {}  # kept alive, so that no other gets the address

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        self.inside = self.inside or self._differs(func, args, kwargs)
        try:
            result = func(*args, **kwargs)
        finally:
            self.inside = False
        if func in FACTORIES and kwargs.get("device") is None:
            self._add(result)
        return result

    def _differs(self, func: Callable, args: tuple, kwargs: dict) -> bool:
        """Whether a function reads or makes values on the CPU only."""
        if (
            func is torch.nn.functional.one_hot
        ):  # which without a number of classes looks for the largest
            return max([*args[1:], kwargs.get("num_classes", -1)]) >= 0
        if func is torch.tensor and kwargs.get("device") is None:
            return (
                isinstance(args[0], int | float) or here(None).library != ""
            )  # torch's own book-keeping
        return func in CPU_READERS

    def is_host(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor would be on the CPU with a GPU, too."""
        return address(tensor) in self.on_host

    def ran(self, tensors: Iterable[torch.Tensor], results: Iterable[torch.Tensor]) -> None:
        """An operator has made results of tensors."""
        tensors = list(tensors)
        only_host = bool(tensors) and all(map(self.is_host, tensors))
        for result in results:
            if only_host:
                self._add(result)
            elif tensors:
                self.on_host.pop(address(result), None)

    def _add(self, result: Any) -> None:
        if isinstance(result, torch.Tensor) and address(result):
            self.on_host[address(result)] = result.untyped_storage()


@contextmanager
def capturable_optimizers() -> Iterator[None]:
    """Let optimizers with capturable=True step on the CPU, which torch allows on GPUs only."""
    names = _names(sys.modules["torch.optim.optimizer"])  # not an attribute of torch.optim
    with replaced_everywhere(names.get(DEVICES), _with_cpu):
        yield


def _with_cpu(supported: Callable) -> Callable:
    def with_cpu(*args: Any, **kwargs: Any) -> list[str]:
        return [*supported(*args, **kwargs), "cpu"]

    return with_cpu


@contextmanager
def replaced_everywhere(function: Callable | None, wrap: Callable) -> Iterator[None]:
    """In each module that has the function under its own name, wrap(function) stands for it."""
    if function is None:  # this torch has no such function
        yield
        return
    name, wrapped = function.__name__, wrap(function)
    modules = [m for m in list(sys.modules.values()) if _names(m).get(name) is function]
    with ExitStack() as stack:
        for module in modules:
            stack.enter_context(patch.object(module, name, wrapped))
        yield


def _names(module: object) -> dict[str, Any]:
    """A module's names, without waking one that is loaded at the first look."""
    try:
        names = object.__getattribute__(module, "__dict__")
    except AttributeError:
        return {}
    return names if type(names) is dict else {}
