"""What a step keeps from call to call: weights, buffers, optimizer state, random states."""

import random
import sys
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any

import torch

from capturable.restore.reachable import TRAINING, Place, is_a, reach
from capturable.value_differences import is_numeric

KINDS = (torch.nn.Module, *TRAINING, torch.Generator, torch.Tensor)


def random_states() -> dict[str, Any]:
    """The random states of the process, by name."""
    return {name: get() for name, (get, _) in _random_state_accessors().items()}


def set_random_states(states: dict[str, Any]) -> None:
    """Put random states back."""
    known = _random_state_accessors()
    for name, state in states.items():
        known[name][1](state)


def seed_all(seed: int) -> None:
    """Seed every random number generator of the process."""
    random.seed(seed)
    torch.manual_seed(seed)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(seed)


def _random_state_accessors() -> dict[str, tuple[Callable, Callable]]:
    known: dict[str, tuple[Callable, Callable]] = {
        "Python's random state": (random.getstate, random.setstate),
        "torch's random state of the CPU": (torch.get_rng_state, torch.set_rng_state),
        "torch's random state of the GPU": (torch.cuda.get_rng_state, torch.cuda.set_rng_state),
    }
    if numpy := sys.modules.get("numpy"):
        known["numpy's random state"] = numpy.random.get_state, numpy.random.set_state
    return known


class StepState:
    """The modules, optimizers, generators and tensors in reach of a step, by name."""

    def __init__(self, step: Callable) -> None:
        places = {place.label: place for place in reach(step) if is_a(place.get(), KINDS)}
        self.places: dict[str, Place | None] = {"step": None} if is_a(step, KINDS) else {}
        self.step = step
        found = {**dict.fromkeys(self.places, step), **{n: p.get() for n, p in places.items()}}
        inside = {id(part) for thing in found.values() for part in _parts_of(thing)}
        seen: set[int] = set()
        for name, thing in found.items():
            if id(thing) not in inside | seen:
                self.places[name] = places.get(name)
                seen.add(id(thing))

    def things(self) -> dict[str, Any]:
        """What the names hold now."""
        return {name: place.get() if place else self.step for name, place in self.places.items()}

    def values(self, names: Mapping[str, str], gradients: bool) -> dict[str, Any]:
        """The values of the things that names stand for, each under the name that it is given."""
        things = self.things()
        found = [_values_of(name, things[own], gradients) for name, own in names.items()]
        named = [things[own] for own in names.values() if is_a(things[own], torch.nn.Module)]
        known = {id(parameter) for module in named for parameter in module.parameters()}
        for name, own in names.items():
            if is_a(things[own], torch.optim.Optimizer):  # a graph alone may know the module
                found.append(_parameters_without_module(name, things[own], known))
        return dict(chain.from_iterable(found))

    def has_optimizer(self) -> bool:
        """Whether the step has an optimizer; without one, gradients are its result."""
        return any(is_a(thing, torch.optim.Optimizer) for thing in self.things().values())

    def matching_names(self, other: "StepState") -> dict[str, str]:
        """For each name here, the name of the same thing in another step."""
        theirs, found = other.things(), {}
        for name, thing in self.things().items():
            wanted = _matching_key(name, thing)
            matches = [key for key, there in theirs.items() if _matching_key(key, there) == wanted]
            if matches:
                found[name] = matches[0]
                del theirs[matches[0]]
        return found


def _values_of(name: str, thing: Any, gradients: bool) -> Iterator[tuple[str, Any]]:
    """Name and value of each tensor and number in a thing."""
    if is_a(thing, torch.nn.Module):
        for key, tensor in (*thing.named_parameters(), *thing.named_buffers()):
            yield f"{name}.{_strip_prefixes(key)}", tensor
            if gradients and tensor.grad is not None:
                yield f"{name}.{_strip_prefixes(key)}.grad", tensor.grad
    elif is_a(thing, torch.optim.Optimizer):
        yield from _of_optimizer(name, thing)
    elif is_a(thing, torch.amp.GradScaler):
        yield from ((f"{name}.{key}", v) for key, v in thing.state_dict().items() if _is_numeric(v))
    elif is_a(thing, torch.optim.lr_scheduler.LRScheduler):
        yield f"{name}.last_epoch", thing.last_epoch
    elif is_a(thing, torch.Generator):
        yield name, thing.get_state()
    elif is_a(thing, torch.Tensor):
        yield name, thing
        if gradients and thing.is_leaf and thing.grad is not None:
            yield f"{name}.grad", thing.grad


def _of_optimizer(name: str, optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, Any]]:
    groups = optimizer.param_groups
    for number, group in enumerate(groups):
        where = f"{name}.param_groups[{number}]"
        yield from ((f"{where}['{key}']", v) for key, v in group.items() if _is_numeric(v))
    parameters = [parameter for group in groups for parameter in group["params"]]
    for number, parameter in enumerate(parameters):
        for key, value in optimizer.state.get(parameter, {}).items():
            if _is_numeric(value):
                yield f"{name}.state[{number}]['{key}']", value


def _parameters_without_module(
    name: str, optimizer: torch.optim.Optimizer, known: set[int]
) -> Iterator[tuple[str, torch.Tensor]]:
    """The parameters of an optimizer that no module has."""
    for number, group in enumerate(optimizer.param_groups):
        for place, parameter in enumerate(group["params"]):
            if id(parameter) not in known:
                yield f"{name}.param_groups[{number}]['params'][{place}]", parameter


def _is_numeric(value: Any) -> bool:
    return is_numeric(value) and not isinstance(value, bool)


def _strip_prefixes(key: str) -> str:
    """A parameter's name without what torch.compile and DistributedDataParallel put before it."""
    return key.removeprefix("_orig_mod.").removeprefix("module.")


def _parts_of(thing: Any) -> Iterator[Any]:
    """What a module or an optimizer holds."""
    if is_a(thing, torch.nn.Module):
        yield from (part for part in thing.modules() if part is not thing)
        for tensor in (*thing.parameters(), *thing.buffers()):
            yield from (tensor, tensor.grad)
    elif is_a(thing, TRAINING):
        held = [vars(thing)]
        while held:
            value = held.pop()
            if isinstance(value, dict):
                held += value.values()
            elif isinstance(value, list | tuple):
                held += value
            elif is_a(value, torch.Tensor):
                yield value


def _matching_key(name: str, thing: Any) -> tuple:
    """What two things have in common that stand for each other in two steps."""
    if is_a(thing, torch.nn.Module):
        named = (*thing.named_parameters(), *thing.named_buffers())
        return "module", frozenset((_strip_prefixes(key), tensor.shape) for key, tensor in named)
    if is_a(thing, torch.optim.Optimizer):
        shapes = [parameter.shape for group in thing.param_groups for parameter in group["params"]]
        return "optimizer", tuple(shapes)
    if is_a(thing, torch.Tensor):
        return "tensor", name, thing.shape, thing.dtype
    kind = next((kind for kind in KINDS if is_a(thing, kind)), type(thing))
    return kind, name if kind is torch.Generator else ""
