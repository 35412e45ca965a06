"""Log what a step does, each operator with the line of the user's code that caused it.

The user's code is what lies neither in torch nor in the standard library nor among installed packages.
"""

import functools
import linecache
import sys
import sysconfig
import threading
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

TORCH = str(Path(torch.__file__).parent)
LIBRARIES = (TORCH, *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")))
WRAPPERS = ("utils/_", "_compile.py", "_dynamo/", "_ops.py")  # of torch, which stand in front of everything


class Line(NamedTuple):
    """A line of code: file, number and the function around it."""

    file: str
    number: int
    function: str

    @classmethod
    def of(cls, frame):
        return cls(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)

    def __str__(self):
        """function:number and the text, where the number counts from the top of its file or cell."""
        return f"{self.function}:{self.number}  {linecache.getline(self.file, self.number).strip()}".rstrip()


class Op(NamedTuple):
    """An operator as it ran: name, line, innermost torch file on the way (such as optim/sgd.py, or ""),
    its Python numbers, the shapes of its tensors, and the addresses of tensors that the step did not make."""

    name: str
    line: Line
    library: str
    numbers: tuple
    shapes: tuple
    outside: tuple


@functools.cache
def is_users(file, module=""):
    """Whether a source file, and the module made of it, are the user's own."""
    if file.startswith("<"):  # generated code, or that of python -c
        return module == "__main__"
    return not module.startswith("capturable") and not file.startswith(LIBRARIES)


def runs_users(frame):
    """Whether a frame runs the user's own code."""
    return is_users(frame.f_code.co_filename, frame.f_globals.get("__name__", ""))


def here(thread):
    """The innermost line of the user's code, and the innermost file of torch before it.

    On autograd's threads there is none; then it is the line at which thread waits in backward().
    """
    for frame in (sys._getframe(1), sys._current_frames().get(thread)):
        library = ""
        while frame:
            file = frame.f_code.co_filename
            if runs_users(frame):
                return Line.of(frame), library
            inside = file[len(TORCH) + 1 :] if file.startswith(TORCH) else ""
            if not library and not inside.startswith(WRAPPERS):
                library = inside
            frame = frame.f_back
    return Line("", 0, "step"), ""


class OpLog(TorchDispatchMode):
    """Collect in ops every operator that runs, the backward pass included.

    before(func, args, kwargs) is called ahead of each one that is no mere annotation, to judge it;
    written(storage) ahead of each write to memory that the step did not make itself.
    """

    def __init__(self, before, written):
        super().__init__()
        self.before, self.written = before, written
        self.ops, self.made, self.thread = [], set(), threading.get_ident()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func.namespace == "profiler":
            return func(*args, **kwargs)
        self.before(func, args, kwargs)
        leaves = tree_leaves((args, kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        storages = [leaf.data_ptr() for leaf in leaves if isinstance(leaf, torch.UntypedStorage)]  # of set_
        addresses = [*map(address, tensors), *storages]
        outside = tuple(address for address in addresses if address not in self.made)
        if func._schema.name == "aten::lift_fresh":  # its tensor was made by this very call
            outside = ()
        for tensor in writes(func, args, kwargs):
            if address(tensor) in outside:
                self.written(tensor.untyped_storage())
        line, library = here(self.thread)
        numbers = tuple(repr(leaf) for leaf in leaves if isinstance(leaf, int | float | complex | str))
        shapes = tuple(tuple(tensor.shape) for tensor in tensors)
        self.ops.append(Op(func.name(), line, library, numbers, shapes, outside))
        result = func(*args, **kwargs)
        outputs = {address(leaf) for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)}
        self.made |= outputs - set(outside) - {0}
        return result


def address(tensor):
    """Where the tensor's storage begins; 0 for one without memory of its own."""
    try:
        return tensor.untyped_storage().data_ptr()
    except (NotImplementedError, RuntimeError):  # sparse and other tensors without a storage
        return 0


def writes(func, args, kwargs):
    """The tensors that an operator writes to, as its schema says; batch_norm's says nothing of its statistics."""
    if "batch_norm" in func.name():
        yield from (leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor))
    for position, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[position] if position < len(args) else kwargs.get(argument.name)
            yield from (leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor))


def differences(first, second):
    """(rule, op, what differs) between the operators of two runs: each would freeze in a graph."""
    seen, shapes_agree = set(), True
    for one, two in zip_longest(first, second):
        if one is None or two is None or one.name != two.name:
            names = [op.name if op else "nothing more" for op in (one, two)]
            yield "path", one or two, f"{names[0]} in one step, {names[1]} in the next"
            return
        if one.shapes != two.shapes and shapes_agree:
            yield "shape", one, f"{one.name} had the shapes {one.shapes}, then {two.shapes}"
            shapes_agree = False  # what follows from it differs as well
        pairs = zip(one.numbers, two.numbers, strict=False)
        changed = next((f"{a}, then {b}" for a, b in pairs if a != b), None)
        if one.shapes == two.shapes and changed and changed not in seen:  # backward takes it again
            yield "frozen number", one, f"{one.name} got the number {changed}"
        moved = set(two.outside) - set(one.outside) - seen if len(one.outside) == len(two.outside) else set()
        if moved:
            yield "moved tensor", one, f"{one.name} reads a tensor that is at another address each time"
        seen |= {changed, *moved}
