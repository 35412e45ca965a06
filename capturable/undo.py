"""Undo: run a step and put everything back that it changed, weights, optimizer state and random state."""

import copy
import gc
import random
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from capturable.memory import Memory
from capturable.reach import CONTAINERS, TRAINING, reach


class NotRestored(RuntimeError):
    """Something that a step changed and that could not be put back; the message names it."""


class Undo:
    """A context that puts back, on leaving, what has happened inside to all that roots can get at.

    Tensors (memory, shape, place, requires_grad, .grad), containers, numpy arrays, attributes, class
    attributes and globals, and the random states of Python, numpy, torch and the generators in reach. What
    lies in objects of libraries is followed three objects deep. Iterators, open files and what other
    processes hold stay where they are. The memory that roots reach is kept as a copy. Of all other tensors
    that are alive, those announced to written() are; of the rest a checksum is taken, and one that differs
    afterwards raises NotRestored, as does all that cannot be put back, after the rest was.
    """

    def __init__(self, *roots: Any) -> None:
        self.roots = roots

    def __enter__(self) -> "Undo":
        alive = live(torch.Tensor, *TRAINING)
        tensors = [thing for thing in alive if isinstance(thing, torch.Tensor)]
        training = [thing for thing in alive if not isinstance(thing, torch.Tensor)]
        places = reach(*self.roots, *training)
        self.places = [(place, place.get()) for place in places]
        holders = (place.holder for place in places if isinstance(place.holder, dict))
        attributes = {id(holder): holder for holder in holders if "__builtins__" not in holder}
        held = attributes | {id(value): value for _, value in self.places if isinstance(value, CONTAINERS)}
        self.containers = [(value, copy.copy(value)) for value in held.values()]
        self.memory = Memory(tensors, [value for _, value in self.places])
        self.random = [(put, get()) for get, put in _random_states([value for _, value in self.places])]
        self.leaves = [(t, t.grad, t.data) for t in tensors if t.is_leaf and t.requires_grad]
        self.results = [weakref.ref(t) for t in tensors if t.requires_grad and not t.is_leaf]
        self.arrays = [(value, value.copy()) for _, value in self.places if _is_array(value)]
        return self

    def written(self, storage: torch.UntypedStorage) -> None:
        """Keep the content of memory that is about to be written."""
        self.memory.keep(storage)

    @torch.no_grad()
    def __exit__(self, *_: object) -> None:
        failed: list[str] = []
        for thing, put in self._steps():
            try:
                put()
            except Exception as error:  # whatever a library raises: the rest is put back all the same
                name = thing if isinstance(thing, str) else name_of(thing)
                failed.append(f"{name} ({type(error).__name__}: {str(error)[:80]})")
        failed += [f"the tensor {name_of(tensor)}" for tensor in self.memory.changed()]
        if failed:
            raise NotRestored(f"preflight could not put back what the step changed: {', '.join(failed[:5])}.")

    def _steps(self) -> Iterator[tuple[Any, Callable[[], Any]]]:
        """Each thing, or its name, and what puts it back; containers before the names in them."""
        for value, content in self.containers:
            yield value, partial(_refill, value, content)
        for place, value in self.places:
            yield place.label, partial(place.put, value)
        for array, content in self.arrays:
            yield array, partial(array.__setitem__, ..., content)
        yield from self.memory.steps()
        for put, state in self.random:
            yield "a random state", partial(put, state)


def live(*kinds: type) -> list[Any]:
    """All objects of these kinds that are alive."""
    return [thing for thing in gc.get_objects() if issubclass(type(thing), kinds)]


def _refill(value: Any, content: Any) -> None:
    if isinstance(value, bytearray):
        value[:] = content
    elif len(value) != len(content) or list(value) != list(content) or not isinstance(value, set | dict):
        value.clear()
        (value.extend if isinstance(value, list | deque) else value.update)(content)


def _is_array(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray) and value.flags.writeable


def _random_states(values: list[Any]) -> Iterator[tuple[Callable, Callable]]:
    """Getter and setter of every random state that the process has by default, or that values hold."""
    yield random.getstate, random.setstate
    yield torch.get_rng_state, torch.set_rng_state
    if torch.cuda.is_available():
        yield torch.cuda.get_rng_state_all, torch.cuda.set_rng_state_all
    numpy = sys.modules.get("numpy")
    if numpy:
        yield numpy.random.get_state, numpy.random.set_state
    for value in values:
        if isinstance(value, random.Random):
            yield value.getstate, value.setstate
        elif isinstance(value, torch.Generator):
            yield value.get_state, value.set_state
        elif numpy and isinstance(value, numpy.random.Generator):
            bits = value.bit_generator
            yield (
                (lambda bits=bits: copy.deepcopy(bits.state)),
                (lambda state, bits=bits: setattr(bits, "state", state)),
            )


def name_of(value: Any, depth: int = 2) -> str:
    """The name of a variable that holds a value, or a list or tuple with it; else its kind."""
    for holder in gc.get_referrers(value):
        if isinstance(holder, dict):
            names = [key for key, held in holder.items() if held is value and isinstance(key, str)]
            if names:
                return names[0]
        elif isinstance(holder, list | tuple) and depth:
            name = name_of(holder, depth - 1)
            if name != type(holder).__name__:
                return name
    return type(value).__name__
