"""The step's inputs: how another batch differs from the one that a graph would read."""

import copy
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, NamedTuple

import torch

PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)
ASKED = ("shape", "dtype", "device", "requires_grad")


class Call(NamedTuple):
    """The arguments of a step."""

    args: tuple
    kwargs: dict[str, Any]


class Difference(NamedTuple):
    """What differs at a named part of the inputs: a tensor that does not fit, or a Python value."""

    name: str
    what: str
    python: bool


def compare(static: Call, real: Call) -> list[Difference]:
    """What a graph of static could not take from real: tensors that do not fit, and Python values
    that changed.

    Raises ValueError if there are more or fewer arguments.
    """
    if len(static.args) != len(real.args):
        counts = f"of which there are {len(static.args)}, not {len(real.args)}"
        raise ValueError(f"other_inputs must match the inputs, {counts}")
    if static.kwargs.keys() != real.kwargs.keys():
        names = " and ".join(sorted(static.kwargs.keys() ^ real.kwargs.keys()))
        raise ValueError(
            f"the keyword inputs must have the same names in both batches, but {names} differs"
        )
    here, there = dict(named_leaves(static)), dict(named_leaves(real))
    found = [_difference(name, here.get(name), there.get(name)) for name in here | there]
    return [difference for difference in found if difference]


def _difference(name: str, one: Any, other: Any) -> Difference | None:
    tensors = [isinstance(value, torch.Tensor) for value in (one, other)]
    if all(tensors):
        for attribute in ASKED:
            old, new = getattr(one, attribute), getattr(other, attribute)
            if old != new:
                return Difference(name, f"{attribute} {old} here, {new} in other_inputs", False)
        return None
    if any(tensors):
        return Difference(name, f"{_short(one)} here, {_short(other)} in other_inputs", False)
    if isinstance(one, PLAIN) and isinstance(other, PLAIN) and repr(one) != repr(other):
        return Difference(name, f"{_short(one)} here, {_short(other)} in other_inputs", True)
    return None


def _short(value: Any) -> str:
    return "a tensor" if isinstance(value, torch.Tensor) else repr(value)[:60]


def named_leaves(call: Call) -> Iterator[tuple[str, Any]]:
    """Name and value of every tensor and plain value in the arguments."""
    yield from walk_leaves("inputs", call.args)
    yield from walk_leaves("inputs", call.kwargs)


def walk_leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Name and value of every tensor and plain value in a value."""
    if isinstance(value, Mapping):
        for key in value:
            yield from walk_leaves(f"{name}[{key!r}]", value[key])
    elif isinstance(value, list | tuple) and not isinstance(value, torch.Size):
        for position, item in enumerate(value):
            yield from walk_leaves(f"{name}[{position}]", item)
    elif _is_object_with_tensors(value):
        for attribute, item in vars(value).items():
            yield from walk_leaves(f"{name}.{attribute}", item)
    else:
        yield name, value


def _is_object_with_tensors(value: Any) -> bool:
    """Whether a value is an object that carries inputs, such as a batch of a class of its own."""
    if isinstance(value, (torch.Tensor, torch.nn.Module, type, *PLAIN)) or callable(value):
        return False
    attributes = getattr(value, "__dict__", None)
    held = attributes.values() if type(attributes) is dict else ()
    return any(isinstance(one, torch.Tensor) for one in held)


def tensor_pairs(static: Call, real: Call) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The tensors of static, each with that of real at the same place."""
    others = dict(named_leaves(real))
    for name, value in named_leaves(static):
        if isinstance(value, torch.Tensor) and name in others:  # not what the step has added
            yield value, others[name]


def merge_python_values(static: Call, real: Call) -> Call:
    """The tensors of static with the Python values of real: what a loop hands to its step before
    a replay."""
    args = tuple(_merge(old, new) for old, new in zip(static.args, real.args, strict=True))
    return Call(args, {name: _merge(old, real.kwargs[name]) for name, old in static.kwargs.items()})


def _merge(static: Any, real: Any) -> Any:
    if isinstance(static, torch.Tensor):
        return static
    if isinstance(static, MutableMapping) and isinstance(real, Mapping):
        both = copy.copy(static)
        both.update((key, _merge(static.get(key), real[key])) for key in real)
        return both
    if isinstance(static, list | tuple) and type(static) is type(real):
        if len(static) != len(real):
            return real
        items = [_merge(old, new) for old, new in zip(static, real, strict=True)]
        return type(static)(*items) if hasattr(static, "_fields") else type(static)(items)
    if _is_object_with_tensors(static) and type(static) is type(real):
        both = copy.copy(real)
        others = vars(real)
        vars(both).update((n, _merge(old, others.get(n))) for n, old in vars(static).items())
        return both
    return real if isinstance(real, PLAIN) else static
