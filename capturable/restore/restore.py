"""Run a step and put everything back that it changed: weights, optimizer state, Python values,
random states."""

import copy
import random
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from capturable.live_objects import live_objects, name_of, own_attributes
from capturable.restore.reachable import CONTAINERS, TRAINING, Place, is_a, reach
from capturable.restore.tensor_memory import Memory
from capturable.stand_in import stand_in_device


class NotRestored(RuntimeError):
    """Something that a step changed and that could not be put back; the message names it."""


class Restore:
    """A context that puts back, on leaving, what has happened inside to all that roots can get at.

    Tensors (memory, shape, place, requires_grad, .grad), containers, numpy arrays, attributes,
    class attributes and globals, the grad mode and default dtype, and the random states of Python,
    numpy, torch and the generators in reach. Objects of libraries are followed three objects deep.
    Iterators, open files, compilers' caches and other processes stay where they are. The memory
    that roots reach is kept as a copy, and that of tensors announced to keep_before_write(), or,
    with everything=True, of all that are alive. Of these a checksum is taken; one that differs
    afterwards raises NotRestored, as does all that cannot be put back, after the rest was.
    """

    def __init__(self, *roots: Any, everything: bool = False) -> None:
        self.roots, self.everything = roots, everything

    @torch.no_grad()
    def __enter__(self) -> "Restore":
        _synchronize_stand_in()
        # first: looking may draw numbers
        self.states = [(put, get()) for get, put in _process_state_accessors()]
        alive = live_objects(torch.Tensor, *TRAINING)
        tensors = [thing for thing in alive if isinstance(thing, torch.Tensor)]
        training = [thing for thing in alive if not isinstance(thing, torch.Tensor)]
        places = reach(*self.roots, *training)
        self.places = [(place, place.get()) for place in places]
        values = [*self.roots, *(value for _, value in self.places)]
        self.states += [(put, get()) for get, put in _random_accessors_among(values)]
        self.containers = [(value, _content(value)) for value in _containers(places, values)]
        kinds = {place.holder for place in places if is_a(place.holder, type)}
        self.classes = [(kind, set(vars(kind))) for kind in kinds]
        self.memory = Memory(tensors, tensors if self.everything else values)
        self.leaves = [(t, t.grad, t.data) for t in tensors if t.is_leaf and t.requires_grad]
        self.results = [weakref.ref(t) for t in tensors if t.requires_grad and not t.is_leaf]
        self.arrays = [(value, value.copy()) for value in values if _is_array(value)]
        return self

    def keep_before_write(self, tensor: torch.Tensor) -> None:
        """Keep the memory of a tensor that is about to be written."""
        self.memory.keep(tensor)

    @torch.no_grad()
    def __exit__(self, _: Any, error: BaseException | None, __: Any) -> None:
        failed: list[str] = []
        _synchronize_stand_in()
        for thing, put in self._steps():
            try:
                put()
            # whatever a library raises: the rest is put back all the same
            except Exception as refused:
                name = thing if isinstance(thing, str) else name_of(thing)
                failed.append(f"{name} ({type(refused).__name__}: {str(refused)[:80]})")
        failed += [f"the tensor {name_of(*tensors)}" for tensors in self.memory.changed()]
        self.memory.copies.clear()
        if not failed:
            return
        message = f"preflight could not put back what the step changed: {', '.join(failed[:5])}."
        if error is None:
            raise NotRestored(message)
        error.add_note(message)  # the step's own error is what one has to see

    def _steps(self) -> Iterator[tuple[Any, Callable[[], Any]]]:
        """Each thing, or its name, and what puts it back; containers before the names in them."""
        for value, content in self.containers:
            yield value, partial(_refill, value, content)
        for kind, names in self.classes:
            for name in set(vars(kind)) - names:
                yield kind.__name__, partial(delattr, kind, name)
        for place, value in self.places:
            yield place.label, partial(place.put, value)
        for array, content in self.arrays:
            yield array, partial(array.__setitem__, ..., content)
        yield from self.memory.steps()
        for put, state in self.states:
            yield "a random state", partial(put, state)


def _synchronize_stand_in() -> None:
    """Let the stand-in's launches come to their end: memory that is put back stays so."""
    device = stand_in_device()
    if device is not None and device.capture is None:
        torch.cuda.synchronize()


def _containers(places: list[Place], values: list[Any]) -> list[Any]:
    """Every container among the values, and every dictionary of attributes that holds a place,
    once."""
    holders = [place.holder for place in places if is_a(place.holder, dict)]
    found = [holder for holder in holders if "__builtins__" not in holder]
    found += [value for value in values if is_a(value, CONTAINERS)]
    # an object's, whose first attribute is to come
    empty = (own_attributes(value) for value in values)
    found += [names for names in empty if type(names) is dict and not names]
    return list({id(value): value for value in found}.values())


def _content(value: Any) -> Any:
    """What a container holds, in one that is plain."""
    if is_a(value, dict):
        return dict(value)
    if is_a(value, set):
        return set(value)
    return bytes(value) if is_a(value, bytearray) else list(value)


def _refill(value: Any, content: Any) -> None:
    if isinstance(value, bytearray):
        value[:] = content
    elif not _same(value, content):
        value.clear()
        (value.extend if isinstance(value, list | deque) else value.update)(content)


def _same(value: Any, content: Any) -> bool:
    """Whether a container holds the very same things."""
    old, new = _keys_and_values(value), _keys_and_values(content)
    return len(old) == len(new) and all(a is b for a, b in zip(old, new, strict=True))


def _keys_and_values(value: Any) -> list[Any]:
    return [*value, *value.values()] if isinstance(value, dict) else list(value)


def _is_array(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and is_a(value, numpy.ndarray) and value.flags.writeable


def _process_state_accessors() -> Iterator[tuple[Callable, Callable]]:
    """Getter and setter of torch's switches, and of every random state of the process."""
    yield torch.is_grad_enabled, torch.set_grad_enabled
    yield torch.get_default_dtype, torch.set_default_dtype
    validated = torch.distributions.Distribution  # torch.compile switches its checks off
    yield lambda: validated._validate_args, validated.set_default_validate_args
    yield random.getstate, random.setstate
    yield torch.get_rng_state, torch.set_rng_state
    if torch.cuda.is_available():
        yield torch.cuda.get_rng_state_all, torch.cuda.set_rng_state_all
    numpy = sys.modules.get("numpy")
    if numpy:
        yield numpy.random.get_state, numpy.random.set_state


def _random_accessors_among(values: list[Any]) -> Iterator[tuple[Callable, Callable]]:
    """Getter and setter of every random state among the values."""
    numpy = sys.modules.get("numpy")
    for value in values:
        if is_a(value, random.Random) and not is_a(value, random.SystemRandom):
            yield value.getstate, value.setstate
        elif is_a(value, torch.Generator) or (numpy and is_a(value, numpy.random.RandomState)):
            yield value.get_state, value.set_state
        elif numpy and is_a(value, numpy.random.Generator):
            bits = value.bit_generator
            yield partial(_copy_bit_generator_state, bits), partial(setattr, bits, "state")


def _copy_bit_generator_state(bits: Any) -> dict:
    return copy.deepcopy(bits.state)
