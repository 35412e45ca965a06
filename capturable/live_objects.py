"""What is alive in this process, and what it is called."""

import gc
import sys
from itertools import compress
from types import FrameType
from typing import Any

from capturable.user_lines import is_user_frame


def live_objects(*kinds: type) -> list[Any]:
    """All objects of these kinds that are alive."""
    objects = gc.get_objects()
    types = list(map(type, objects))
    numbers = list(map(id, types))  # a type need not have a hash
    known = dict(zip(numbers, types, strict=True))
    wanted = {number for number, kind in known.items() if issubclass(kind, kinds)}
    return list(compress(objects, map(wanted.__contains__, numbers)))


def name_of(*values: Any) -> str:
    """The name of a variable or attribute that holds one of the values, or a list with it; else
    the kind."""
    return _variable_holding(values) or _attribute_holding(values) or type(values[0]).__name__


def _variable_holding(values: tuple) -> str | None:
    """The variable in the user's frames above that holds one of the values."""
    frame: FrameType | None = sys._getframe(2)
    while frame:
        if is_user_frame(frame):
            for name, held in frame.f_locals.items():
                if any(held is value for value in values):
                    return name
        frame = frame.f_back
    return None


def _attribute_holding(values: tuple) -> str | None:
    """The attribute or key of anything that holds one of the values, or up to three lists around
    it."""
    holders = list(values)
    for _ in range(3):
        held = set(map(id, holders))
        found = gc.get_referrers(*holders)
        for holder in found:
            for name, value in list(_named_contents(holder).items()):
                if id(value) in held and isinstance(name, str):
                    return name
        holders = [holder for holder in found if issubclass(type(holder), (list, tuple))][:50]
    return None


def _named_contents(holder: Any) -> Any:
    if type(holder).__module__.startswith("capturable"):
        return {}
    return holder if issubclass(type(holder), dict) else own_attributes(holder)


def own_attributes(value: Any) -> Any:
    """The attributes that a value has itself: its __dict__, or {} where it has none.

    It loads no module that waits for its first use.
    """
    if issubclass(type(value), type):
        return vars(value)
    try:
        names = object.__getattribute__(value, "__dict__")
    except Exception:  # a property of the user's
        return {}
    return names if type(names) is dict else {}
