"""What the stand-in can say of a program that runs without an error, as a GPU would run it.

Each is a Finding in ``device.findings``; ``device.hints`` are their sentences.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from cpu_graph.errors import NotModelled, refusal
from cpu_graph.trees import tensors_in


class Finding(NamedTuple):
    """What was noticed: its kind in a word or two, and a sentence with the repair."""

    kind: str
    sentence: str


@dataclass
class Captured:
    """A capture that ended well: its number, the line that began it, the launches of a replay, the
    replays so far, and remarks that are no faults.
    """

    number: int
    where: str
    launches: int
    replays: int = 0
    remarks: list[str] = field(default_factory=list)


def tell(device, kind, sentence):
    """Say something once."""
    finding = Finding(kind, sentence)
    if finding not in device.findings:
        device.findings.append(finding)


def lost(capture):
    """The tensors from outside of its pool that a graph reads and that are gone: (block, Read)."""
    for block, read in capture.reads.items():
        if block.home[1] != capture.pool and (block.generation != read.generation or block.free):
            yield block, read


def lost_inputs(device, capture):
    """At a replay: say which tensors are gone, and which results of its pool are another
    graph's.
    """
    for block, read in lost(capture):
        owner = (
            "any later tensor may get that memory" if block.free else "another tensor has it now"
        )
        tell(
            device,
            "memory gone",
            f"Graph {capture.number} reads memory whose tensor is gone ({read.operator}): {owner}. "
            "Keep every tensor that a graph reads as long as the graph.",
        )
    for block, read in capture.reads.items():
        if read.producer and block.last_graph not in (None, read.producer, capture.number):
            tell(
                device,
                "result overwritten",
                f"Graph {capture.number} reads a result of graph {read.producer} ({read.operator}) "
                f"that was overwritten by graph {block.last_graph}: keep the result's tensor, or "
                f"replay graph {read.producer} in between.",
            )


class InputLiveness:
    """What torch 2.15 does for check_input_liveness=True:
    it refuses a replay whose inputs are gone.
    """

    stand_in = None  # the device of the stand-in in force
    capture = None

    def start(self):
        self.capture = self.stand_in.capture

    def stop(self):
        pass

    def check_alive(self, pools):
        dead = list(lost(self.capture))
        if dead:
            readers = "".join(f"  read by {read.operator}\n" for _, read in dead)
            raise refusal(f"CUDA graph replay detected {len(dead)} dead tensor(s).\n{readers}")


def overwritten(device, blocks):
    """At a read: results that an older graph of the pool wrote over."""
    for block in blocks:
        if block.overwritten is not None and block.hosts > 1:
            raise NotModelled(
                f"A tensor that is read now may lie in any of {block.hosts} freed blocks of the "
                f"pool, and graph {block.overwritten} writes to them: which one a GPU would have "
                "taken is not modelled. Keep what that graph allocated."
            )
        if block.overwritten is not None:
            owner = f"a result of graph {block.tenant.number}" if block.tenant else "a tensor"
            tell(
                device,
                "result overwritten",
                f"A tensor that is read now, {owner}, was overwritten by a replay of graph "
                f"{block.overwritten}, in whose memory it may lie: read or clone it before "
                "that replay, or keep what that graph allocated.",
            )


def not_zeroed(device, capture, gradients):
    """In a backward pass under capture: gradients from before it that nothing sets to zero."""
    blocks = [device.memory.find(gradient) for gradient in tensors_in(list(gradients))]
    count = sum(block is not None and block not in capture.written for block in blocks)
    if count:
        tell(
            device,
            "gradients added",
            f"The backward pass in graph {capture.number} adds to {count} gradients that were "
            "there before the capture, and nothing in the graph sets them to zero: every replay "
            "adds to what the one before has left. Set them to None before the capture, or call "
            "zero_grad in it.",
        )
