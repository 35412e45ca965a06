"""What a program has captured, launched, replayed and read, step by step: what picture draws."""

import ast
import linecache
import math
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache

from cpu_graph.graphs import all_nodes
from cpu_graph.hints import freed_inputs
from cpu_graph.lines import users_line
from cpu_graph.log import Listener, listening, operator_of
from cpu_graph.nodes import POISON, is_overwrite, modes_off, places

SHOWN = 3  # numbers of a tensor
WAIT = "synchronize"
NOBODY = "\N{MIDDLE DOT}"  # in the place of a number that nobody has written


@dataclass
class Step:
    """A replay of the graph of that number, an operator outside of graphs, or a wait: the blocks
    that it reads and writes, with the number of the tensor there; their values after it; what goes
    wrong.
    """

    operator: str
    graph: int | None = None
    line: tuple | None = None
    reads: dict = field(default_factory=dict)
    writes: dict = field(default_factory=dict)
    values: dict = field(default_factory=dict)
    faults: dict = field(default_factory=dict)
    draws: bool = False
    waits: bool = False  # the CPU waits for it

    @property
    def fetches(self):
        """Whether it is a read by the CPU."""
        return self.graph is None and bool(self.reads) and not self.writes

    def add_launch(self, node):
        """Add what one of its launches does."""
        self.draws |= bool(node.draws)
        written = {block for (block, *_), writes in node.spans.items() if writes}
        for place in places((node.args, node.kwargs)):
            read = place.block not in written or not (is_overwrite(node.operator) or node.draws)
            if read and place.block not in self.writes:  # not what this very step has made
                self.reads[place.block] = place.block.generation
        self.writes |= {block: block.generation for block in written}
        self.values |= {place.block: value_text(place) for place in places(vars(node).copy())}


class History(Listener):
    """The captures and steps of a program on the stand-in, and the names of its tensors."""

    def __init__(self, device):
        self.device = device
        self.captures = {}  # by their numbers; those that failed, too
        self.steps = []
        self.names = {}  # of the tensor of a number in a block
        self.begun = 0  # steps before the first capture
        self.first = {}  # block -> the number of the tensor that a graph took with it
        self.made = {}  # block -> the operator that first writes there

    def name(self, tensor, name):
        """Call a tensor as the program calls it."""
        if block := self.device.memory.find(tensor):
            self.names.setdefault((block, block.generation), name)

    def name_of(self, block):
        """The names of the tensor that a graph took with a block, and of later ones there."""
        first = self.first.get(block, 0)
        known = [name for (one, n), name in self.names.items() if one is block and n >= first]
        return ", ".join(dict.fromkeys(known))

    def block_name(self, block):
        """The names of a block, or the operator that makes it."""
        return self.name_of(block) or self.made.get(block, "")

    def name_target(self, node):
        """Call what a launch writes as its line does: y in y = 10 * x."""
        name = assigned_name(*node.line) if node.line else ""
        for (block, *_), writes in node.spans.items():
            if writes:
                self.made.setdefault(block, f"{operator_of(node)}()")
            if name and writes:
                for one, known in list(self.names.items()):
                    if known == name and one[0].tenant is block.tenant is not None:
                        del self.names[one]  # an intermediate result of the same line
                self.names.setdefault((block, block.generation), name)

    def label(self, step):
        """What a step is called; graphs are counted from 1."""
        if step.graph is not None:
            number = list(self.captures).index(step.graph) + 1
            return f"replay of graph {number}" if len(self.captures) > 1 else "replay"
        return "read by the CPU" if step.fetches else step.operator

    def recorded(self, capture, node):
        if capture.number not in self.captures:
            while self.steps and self.steps[-1].operator == WAIT:
                self.steps.pop()  # torch.cuda.graph waits before it begins
            if not self.captures:
                self.begun = len(self.steps)
                for step in self.steps:
                    step.waits = False  # for inputs: no matter
            self.captures[capture.number] = capture
        for block, *_ in node.spans:
            self.first.setdefault(block, block.generation)
        self.name_target(node)

    def launched(self, nodes, graph):
        nodes = [node for node in nodes if node.operator is not POISON]
        if not nodes:
            return
        step = Step(operator_of(nodes[0]), graph and graph.capture.number, nodes[0].line)
        for node in nodes:
            step.add_launch(node)
            if not graph:
                self.name_target(node)
        gone = [block for block, _ in freed_inputs(graph.capture)] if graph else []
        step.faults = dict.fromkeys(gone, "reads memory that was freed")
        self.steps.append(step)

    def waited(self):
        last = self.steps[-1] if self.steps else Step(WAIT)
        if last.graph is None and last.line == users_line():
            last.waits = True  # as item does
        elif last.operator != WAIT:
            self.steps.append(Step(WAIT, waits=True))

    def add_fault_where(self, where, what):
        """Say what goes wrong at the steps after the first capture where where(step) is true."""
        for step in self.steps[self.begun :]:
            if where(step):
                step.faults.setdefault(next(iter({**step.writes, **step.reads}), None), what)

    def find_faults(self):
        """Note at each step what goes wrong between it and the others."""
        nodes = [node for capture in self.captures.values() for node in all_nodes(capture.nodes)]
        results = {block for node in nodes for (block, *_), writes in node.spans.items() if writes}
        inputs = {block for capture in self.captures.values() for block in capture.reads}
        written = {}  # block -> the number of the step that wrote there last
        replayed = {}  # graph -> the number of its last replay
        unread = set()  # results that nobody has read since they were written
        overwrote = {}  # result -> the replays that wrote over one that nobody has read
        for at, step in enumerate(self.steps):
            if step.graph is None:
                for block in step.reads.keys() & results:
                    if block not in written:
                        step.faults[block] = "no replay has written it"
                    for replay in overwrote.get(block, ()):
                        replay.faults[block] = "overwrites what nobody has read"
                        step.faults[block] = "reads what was overwritten"
                unread -= step.reads.keys() | step.writes.keys()
            else:
                self._find_input_faults(step, written, replayed.get(step.graph))
                for block in step.writes.keys() - inputs:
                    if block in unread:
                        overwrote.setdefault(block, []).append(step)
                    else:
                        overwrote.pop(block, None)
                unread |= step.writes.keys() - inputs
                replayed[step.graph] = at
            written |= dict.fromkeys(step.writes, at)

    def _find_input_faults(self, step, written, last):
        """What goes wrong with the inputs of a replay; last: the number of the one before."""
        reads = [block for block in self.captures[step.graph].reads if block in step.reads]
        for block in reads:
            if block not in written:
                step.faults.setdefault(block, "reads what nobody has written")
            elif last is None and block in step.writes and written[block] < self.begun:
                warm_up = self.steps[written[block]]
                if block in warm_up.reads and block in warm_up.writes:
                    warm_up.faults[block] = "changes what the graph goes on from"
        new = step.draws or any(written.get(block, -1) >= (last or 0) for block in reads)
        if last is not None and reads and not new and not step.faults:
            drawn = [block for block in reads if self.steps[written[block]].draws]
            step.faults[(drawn or reads)[0]] = "reads the same input again"


def value_text(place):
    """The first numbers at a place, as they are read."""
    with modes_off():
        return shown_numbers(place.view())


def shown_numbers(tensor):
    """The first numbers of a tensor on the CPU."""
    first = tensor.flatten()[: SHOWN + 1].tolist()
    more = "…" if len(first) > SHOWN else ""
    return " ".join(NOBODY if math.isnan(one) else f"{one:.4g}" for one in first[:SHOWN]) + more


@lru_cache(64)
def assigned_name(file, line):
    """The name of the tensor that a line of a program writes to, "" if it names none."""
    with suppress(SyntaxError):
        for node in ast.walk(ast.parse("".join(linecache.getlines(file)))):
            if getattr(node, "lineno", line) <= line <= getattr(node, "end_lineno", 0):
                match node:
                    case ast.Assign([ast.Name() | ast.Attribute() as one]):
                        return ast.unparse(one)
                    case ast.Assign([ast.Subscript(one)]) | ast.AugAssign(one):
                        return ast.unparse(one)
                    case ast.Expr(ast.Call(ast.Attribute(one, method))) if method[-1] == "_":
                        return ast.unparse(one)
    return ""


@contextmanager
def watch(device):
    """Note what the program does in the block, on this stand-in."""
    history = History(device)
    try:
        with listening(history):
            yield history
    finally:
        history.find_faults()
