"""What is alive in this process, and what it is called."""

import gc
import sys
from typing import Any

from capturable.user_lines import runs_users


def live(*kinds: type) -> list[Any]:
    """All objects of these kinds that are alive."""
    return [thing for thing in gc.get_objects() if issubclass(type(thing), kinds)]


def name_of(*values: Any) -> str:
    """The name of a variable or attribute that holds one of the values, or a list with it; else the kind."""
    frame = sys._getframe(1)
    while frame:
        if runs_users(frame):
            for name, held in frame.f_locals.items():
                if any(held is value for value in values):
                    return name
        frame = frame.f_back
    holders = list(values)
    for _ in range(3):
        held, found = set(map(id, holders)), gc.get_referrers(*holders)
        for holder in found:
            ours = type(holder).__module__.startswith("capturable")
            names = {} if ours else holder if isinstance(holder, dict) else getattr(holder, "__dict__", {})
            for name, value in list(names.items()):
                if id(value) in held and isinstance(name, str):
                    return name
        holders = [holder for holder in found if isinstance(holder, list | tuple)][:50]
    return type(values[0]).__name__
