"""Undo: run a step and put everything back that it changed, weights, optimizer state and random state."""

import copy
import dis
import functools
import gc
import random
import sys
import weakref
from collections import deque
from types import CellType, CodeType, FunctionType, MethodType, SimpleNamespace
from typing import NamedTuple

import torch

from capturable.operators import address, is_users

TRAINING = (torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler, torch.amp.GradScaler)
CONTAINERS = (dict, list, set, deque)
MANY = 1000  # a container with more items is put back, but not looked into


class Place(NamedTuple):
    """A name that a step can get at: its label, what holds it (cell, dict, list), the key there, and
    whether it lies in an object of torch."""

    label: str
    holder: object
    key: object
    torch: bool

    def get(self):
        return self.holder.cell_contents if isinstance(self.holder, CellType) else self.holder[self.key]

    def put(self, value):
        if isinstance(self.holder, CellType):
            self.holder.cell_contents = value
        elif not isinstance(self.holder, tuple):
            self.holder[self.key] = value


def live(*kinds):
    """All objects of these kinds that are alive."""
    return [thing for thing in gc.get_objects() if issubclass(type(thing), kinds)]


def reach(*roots):
    """The places that functions and objects can get at: closures, globals they name, attributes, items."""
    found, seen, queue = [], set(), [("", root, False) for root in roots]
    while queue:
        label, value, inside = queue.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        scheduler = isinstance(value, torch.optim.lr_scheduler.LRScheduler)  # which keeps books on the CPU
        inside = not scheduler and (inside or type(value).__module__.startswith("torch."))
        for name, holder, key in _parts(label, value):
            place = Place(name, holder, key, inside)
            found.append(place)
            try:
                queue.append((name, place.get(), inside))
            except (ValueError, KeyError):  # a name that is not bound yet
                found.pop()
    return found


def _parts(label, value):
    """The label, holder and key of each thing directly in a value."""
    if isinstance(value, FunctionType) and is_users(value.__code__.co_filename, value.__module__):
        cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
        named = [name for name in _globals(value.__code__) if name in value.__globals__]
        return [(name, cell, None) for name, cell in cells] + [(name, value.__globals__, name) for name in named]
    if isinstance(value, functools.partial):
        value = [value.func, value.args, value.keywords]
    elif isinstance(value, MethodType):
        value = [value.__self__, value.__func__]
    elif not isinstance(value, dict | list | tuple):
        start = f"{label}." if label else ""
        return [(start + str(key), vars(value), key) for key in (vars(value) if _is_open(value) else ())]
    if len(value) > MANY:
        return []
    keys = list(value) if isinstance(value, dict) else range(len(value))
    labels = [f"{label}[{key!r}]" if isinstance(key, str | int) else f"{label}[...]" for key in keys]
    return [(name if label else label, value, key) for name, key in zip(labels, keys, strict=True)]


def _is_open(value):
    """Whether to look into an object: a module, an optimizer and its kin, or one of a class of the user's."""
    if isinstance(value, (torch.nn.Module, SimpleNamespace, *TRAINING)):
        return True
    module = sys.modules.get(type(value).__module__)
    own = module and is_users(getattr(module, "__file__", None) or "<none>", module.__name__)
    return bool(own) and hasattr(value, "__dict__") and not isinstance(value, torch.Tensor | type)


def _globals(code):
    """The global names that a function's code reads or writes, inner functions included."""
    names = {i.argval for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "STORE_GLOBAL", "LOAD_NAME")}
    return names.union(*(_globals(inner) for inner in code.co_consts if isinstance(inner, CodeType)))


class Undo:
    """A context that puts back, on leaving, what has happened inside to all that roots can get at.

    That is: the memory announced to written(), parameters' .grad and .data, the random state of
    Python, numpy, torch and the generators announced to draws(), and Python values. Iterators and
    open files stay where they are.
    """

    def __init__(self, *roots):
        self.roots, self.storages, self.generators = roots, {}, {}

    def __enter__(self):
        alive = live(torch.Tensor, *TRAINING)
        places = reach(*self.roots, *(thing for thing in alive if not isinstance(thing, torch.Tensor)))
        self.places = [(place, place.get()) for place in places]
        held = {id(value): value for _, value in self.places if isinstance(value, CONTAINERS)}
        self.containers = [(value, copy.copy(value)) for value in held.values()]
        tensors = [thing for thing in alive if isinstance(thing, torch.Tensor) and thing.requires_grad]
        self.leaves = [(tensor, tensor.grad, tensor.data) for tensor in tensors if tensor.is_leaf]
        self.results = [weakref.ref(tensor) for tensor in tensors if not tensor.is_leaf]
        self.random = [(put, get()) for get, put in _random_states()]
        return self

    def written(self, storage):
        """Keep the content of memory that is about to be written."""
        self.storages.setdefault(storage.data_ptr(), (storage, storage.clone()))

    def draws(self, generator):
        """Keep the state of a generator that is about to be used."""
        self.generators.setdefault(generator._cdata, (generator.set_state, generator.get_state()))

    @torch.no_grad()
    def __exit__(self, *_):
        for storage, content in self.storages.values():
            storage.copy_(content)
        for value, content in self.containers:
            value.clear()
            (value.extend if isinstance(value, list | deque) else value.update)(content)
        for place, value in self.places:
            place.put(value)
        for tensor, grad, data in self.leaves:
            if address(tensor) != address(data):
                tensor.data = data
            tensor.grad = grad
        for put, state in [*self.random, *self.generators.values()]:
            put(state)


def _random_states():
    """Getter and setter of every random state that the process has by default."""
    yield random.getstate, random.setstate
    yield torch.get_rng_state, torch.set_rng_state
    if torch.cuda.is_available():
        yield torch.cuda.get_rng_state_all, torch.cuda.set_rng_state_all
    if numpy := sys.modules.get("numpy"):
        yield numpy.random.get_state, numpy.random.set_state
