"""Which names can a step get at: closures, globals, attributes, items, and what they hold.

Looking must change nothing: no __getattr__ of the user's runs, and no module is loaded that waits
for its first use.
"""

import dis
import functools
import sys
from collections import deque
from collections.abc import Iterator
from types import CellType, CodeType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import torch

from capturable.inputs import Call
from capturable.live_objects import own_attributes
from capturable.user_lines import is_users

TRAINING = (torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler, torch.amp.GradScaler)
CONTAINERS = (dict, list, set, deque, bytearray)
INDEXED = (dict, list, tuple, deque)
WRAPPERS = (staticmethod, classmethod, property, functools.partial, MethodType)
NEAR = (torch.nn.Module, *TRAINING, *CONTAINERS, *WRAPPERS, tuple)  # looked into wherever they are
# what the user's things hold in them
KEEPS_ON = (*CONTAINERS, *WRAPPERS, tuple, FunctionType, ModuleType, type)
MANY = 1000  # a container with more items is put back, but not looked into
DEPTH = 3  # how far to look into objects of libraries
NAMING = ("LOAD_GLOBAL", "STORE_GLOBAL", "LOAD_NAME")  # of CPython's byte code
MISSING = object()  # what a name holds that is not bound


class Place(NamedTuple):
    """A name that a step can get at: its label, what holds it (cell, container, class, object),
    the key there, and whether the user's code keeps it, not a library."""

    label: str
    holder: Any
    key: Any
    users: bool

    def get(self) -> Any:
        """What the name holds, or MISSING."""
        holder, key = self.holder, self.key
        try:
            if is_a(holder, CellType):
                return holder.cell_contents
            if is_a(holder, dict):
                return dict.__getitem__(holder, key)  # a subclass may make a new value at each look
            if is_a(holder, INDEXED):
                return holder[key]
            if is_a(holder, type) or is_a(holder, ModuleType):
                return own_attributes(holder)[key]
            return object.__getattribute__(holder, key)
        except (ValueError, LookupError, AttributeError):
            return MISSING

    def put(self, value: Any) -> None:
        """Bind the name again, if it holds something else now."""
        if self.get() is value or is_a(self.holder, tuple):
            return
        if is_a(self.holder, CellType):
            _set_or_delete_attribute(self.holder, "cell_contents", value)
        elif is_a(self.holder, INDEXED):
            kind = type(self.holder)
            if value is MISSING:
                kind.__delitem__(self.holder, self.key)
            else:
                kind.__setitem__(self.holder, self.key, value)
        else:
            _set_or_delete_attribute(self.holder, self.key, value)


def _set_or_delete_attribute(holder: Any, name: str, value: Any) -> None:
    if value is MISSING:
        delattr(holder, name)
    else:
        setattr(holder, name, value)


def is_a(value: Any, kinds: Any) -> bool:
    """isinstance by the type alone: a proxy's __class__ would load what it stands for."""
    return issubclass(type(value), kinds)


def reach(*roots: Any) -> list[Place]:
    """The places that functions and objects can get at."""
    found: list[Place] = []
    seen: set[int] = set()
    queue: deque = deque(
        (label, value, True, 0) for root in roots for label, value in _named_roots(root)
    )
    while queue:
        label, value, users, depth = queue.popleft()
        if id(value) in seen or value is MISSING:
            continue
        seen.add(id(value))
        own = _is_users(value)
        # which keeps books on the CPU
        scheduler = is_a(value, torch.optim.lr_scheduler.LRScheduler)
        users = scheduler or (users and (own or is_a(value, KEEPS_ON)))
        near = own or is_a(value, NEAR)
        if near or depth < DEPTH:
            for name, holder, key in _parts(label, value, own):
                place = Place(name, holder, key, users)
                found.append(place)
                queue.append((name, place.get(), users, depth if near else depth + 1))
    return found


def _named_roots(root: Any) -> Iterator[tuple[str, Any]]:
    """A root, and of a step's inputs each of them by its name."""
    if not is_a(root, Call):
        yield "", root
        return
    yield from ((f"inputs[{number}]", value) for number, value in enumerate(root.args))
    yield from ((f"inputs[{name!r}]", value) for name, value in root.kwargs.items())


def _parts(label: str, value: Any, own: bool) -> Iterator[tuple[str, Any, Any]]:
    """The label, holder and key of each thing directly in a value."""
    start = f"{label}." if label else ""
    if is_a(value, (ModuleType, type)):
        yield from _parts_of_module_or_class(label, value, own)
        return
    if is_a(value, FunctionType):
        yield from _parts_of_function(label, value, own)
    elif is_a(value, WRAPPERS):
        inside = ("__func__", "__self__", "func", "args", "keywords", "fget", "fset")
        yield from _items(label, [getattr(value, name, None) for name in inside])
    elif is_a(value, INDEXED):
        yield from _items(label, value)
    else:
        yield from (
            (start + slot, value, slot) for kind in type(value).__mro__ for slot in _slots_of(kind)
        )
        if own:
            yield from _items(label, (type(value),))
    attributes = own_attributes(value)
    yield from ((start + str(key), attributes, key) for key in attributes)


def _parts_of_function(label: str, value: Any, own: bool) -> Iterator[tuple[str, Any, Any]]:
    cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
    yield from ((name, cell, "") for name, cell in cells)
    names = _global_names_used(value.__code__) if own else ()
    yield from ((name, value.__globals__, name) for name in names)
    defaults = [value.__defaults__, value.__kwdefaults__]
    yield from ((f"{value.__name__}'s defaults", defaults, number) for number in range(2))


def _parts_of_module_or_class(label: str, value: Any, own: bool) -> Iterator[tuple[str, Any, Any]]:
    """Of a module or class."""
    if not own:
        return
    names = own_attributes(value)
    title = names.get("__name__", label)
    if is_a(value, type):
        title = type.__dict__["__name__"].__get__(value)
    own_names = [name for name in names if not name.startswith("__")]
    yield from ((f"{title}.{name}", value, name) for name in own_names)
    if is_a(value, type):
        yield from _items(label, type.__dict__["__bases__"].__get__(value))


def _items(label: str, value: Any) -> Iterator[tuple[str, Any, Any]]:
    if len(value) <= MANY:
        for key in list(value) if is_a(value, dict) else range(len(value)):
            name = f"{label}[{key!r}]" if isinstance(key, str | int) else f"{label}[...]"
            yield name if label else label, value, key


def _slots_of(kind: type) -> tuple[str, ...]:
    slots = vars(kind).get("__slots__", ())
    slots = (slots,) if isinstance(slots, str) else slots
    return tuple(slot for slot in slots if not slot.startswith("__"))


def _is_users(value: Any) -> bool:
    """Whether a function, module or class is the user's own; of an object, whether its class is."""
    if is_a(value, FunctionType):
        return is_users(value.__code__.co_filename, value.__module__ or "")
    if is_a(value, ModuleType):
        names = own_attributes(value)
        return is_users(names.get("__file__") or "<none>", names.get("__name__") or "")
    kind = value if is_a(value, type) else type(value)
    module = sys.modules.get(_module_name_of(kind))
    return kind is SimpleNamespace or (is_a(module, ModuleType) and _is_users(module))


def _module_name_of(kind: type) -> str:
    name = own_attributes(kind).get("__module__", "")
    return name if isinstance(name, str) else ""


@functools.cache
def _global_names_used(code: CodeType) -> frozenset[str]:
    """The global names that a function's code reads or writes, inner functions included."""
    names = {step.argval for step in dis.get_instructions(code) if step.opname in NAMING}
    inner = (_global_names_used(const) for const in code.co_consts if isinstance(const, CodeType))
    return frozenset(names.union(*inner))
