"""The CPU in place of a GPU: what differs there, so that a step can be checked on a machine
without one."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch
from weakref import WeakMethod

import torch
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from torch.utils._device import DeviceContext

from capturable.judge import MADE_HERE
from capturable.live_objects import own_attributes
from capturable.operators import storage_address

MAKERS = {  # without a device, these make tensors on the CPU
    getattr(torch, name)
    for name in (
        *("arange", "as_tensor", "asarray", "empty", "eye", "from_numpy", "full", "linspace"),
        *("logspace", "normal", "ones", "rand", "randint", "randn", "randperm", "scalar_tensor"),
        *("tensor", "tril_indices", "triu_indices", "zeros"),
        *(f"{shape}_window" for shape in ("bartlett", "blackman", "hamming", "hann", "kaiser")),
    )
}
FROM_DATA = (torch.tensor, torch.as_tensor, torch.asarray, torch.Tensor.new_tensor)
MOVERS = (torch.Tensor.to, torch.Tensor.cuda, torch.Tensor.type_as)
CPU_READERS = {  # these check values on the CPU, and not on a GPU
    getattr(owner, name) for owner in (torch, torch.Tensor) for name in ("quantile", "nanquantile")
}
CPU_READS = ("aten::lift_fresh", "aten::_local_scalar_dense", "aten::equal")  # of these functions
MADE_AND_COPIED = "a tensor that the step makes on the CPU is copied to the GPU"
DEVICES = "_get_capturable_supported_devices"  # of torch.optim (tried on torch 2.11 to 2.15)


class CpuAsGpu(TorchFunctionMode):
    """Knows which tensors would be on the CPU even with a GPU, and which reads would not wait.

    A tensor that is made without a device, and what is computed from such tensors alone, would be
    on the CPU. note(rule, what, fix=...) is called where one of them is moved to the GPU. making:
    whether a function runs that makes one.
    """

    def __init__(self, note: Callable[..., None]) -> None:
        super().__init__()
        self.note = WeakMethod(note)  # whose object knows this one: a ring would keep all memory
        self.making = False
        self.quiet: Callable[[str, tuple], bool] | None = None
        # kept alive, so that no other gets the address
        self.on_host: dict[int, torch.UntypedStorage] = {}

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        making = self.making = _makes_on_the_cpu(func, args, kwargs)
        self.quiet = _absent_on_gpu_predicate(func, args, kwargs, making)
        moved = func in MOVERS and self._moves(*args, **kwargs)
        if moved:
            self._note_finding("copy", MADE_AND_COPIED, MADE_HERE)
        try:
            result = func(*args, **kwargs)
        finally:
            self.making, self.quiet = False, None
        if making:
            self._add(result)
        if moved:
            self.on_host.pop(storage_address(result), None)
        return result

    def _note_finding(self, rule: str, what: str, fix: str | None = None) -> None:
        note = self.note()
        if note is not None:
            note(rule, what, fix=fix)

    def _moves(self, tensor: torch.Tensor, *to: Any, **options: Any) -> bool:
        """Whether a tensor of the CPU is moved to a device, or to that of a tensor on the GPU."""
        targets = [target for target in (*to, options.get("device")) if _is_device(target)]
        others = [other for other in to if isinstance(other, torch.Tensor)]
        return self.is_host(tensor) and bool(targets or not all(map(self.is_host, others)))

    def is_absent_on_gpu(self, name: str, args: tuple) -> bool:
        """Whether an operator belongs to a function that would do without it on a GPU."""
        return self.quiet is not None and self.quiet(name, args)

    def is_host(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor would be on the CPU with a GPU, too."""
        return storage_address(tensor) in self.on_host

    def is_pinned(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is in pinned memory."""
        return tensor.is_pinned()

    def ran(self, tensors: Iterable[torch.Tensor], results: Iterable[torch.Tensor]) -> None:
        """An operator has made results of tensors."""
        tensors = list(tensors)
        hosts = {storage_address(tensor) for tensor in tensors if self.is_host(tensor)}
        only_host = bool(tensors) and all(map(self.is_host, tensors))
        for result in results:
            if only_host:
                self._add(result)
            elif tensors and storage_address(result) not in hosts:
                self.on_host.pop(storage_address(result), None)

    def _add(self, result: Any) -> None:
        if isinstance(result, torch.Tensor) and storage_address(result):
            self.on_host[storage_address(result)] = result.untyped_storage()


class StandInAsGpu(CpuAsGpu):
    """The same on the stand-in for CUDA graphs, which knows where each tensor is."""

    def __init__(self, note: Callable[..., None], device: Any) -> None:
        super().__init__(note)
        self.device = device

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func in FROM_DATA:
            return self._make_from_data(func, types, args, kwargs)
        if func not in MOVERS or not isinstance(args[0], torch.Tensor):
            return super().__torch_function__(func, types, args, kwargs)
        self.quiet = _is_copy_operator
        try:
            result = func(*args, **(kwargs or {}))
        finally:
            self.quiet = None
        if isinstance(result, torch.Tensor) and result.numel():
            self._judge_move(args[0], result, args[1:], kwargs or {})
        return result

    def _make_from_data(self, func: Callable, types: Any, args: tuple, kwargs: dict | None) -> Any:
        """Make a tensor from Python data, which on the GPU is a copy."""
        result = super().__torch_function__(func, types, args, kwargs)
        data = args[-1] if args else (kwargs or {}).get("data")
        if not isinstance(data, torch.Tensor) and result.numel() and not self.is_host(result):
            self._note_finding("copy", "a tensor is made from Python data on the CPU", MADE_HERE)
        return result

    def _judge_move(
        self, tensor: torch.Tensor, result: torch.Tensor, to: tuple, options: dict
    ) -> None:
        """Note a copy between CPU and GPU that makes the CPU wait."""
        moved = self.is_host(tensor) != self.is_host(result)
        asked = options.get("non_blocking", False) or any(flag is True for flag in to)
        if not moved or (asked and self.is_pinned(tensor)):
            return
        if not self.is_host(tensor):
            if not asked:
                self._note_finding("sync", "data is copied from GPU to CPU")
        elif storage_address(tensor) in self.on_host:
            self._note_finding("copy", MADE_AND_COPIED, MADE_HERE)
        else:
            self._note_finding("copy", "data is copied from CPU to GPU")

    def is_host(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is on the CPU."""
        return self.device.memory_kind(tensor) != "cuda"

    def is_pinned(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is in pinned memory."""
        return self.device.memory_kind(tensor) == "pinned"

    def ran(self, tensors: Iterable[torch.Tensor], results: Iterable[torch.Tensor]) -> None:
        """An operator has made results of tensors: those on the CPU are the step's own."""
        known = {storage_address(tensor) for tensor in tensors}
        for result in results:
            if storage_address(result) not in known and self.is_host(result):
                self._add(result)


def _is_copy_operator(name: str, _: tuple) -> bool:
    """Whether an operator is that by which a tensor is moved."""
    return name in ("aten::clone", "aten::_to_copy")


def _is_device(target: Any) -> bool:
    return isinstance(target, str | torch.device | int) and not isinstance(target, bool)


def _makes_on_the_cpu(func: Callable, args: tuple, kwargs: dict) -> bool:
    """Whether a function makes a tensor on the CPU: no device is named, nor is there another
    default."""
    if func not in MAKERS or kwargs.get("device") is not None:
        return False
    modes = _get_current_function_mode_stack()  # of set_default_device and "with torch.device"
    named = any(isinstance(mode, DeviceContext) for mode in modes)
    return not named and not any(isinstance(value, torch.Tensor) for value in args)


def _absent_on_gpu_predicate(
    func: Callable, args: tuple, kwargs: dict, making: bool
) -> Callable[[str, tuple], bool] | None:
    """Which operators of a function, by name and arguments, would not wait or copy on a GPU."""
    one_hot = func is torch.nn.functional.one_hot  # without a number of classes it looks for one
    if func in CPU_READERS or (one_hot and max([*args[1:], kwargs.get("num_classes", -1)]) >= 0):
        return lambda name, _: name in CPU_READS
    if making:
        return lambda name, _: name == "aten::lift_fresh"
    if func is torch.Tensor.__setitem__:  # the number that is assigned; a list of indices is copied
        return lambda name, given: name == "aten::lift_fresh" and given[0].dim() == 0
    return None


@contextmanager
def capturable_optimizers() -> Iterator[None]:
    """Let optimizers with capturable=True step on the CPU, which torch allows on GPUs only."""
    # not an attribute of torch.optim
    names = own_attributes(sys.modules["torch.optim.optimizer"])
    with replaced_everywhere((names.get(DEVICES), _allow_cpu)):
        yield


def _allow_cpu(supported: Callable) -> Callable:
    def with_cpu(*args: Any, **kwargs: Any) -> list[str]:
        return [*supported(*args, **kwargs), "cpu"]

    return with_cpu


@contextmanager
def replaced_everywhere(*pairs: tuple[Callable | None, Callable]) -> Iterator[None]:
    """In each module that has a function under its own name, wrap(function) stands for it; pairs:
    the functions, None where this torch has no such function, and wrap."""
    known = [(function, function.__name__, wrap(function)) for function, wrap in pairs if function]
    with ExitStack() as stack:
        for module in list(sys.modules.values()):
            names = own_attributes(module)
            for function, name, wrapped in known:
                if names.get(name) is function:
                    stack.enter_context(patch.object(module, name, wrapped))
        yield
