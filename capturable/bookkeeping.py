"""Bookkeeping: which of the user's lines change which Python values?"""

import random
import sys

from capturable.operators import Line, runs_users
from capturable.reach import CONTAINERS


class Bookkeeping:
    """A context that notices at which of the user's lines the values at places change.

    places: capturable.reach.Place objects; the random states of Python and numpy are watched as well.
    changed(name, line) is called for each change. returned is the last line from which a function
    of the user's has returned.
    """

    def __init__(self, places, changed):
        self.places, self.changed = places, changed

    def __enter__(self):
        self.values, self.line, self.returned = values_at(self.places), None, None
        self.outer = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_):
        sys.settrace(self.outer)
        self._look()

    def _trace(self, frame, event, _):
        if not runs_users(frame):
            return None
        self._look()
        self.line = Line.of(frame)
        if event == "return":
            self.returned = self.line
            if runs_users(frame.f_back):  # the caller's line goes on
                self.line = Line.of(frame.f_back)
        return self._trace

    def _look(self):
        now = values_at(self.places)
        for name, value in now.items():
            if self.line and value != self.values.get(name, value):
                self.changed(name, self.line)
        self.values = now


def values_at(places):
    """Numbers and strings at the places, the lengths of containers, and the CPU's random states."""
    values = {place.label: _value(place) for place in places if place.users}
    values["Python's random state"] = hash(random.getstate())
    if numpy := sys.modules.get("numpy"):
        _, keys, position, *_ = numpy.random.get_state()
        values["numpy's random state"] = keys[0], position
    return values


def _value(place):
    thing = place.get()
    if isinstance(thing, CONTAINERS):
        return len(thing)
    return repr(thing) if isinstance(thing, int | float | str) else None  # repr, for nan is not nan
