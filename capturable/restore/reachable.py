"""Which names can a step get at: closures, globals, attributes, items, and what they hold."""

import dis
import functools
import sys
from collections import deque
from collections.abc import Iterator
from types import CellType, CodeType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import torch

from capturable.user_lines import is_users

TRAINING = (torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler, torch.amp.GradScaler)
CONTAINERS = (dict, list, set, deque, bytearray)
INDEXED = (dict, list, tuple, deque)
WRAPPERS = (staticmethod, classmethod, property, functools.partial, MethodType)
KEEPS_ON = (*CONTAINERS, *WRAPPERS, tuple, FunctionType, ModuleType, type)  # what the user's things hold in them
MANY = 1000  # a container with more items is put back, but not looked into
DEPTH = 3  # how far to look into objects of libraries
MISSING = object()  # what a name holds that is not bound


class Place(NamedTuple):
    """A name that a step can get at: its label, what holds it (cell, container, class, object), the key there,
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
            if isinstance(self.holder, dict):
                return dict.__getitem__(self.holder, self.key)  # a subclass may make a new value at each look
            if isinstance(self.holder, INDEXED):
                return self.holder[self.key]
            return vars(self.holder)[self.key] if isinstance(self.holder, type) else getattr(self.holder, self.key)
        except (ValueError, LookupError, AttributeError):
            return MISSING

    def put(self, value: Any) -> None:
        """Bind the name again, if it holds something else now."""
        if self.get() is value or isinstance(self.holder, tuple):
            return
        if isinstance(self.holder, CellType):
            name, holder, setter, remover = "cell_contents", self.holder, setattr, delattr
        elif isinstance(self.holder, INDEXED):
            name, holder = self.key, self.holder
            setter, remover = type(holder).__setitem__, type(holder).__delitem__
        else:
            name, holder, setter, remover = self.key, self.holder, setattr, delattr
        remover(holder, name) if value is MISSING else setter(holder, name, value)


def reach(*roots: Any) -> list[Place]:
    """The places that functions and objects can get at."""
    found, seen, queue = [], set(), deque(("", root, True, 0) for root in roots)
    while queue:
        label, value, users, depth = queue.popleft()
        if id(value) in seen or value is MISSING:
            continue
        seen.add(id(value))
        own = _is_users(value)
        scheduler = isinstance(value, torch.optim.lr_scheduler.LRScheduler)  # which keeps books on the CPU
        users = scheduler or users and (own or isinstance(value, KEEPS_ON))
        near = own or isinstance(value, (torch.nn.Module, *TRAINING, *CONTAINERS, *WRAPPERS, tuple))
        if near or depth < DEPTH:
            for name, holder, key in _parts(label, value, own):
                place = Place(name, holder, key, users)
                found.append(place)
                queue.append((name, place.get(), users, depth if near else depth + 1))
    return found


def _parts(label: str, value: Any, own: bool) -> Iterator[tuple[str, Any, Any]]:
    """The label, holder and key of each thing directly in a value."""
    start = f"{label}." if label else ""
    if isinstance(value, FunctionType):
        cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
        yield from ((name, cell, "") for name, cell in cells)
        yield from ((name, value.__globals__, name) for name in (_globals(value.__code__) if own else ()))
        yield from _items(label, [value.__defaults__, value.__kwdefaults__])
    elif isinstance(value, WRAPPERS):
        inside = ("__func__", "__self__", "func", "args", "keywords", "fget", "fset")
        yield from _items(label, [getattr(value, name, None) for name in inside])
    elif isinstance(value, INDEXED):
        yield from _items(label, value)
    elif isinstance(value, ModuleType | type):
        names = [name for name in vars(value) if not name.startswith("__")] if own else ()
        yield from ((f"{value.__name__}.{name}", value, name) for name in names)
        yield from _items(label, value.__bases__ if own and isinstance(value, type) else ())
        return
    else:
        yield from ((start + slot, value, slot) for kind in type(value).__mro__ for slot in _slots(kind))
        if own:
            yield from _items(label, (type(value),))
    attributes = getattr(value, "__dict__", None)
    yield from ((start + str(key), attributes, key) for key in (attributes if type(attributes) is dict else ()))


def _items(label: str, value: Any) -> Iterator[tuple[str, Any, Any]]:
    if len(value) <= MANY:
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            name = f"{label}[{key!r}]" if isinstance(key, str | int) else f"{label}[...]"
            yield name if label else label, value, key


def _slots(kind: type) -> tuple[str, ...]:
    slots = vars(kind).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slot for slot in slots if not slot.startswith("__"))


def _is_users(value: Any) -> bool:
    """Whether a function, module or class is the user's own; of an object, whether its class is."""
    if isinstance(value, FunctionType):
        return is_users(value.__code__.co_filename, value.__module__ or "")
    if isinstance(value, ModuleType):
        return is_users(getattr(value, "__file__", None) or "<none>", value.__name__)
    kind = value if isinstance(value, type) else type(value)
    module = sys.modules.get(kind.__module__)
    return kind is SimpleNamespace or isinstance(module, ModuleType) and _is_users(module)


@functools.cache
def _globals(code: CodeType) -> frozenset[str]:
    """The global names that a function's code reads or writes, inner functions included."""
    names = {i.argval for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "STORE_GLOBAL", "LOAD_NAME")}
    return frozenset(names.union(*(_globals(inner) for inner in code.co_consts if isinstance(inner, CodeType))))
