"""Which names can a step get at: closures, globals, attributes, items, and what they hold."""

import dis
import functools
import sys
from collections import deque
from collections.abc import Iterator
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import torch

from capturable.operators import is_users

TRAINING = (torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler, torch.amp.GradScaler)
CONTAINERS = (dict, list, set, deque, bytearray)
KEEPS_ON = (
    *CONTAINERS,
    tuple,
    FunctionType,
    MethodType,
    functools.partial,
)  # still the user
CLOSED = (ModuleType, type, FunctionType, BuiltinFunctionType, torch.Tensor, torch.dtype, torch.device)
MANY = 1000  # a container with more items is put back, but not looked into
DEPTH = 3  # how far to look into objects of libraries
MISSING = object()  # what a name holds that is not bound


class Place(NamedTuple):
    """A name that a step can get at: its label, what holds it (cell, dict, list, class, object), the key there,
    and whether the user's code keeps it, not a library."""

    label: str
    holder: Any
    key: Any
    users: bool

    def get(self) -> Any:
        """What the name holds, or MISSING."""
        try:
            if isinstance(self.holder, CellType):
                return self.holder.cell_contents
            if isinstance(self.holder, dict | list | tuple | deque):
                return self.holder[self.key]
            return vars(self.holder)[self.key] if isinstance(self.holder, type) else getattr(self.holder, self.key)
        except (ValueError, LookupError, AttributeError):
            return MISSING

    def put(self, value: Any) -> None:
        """Bind the name again, if it holds something else now."""
        if self.get() is value or isinstance(self.holder, tuple):
            return
        if isinstance(self.holder, CellType):
            if value is MISSING:
                del self.holder.cell_contents
            else:
                self.holder.cell_contents = value
        elif isinstance(self.holder, dict | list | deque):
            if value is MISSING:
                del self.holder[self.key]
            else:
                self.holder[self.key] = value
        elif value is not MISSING:
            setattr(self.holder, self.key, value)


def reach(*roots: Any) -> list[Place]:
    """The places that functions and objects can get at."""
    found, seen, queue = [], set(), deque(("", root, True, 0) for root in roots)
    while queue:
        label, value, users, depth = queue.popleft()
        if id(value) in seen:
            continue
        seen.add(id(value))
        opened, own = _is_open(value, depth)
        scheduler = isinstance(value, torch.optim.lr_scheduler.LRScheduler)  # which keeps books on the CPU
        users = scheduler or users and (own or isinstance(value, KEEPS_ON))
        deeper = depth if own or isinstance(value, (torch.nn.Module, *TRAINING, *CONTAINERS, tuple)) else depth + 1
        for name, holder, key in _parts(label, value, opened, own):
            place = Place(name, holder, key, users)
            found.append(place)
            queue.append((name, place.get(), users, deeper))
    return found


def _parts(label: str, value: Any, opened: bool, own: bool) -> Iterator[tuple[str, Any, Any]]:
    """The label, holder and key of each thing directly in a value."""
    start = f"{label}." if label else ""
    if isinstance(value, FunctionType):
        if is_users(value.__code__.co_filename, value.__module__):
            yield from (
                (name, cell, None)
                for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
            )
            yield from ((name, value.__globals__, name) for name in _globals(value.__code__))
    elif isinstance(value, functools.partial):
        yield from _items(label, [value.func, value.args, value.keywords])
    elif isinstance(value, MethodType):
        yield from _items(label, [value.__self__, value.__func__])
    elif isinstance(value, dict | list | tuple | deque):
        yield from _items(label, value)
    elif opened:
        yield from ((start + str(key), vars(value), key) for key in getattr(value, "__dict__", ()))
        slots = [slot for kind in type(value).__mro__ for slot in _slots(kind)]
        yield from ((start + slot, value, slot) for slot in slots)
        kinds = [kind for kind in type(value).__mro__ if own and _users_class(kind)]
        names = ((kind, name) for kind in kinds for name in vars(kind) if not name.startswith("__"))
        yield from ((f"{kind.__name__}.{name}", kind, name) for kind, name in names if not callable(vars(kind)[name]))


def _items(label: str, value: Any) -> Iterator[tuple[str, Any, Any]]:
    if len(value) <= MANY:
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            name = f"{label}[{key!r}]" if isinstance(key, str | int) else f"{label}[...]"
            yield name if label else label, value, key


def _slots(kind: type) -> tuple[str, ...]:
    slots = vars(kind).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slot for slot in slots if not slot.startswith("__"))


def _is_open(value: Any, depth: int) -> tuple[bool, bool]:
    """Whether to look into an object, and whether its class is the user's own."""
    if isinstance(value, CLOSED) or value is MISSING:
        return False, False
    own = isinstance(value, SimpleNamespace) or _users_class(type(value))
    near = depth < DEPTH or isinstance(value, (torch.nn.Module, *TRAINING))
    return own or (near and hasattr(value, "__dict__")), own


def _users_class(kind: type) -> bool:
    module = sys.modules.get(kind.__module__)
    return module is not None and is_users(getattr(module, "__file__", None) or "<none>", module.__name__)


def _globals(code: CodeType) -> set[str]:
    """The global names that a function's code reads or writes, inner functions included."""
    names = {i.argval for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "STORE_GLOBAL", "LOAD_NAME")}
    return names.union(*(_globals(inner) for inner in code.co_consts if isinstance(inner, CodeType)))
