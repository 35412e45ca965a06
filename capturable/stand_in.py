"""Where the GPU's work runs: on a GPU, or else on the stand-in for CUDA graphs, cpu_graph."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import torch

MISSING = (
    "there is no GPU here, and its stand-in is not installed: pip install ./cpu_graph, "
    "or run this on a machine with a GPU"
)


def stand_in_device() -> Any:
    """The stand-in's device, inside of its block; else None."""
    try:
        from cpu_graph import on_stand_in
    except ImportError:
        return None
    return on_stand_in()


@contextmanager
def gpu_or_stand_in() -> Iterator[Any]:
    """Open the stand-in where there is no GPU; the value is its device, None on a GPU.

    Raises RuntimeError, one sentence, if it is needed and not installed.
    """
    if torch.cuda.is_available():  # also inside of a block that is open
        yield stand_in_device()
        return
    try:
        from cpu_graph import cpu_graphs
    except ImportError:
        raise RuntimeError(MISSING) from None
    with cpu_graphs() as device:
        yield device


@contextmanager
def unreported() -> Iterator[None]:
    """What is tried in the block, and undone, is no part of the stand-in's report."""
    device = stand_in_device()
    with device.keep_out_of_report() if device is not None else nullcontext():
        yield


@contextmanager
def behind_the_stand_in() -> Iterator[None]:
    """Work on the memory of the stand-in's tensors as that of the CPU, which it is: without a
    launch."""
    with ExitStack() as stack:
        if stand_in_device() is not None:
            stack.enter_context(torch._C._DisableTorchDispatch())
            stack.enter_context(torch._C.DisableTorchFunction())
        yield


def device_behind(storage: torch.UntypedStorage) -> torch.device:
    """Where memory is; on the stand-in that of the GPU, too, is the CPU's."""
    return torch.device("cpu") if stand_in_device() is not None else storage.device


def is_not_modelled(error: BaseException) -> bool:
    """Whether the stand-in says by an error that it does not know what a GPU does."""
    return any(cls.__name__ == "NotModelled" for cls in type(error).__mro__)
