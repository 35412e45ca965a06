"""What the stand-in has launched since the CPU last waited, for tools and checks of exercises.

A launch is a Node: its operator, the bytes that it touches, its stream and its clock. On a GPU
there is no log, and every list is empty.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations

from cpu_graph.device import Device
from cpu_graph.graphs import Capture, CUDAGraph
from cpu_graph.nodes import Node
from cpu_graph.nodes import places as places


def on_stand_in() -> Device | None:
    """The stand-in's device inside of a block of cpu_graphs(), else None."""
    return CUDAGraph.stand_in


class Listener:
    """Is told what the stand-in does, once it is done. Its methods do nothing: override some."""

    def recorded(self, capture: Capture, node: Node) -> None:
        """A capture has got a node."""

    def launched(self, nodes: list[Node], graph: CUDAGraph | None) -> None:
        """A replay of a graph has run these nodes, or they are one operator outside of graphs."""

    def waited(self) -> None:
        """The CPU has waited for the GPU."""


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Tell a listener what the stand-in in force does in the block. On a GPU nobody is told."""
    listeners = device.listeners if (device := on_stand_in()) else []
    listeners.append(listener)
    try:
        yield
    finally:
        listeners.remove(listener)


@contextmanager
def listeners_off() -> Iterator[None]:
    """Tell no listener what the stand-in in force does in the block."""
    listeners = device.listeners if (device := on_stand_in()) else []
    before = [*listeners]
    listeners.clear()
    try:
        yield
    finally:
        listeners.extend(before)


def launch_log() -> list[Node]:
    """What has been launched since the CPU last waited for the GPU."""
    device = on_stand_in()
    return device.order.log if device else []


def operator_of(node: Node) -> str:
    """sum for aten::sum.dim_IntList"""
    return node.operator.name().split(".")[0].removeprefix("aten::")


def is_replay(node: Node) -> bool:
    """Whether a launch in the log is one of a graph's."""
    return isinstance(node.stream, tuple)


def ordered(one: Node, other: Node) -> bool:
    """Whether one of two launches waits for the other."""
    return one.before(other.clock) or other.before(one.clock)


def clobbers(one: Node, other: Node) -> bool:
    """Whether a launch writes bytes that another reads or writes."""
    written = [span for span, writes in one.spans.items() if writes]
    return any(_overlap(mine, theirs) for mine in written for theirs in other.spans)


def issue_number(node: Node) -> int:
    """When a launch was issued, as a number that grows."""
    return max(tick for stream, tick in node.clock.items() if not isinstance(stream, tuple))


def races() -> Iterator[tuple[Node, Node]]:
    """Pairs of launches outside of graphs that are unordered: one writes what the other touches."""
    launched = [node for node in launch_log() if not is_replay(node)]
    for pair in combinations(launched, 2):
        if pair[0].stream != pair[1].stream and not ordered(*pair):
            earlier, later = sorted(pair, key=issue_number)
            for writer, other in ((earlier, later), (later, earlier)):
                if clobbers(writer, other):
                    yield writer, other


def concurrent_replays() -> list[tuple[Node, list[Node]]]:
    """Each operator that may run at the same time as a replay, with the graph's operators that
    nothing orders before or after it.
    """
    log = launch_log()
    pairs = []
    for node in log:
        unordered = [at for at in log if is_replay(at) and not ordered(node, at)]
        if unordered and not is_replay(node):
            pairs.append((node, unordered))
    return pairs


def _overlap(these, those):
    block, start, end = these
    other, first, last = those
    return block is other and start < last and first < end
