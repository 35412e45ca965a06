"""Which of the user's lines change which Python values, and which tensor a name stands for?"""

import itertools
import random
import sys
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch

from capturable.operators import storage_address
from capturable.restore.reachable import CONTAINERS, MISSING, Place, is_a
from capturable.user_lines import Line, is_user_frame


class PythonStateWatch:
    """A context that notices at which of the user's lines the values at places change.

    changed(name, line) is called for each change, and moved(name, address, line) where a name
    stands for a tensor at another address. returned is the last line from which a function of the
    user's has returned.
    """

    def __init__(
        self,
        places: list,
        changed: Callable[[str, Line], None],
        moved: Callable[[str, int, Line], None],
    ) -> None:
        self.places = places
        self.ran: set[Line] = set()  # the user's lines
        self.changed, self.moved = changed, moved

    def __enter__(self):
        self.values = values_at(self.places)
        self.line = None
        self.returned = None
        self.outer = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_):
        sys.settrace(self.outer)
        self._report_changes()

    def _trace(self, frame, event, _):
        if not is_user_frame(frame):
            return None
        self._report_changes()
        self.line = Line.of(frame)
        self.ran.add(self.line)
        if event == "return":
            self.returned = self.line
            if is_user_frame(frame.f_back):  # the caller's line goes on
                self.line = Line.of(frame.f_back)
        return self._trace

    def _report_changes(self):
        now = values_at(self.places)
        for place, before, after in zip(self.places, self.values, now, strict=True):
            if not self.line or before == after:
                continue
            if isinstance(after, _TensorAddress):
                self.moved(place.label, after.address, self.line)
            elif not isinstance(before, _TensorAddress):
                self.changed(place.label, self.line)
        self.values = now


def places_to_watch(places: Iterable[Place]) -> list[Place | SimpleNamespace]:
    """Those of the user's places that hold numbers, strings or containers, all that hold a tensor,
    and the CPU's random states."""
    kinds = (int, float, str, type(None), itertools.count, *CONTAINERS)
    users: list[Place | SimpleNamespace] = []
    for place in places:
        value = place.get()
        if is_a(value, torch.Tensor) or (place.users and (value is MISSING or is_a(value, kinds))):
            users.append(place)
    users.append(
        SimpleNamespace(label="Python's random state", get=lambda: hash(random.getstate()))
    )
    if numpy := sys.modules.get("numpy"):
        users.append(SimpleNamespace(label="numpy's random state", get=lambda: _numpy_state(numpy)))
    return users


class _TensorAddress(NamedTuple):
    """Stands for a tensor: where it is."""

    address: int


def values_at(places: Iterable[Place | SimpleNamespace]) -> list[Any]:
    """Numbers and strings at the places, the lengths of containers, the addresses of tensors."""
    return [_value(place.get()) for place in places]


def _value(thing):
    if is_a(thing, torch.Tensor):
        return _TensorAddress(storage_address(thing))
    if is_a(thing, CONTAINERS):
        return len(thing)
    if is_a(thing, (float, itertools.count)):
        return repr(thing)  # nan is not nan
    return thing if is_a(thing, (int, str)) else None


def _numpy_state(numpy):
    _, keys, position, *_ = numpy.random.get_state()
    return f"{keys[0]}, {position}"
