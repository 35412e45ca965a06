"""Values that a graph has from its capture: CPU tensors, attributes, globals, optimizer settings.

A replay uses them as they were. Those that have changed since are told at the next replay.
"""

import sys
import types
import weakref
from collections import Counter
from dis import get_instructions, hasname
from functools import cache
from inspect import getattr_static

import torch

from cpu_graph.hints import add_finding
from cpu_graph.lines import of_the_program, shown, users_frame
from cpu_graph.nodes import name_of

MISSING = object()


def is_plain(value):
    """Whether a value is a number, a text, None, or a tuple of those."""
    if isinstance(value, tuple):
        return all(map(is_plain, value))
    return value is None or type(value) in (bool, int, float, str)


def frames_from(frame):
    """A frame, and those that called it."""
    while frame is not None:
        yield frame
        frame = frame.f_back


@cache
def read_and_set(code):
    """The attributes and globals that code reads -> whether it sets them as well."""
    named = [each for each in get_instructions(code) if each.opcode in hasname]
    stores = Counter(each.argval for each in named if each.opname.startswith("STORE_"))
    uses = Counter(each.argval for each in named)
    # a counter is read once for each time that it is set
    return {name: name in stores for name in uses if uses[name] > 2 * stores[name]}


class Values:
    """What one capture has read and no replay reads again."""

    def __init__(self):
        # of the function that captures: what is called below it is in the graph
        self.depth = len([*frames_from(users_frame())])
        self.tensors = []  # (weak reference, value, node)
        self.plain = {}  # (id of the owner, name) -> (owner, value, line)
        self.seen = set()

    def note(self, node, tensors):
        """Keep the CPU tensors that a node takes, and the plain values that its callers name."""
        for tensor in tensors:
            self.tensors.append((weakref.ref(tensor), tensor.detach().clone(), node))
        frames = [*frames_from(sys._getframe(1))]
        for frame in frames[: len(frames) - self.depth]:
            if of_the_program(frame.f_code):
                self._note_names(frame, node.line)
            elif frame.f_code.co_name == "step" and "/torch/optim/" in frame.f_code.co_filename:
                self._note_optimizer_groups(frame.f_locals.get("self"), node.line)

    def _note_names(self, frame, line):
        """The attributes and globals that a frame's code names."""
        code, variables = frame.f_code, frame.f_locals
        this = variables.get("self")
        if (code, id(this)) in self.seen:
            return
        self.seen.add((code, id(this)))
        names = read_and_set(code)

        def is_setting(name, value):  # a whole number that the step sets is a counter
            return is_plain(value) and (not names[name] or type(value) is float)

        named = {name: frame.f_globals[name] for name in names if name in frame.f_globals}
        module = frame.f_globals.get("__name__")
        for name, value in named.items():
            if is_setting(name, value):
                self.plain[module, name] = module, value, line
        parts = vars(this) if hasattr(this, "__dict__") else {}
        parts = [parts[name] for name in names if name in parts]
        for owner in (*variables.values(), *named.values(), *parts):
            if has_attributes(owner):
                for name in names:
                    if is_setting(name, value := getattr_static(owner, name, MISSING)):
                        self.plain[id(owner), name] = weakref.ref(owner), value, line

    def _note_optimizer_groups(self, optimizer, line):
        """The numbers in an optimizer's groups."""
        if not isinstance(optimizer, torch.optim.Optimizer) or id(optimizer) in self.seen:
            return
        self.seen.add(id(optimizer))
        for number, group in enumerate(optimizer.param_groups):
            for name, value in group.items():
                if is_plain(value):
                    key = id(optimizer), (number, name)
                    self.plain[key] = weakref.ref(optimizer), value, line

    def update_at_capture_end(self, device):
        """The capture has ended: a value that it has changed itself is kept as it is now."""
        for key, (owner, _, line) in list(self.plain.items()):
            now = current_value(owner, key[1])
            if is_plain(now):
                self.plain[key] = owner, now, line
                device.captured_with.setdefault(key, []).append(now)
            else:
                del self.plain[key]

    def report_changed(self, device, number):
        """Tell the values that are others now, and that no other graph was captured with."""
        same = []
        for reference, value, node in self.tensors:
            tensor = reference()
            if tensor is None or torch.equal(tensor, value):
                same.append((reference, value, node))
            else:
                what = f"A CPU tensor that {name_of(node.operator)} takes"
                self._report(device, number, what, value.tolist(), tensor.tolist(), node.line)
        self.tensors = same
        for key, (owner, value, line) in list(self.plain.items()):
            now = current_value(owner, key[1])
            if is_plain(now) and now not in device.captured_with[key]:
                self._report(device, number, name_of_value(owner, key[1]), value, now, line)
                del self.plain[key]

    def _report(self, device, number, what, then, now, line):
        add_finding(
            device,
            "value of the capture",
            f"{what} was {then!r} in the capture of graph {number} ({shown(line)}) and is {now!r} "
            "at a replay, which keeps the old value: keep it in a GPU tensor and write that in "
            "place, or capture a graph for each value.",
        )


def has_attributes(owner):
    """Whether a thing is an object of the program's, which can be asked later."""
    others = types.ModuleType, types.FunctionType, type, torch.Tensor
    can_be_asked = hasattr(owner, "__dict__") and hasattr(owner, "__weakref__")
    return can_be_asked and not isinstance(owner, others)


def current_value(owner, name):
    """What an attribute, a global or a setting is now; MISSING if its owner is gone."""
    if isinstance(owner, str):
        return getattr(sys.modules.get(owner), name, MISSING)
    if (thing := owner()) is None:
        return MISSING
    if isinstance(name, tuple):
        number, name = name
        return thing.param_groups[number].get(name, MISSING)
    return getattr_static(thing, name, MISSING)


def name_of_value(owner, name):
    """A value in words."""
    if isinstance(owner, str):
        return f"The global {name}"
    if isinstance(name, tuple):
        return f"{name[1]} of {type(owner()).__name__}"
    return f"{type(owner()).__name__}.{name}"
