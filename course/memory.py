"""Give a notebook's GPU memory back while it stays open."""

import gc
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from types import FunctionType, SimpleNamespace

import torch
from IPython import get_ipython

HOLDERS = (
    torch.Tensor,
    torch.nn.Module,
    torch.optim.Optimizer,
    torch.cuda.CUDAGraph,
    torch.Generator,
    partial,
)


def free_gpu_memory() -> str:
    """Forget the notebook's variables that hold GPU memory, and return it to the driver.

    Tensors, models, optimizers, graphs and generators go, as do partials, closures, namespaces,
    lists and dicts that hold them; numbers, tables and traces stay. Says how many MiB torch still
    reserves: libraries such as cuBLAS keep some.
    """
    shell = get_ipython()
    holders = [name for name, value in shell.user_ns.items() if holds_gpu(value)]
    for name in holders:
        if not name.startswith("_"):
            del shell.user_ns[name]
    shell.displayhook.flush()  # Out[...] keeps what was shown
    gc.collect()
    torch.cuda.empty_cache()
    return f"{torch.cuda.memory_reserved() >> 20} MiB of GPU memory still reserved"


def holds_gpu(value: object, around: tuple = ()) -> bool:
    """Whether a variable holds GPU memory, as far as lists, dicts, namespaces and closures show.

    around: what it lies in, for a closure can hold itself.
    """
    if any(value is outer for outer in around):
        return False
    inner: Iterable[object]
    if isinstance(value, FunctionType):
        inner = closure_values(value)
    elif isinstance(value, dict | SimpleNamespace):
        inner = (value if isinstance(value, dict) else vars(value)).values()
    elif isinstance(value, list | tuple | set):
        inner = value
    else:
        return isinstance(value, HOLDERS)
    return any(holds_gpu(item, (*around, value)) for item in inner)


def closure_values(function: FunctionType) -> list[object]:
    """What the variables of a closure hold; one that is bound later, or deleted, holds nothing."""
    values = []
    for cell in function.__closure__ or ():
        with suppress(ValueError):
            values.append(cell.cell_contents)
    return values
