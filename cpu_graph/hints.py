"""What the stand-in can say of a program that runs without an error, as a GPU would run it.

Each is a Finding in ``device.findings``; ``device.hints`` are their sentences.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from cpu_graph.errors import NotModelled, torch_error
from cpu_graph.lines import shown
from cpu_graph.memory import Place
from cpu_graph.nodes import base_name, is_factory, is_overwrite, name_of, places
from cpu_graph.order import HOST

NOT_ACCUMULATED = (
    "several replays before a step of the optimizer: each writes the gradients anew. To accumulate "
    "them, give every parameter a .grad before the capture, and zero it in place"
)


class Finding(NamedTuple):
    """What was noticed: its kind in a word or two, and a sentence with the repair."""

    kind: str
    sentence: str


@dataclass
class CaptureRecord:
    """A capture that ended well: its number, the line that began it, the launches of a replay, the
    replays so far, and remarks that are no faults.
    """

    number: int
    where: str
    launches: int
    replays: int = 0
    remarks: list[str] = field(default_factory=list)


def add_finding(device, kind, sentence):
    """Say something once; returns the Finding."""
    finding = Finding(kind, sentence)
    if finding not in device.findings:
        device.findings.append(finding)
    return finding


def on_race(device, earlier, later):
    """Two launches touch the same bytes, one writes there, and nothing orders them."""
    pair = earlier, later
    key = tuple((node.operator, node.line) for node in pair)
    if key in device.races or any(node.line is None for node in pair):  # None: the stand-in's own
        return
    device.races.add(key)
    inside = earlier.graph is not None and earlier.stream[0] == replay_of_launch(later)
    block = next(raced_blocks(earlier, later))
    touched = [places((node.args, node.kwargs, node.outputs)) for node in pair]
    one, other = (next(p for p in of_node if p.block is block) for of_node in touched)
    what = f"the same tensor of shape {tuple(other.where[1])}"
    if one.generation != other.generation:
        shapes = f"{tuple(one.where[1])} and of a later one of shape {tuple(other.where[1])}"
        what = f"the same memory, that of a tensor of shape {shapes}"
    wait = "let one stream wait for the other (wait_stream or an event)"
    if HOST in (earlier.stream, later.stream):
        wait = "let the CPU wait (synchronize of the stream or of an event)"
    add_finding(
        device,
        "race",
        f"{launch_text(earlier, inside)} and {launch_text(later, inside)} touch {what}, one of "
        f"them writes it, and nothing orders the two: {wait}.",
    )


def raced_blocks(earlier, later):
    """The blocks in which two launches touch the same bytes, one of them writing."""
    for (block, start, end), writes in earlier.spans.items():
        for (other, first, last), wrote in later.spans.items():
            if block is other and (writes or wrote) and start < last and first < end:
                yield block


def replay_of_launch(node):
    """The number of the replay that a launch is part of, or None."""
    return node.stream[0] if isinstance(node.stream, tuple) else None


def node_text(node):
    """A launch in words."""
    return f"{name_of(node.operator)} at {shown(node.line)}"


def launch_text(node, inside=False):
    """A launch in words, with its stream; inside: as one of two in the same graph."""
    name = node_text(node)
    if node.graph is None:
        return f"{name} (by the CPU)" if node.stream == HOST else f"{name} (stream {node.stream})"
    where = f"captured on stream {node.stream[1]}" if inside else f"on stream {node.replayed_on}"
    return f"{name} (graph {node.graph}, {where})"


def report_outside(device, capture):
    """At the end of a capture: launches on other streams whose memory the graph shares."""
    for node in capture.outside:
        shared = [
            block
            for (block, *_), writes in node.spans.items()
            if block in capture.written or (writes and block in capture.reads)
        ]
        if shared:
            add_finding(
                device,
                "outside of the graph",
                f"{launch_text(node)} ran during the capture of graph {capture.number}, which "
                "uses the same tensor, and is not in it: no replay repeats it. Launch it on the "
                "stream of the capture, torch.cuda.current_stream().",
            )


def add_capture_remarks(device, record, capture, nodes):
    """At the end of a capture: what is no fault, and good to know."""
    remarks = []
    for node in nodes:
        if any(block.kind == "pinned" and not writes for (block, *_), writes in node.spans.items()):
            remarks.append(f"each replay reads pinned memory again: {node_text(node)}")
    if capture.outside:
        remarks.append(
            f"{len(capture.outside)} operators ran outside of it during the capture, the first: "
            f"{launch_text(capture.outside[0])}"
        )
    record.remarks += dict.fromkeys(remarks)


def report_nested_replay(device, record):
    """A replay in a capture, which is refused."""
    add_finding(
        device,
        "replay in a capture",
        f"Graph {record.number}, captured at {record.where}, is replayed in the capture of graph "
        f"{device.capture.number}. The forward of a module that make_graphed_callables has graphed "
        "is such a replay: graph each module once, or keep its own forward for later captures.",
    )


def freed_inputs(capture):
    """The tensors from outside of its pool that a graph reads and that are gone, and the inputs."""
    for block, read in capture.reads.items():
        if block.home[1] != capture.pool and (block.generation != read.generation or block.free):
            yield block, read


def is_kept_by_pool(block, read):
    """Whether the memory of a tensor that is gone stays as it is: its graph lives, and only a later
    capture in that pool may get it."""
    producer = block.tenant and block.tenant.handle
    return block.generation == read.generation and producer is not None and bool(producer())


def check_inputs(device, capture):
    """At a replay: say which tensors are gone or not computed, and which results of its pool are
    another graph's.
    """
    for block, read in freed_inputs(capture):
        if read.reported or is_kept_by_pool(block, read):
            continue
        read.reported = True
        owner = (
            "any later tensor may get that memory" if block.free else "another tensor has it now"
        )
        add_finding(
            device,
            "memory gone",
            f"Graph {capture.number} reads memory whose tensor is gone ({read.where}): {owner}. "
            "Keep every tensor that a graph reads as long as the graph.",
        )
    for block, read in capture.reads.items():
        if block.uncomputed:
            report_uncomputed(device, f"Graph {capture.number} ({read.where})", block)
        if read.producer and block.last_graph not in (None, read.producer, capture.number):
            add_finding(
                device,
                "result overwritten",
                f"Graph {capture.number} reads a result of graph {read.producer} ({read.where}) "
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
        dead = list(freed_inputs(self.capture))
        if dead:
            readers = "".join(f"  read by {read.operator}\n" for _, read in dead)
            raise torch_error(f"CUDA graph replay detected {len(dead)} dead tensor(s).\n{readers}")


def scratch_buffers(capture, nodes):
    """At the end of a capture: the tensors that torch.empty and its like have made and that are
    there still, if the graph does not read what it finds in them: (block, generation) -> the node
    that has made it.
    """
    reads_first, made = {}, {}
    for node in nodes:
        given = {place.block for place in places((node.args, node.kwargs))}
        made |= {place.block: node for place in places(node.outputs) if place.block not in given}
        for block, *_ in node.spans:
            reads_first.setdefault(block, block in given and not is_overwrite(node.operator))
    for block, (generation, node) in capture.empty.items():
        if generation == block.generation:
            made[block] = node
    return {
        (block, block.generation): node
        for block, node in made.items()
        if is_factory(node.operator)
        and not (block.free or node.draws or reads_first.get(block, True))
    }


def note_lost_eager_writes(capture):
    """After a replay: note what eager launches wrote to its buffers, and nobody has read."""
    for block in capture.reads:
        block.unread = None
    for (block, generation), maker in capture.buffers.items():
        if block.unread and block.generation == generation:
            block.lost, block.unread = (block.unread, capture.number, maker), None


def check_eager_use(device, node, anew):
    """Before an eager launch: tell what is wrong with the memory that it reads."""
    changed = {block for (block, *_), writes in node.spans.items() if writes}
    read = {block for block, *_ in node.spans} - (changed if anew else set())
    check_overwritten(device, read)
    if device.in_backward and is_self_addition(node):
        add_finding(
            device,
            "gradient overwritten",
            f"A gradient in the memory of graph {next(iter(read)).tenant.number} was overwritten "
            f"by its next replay, before the backward pass at {shown(node.line)} adds to it. Give "
            "every parameter a gradient of its own first, and keep it with "
            "zero_grad(set_to_none=False).",
        )
    for block in read:
        if block.uncomputed in (None, device.capture):
            pass
        elif only_writes_gpu(device, node, anew or not changed):  # what may be written over later
            node.uncomputed = block.uncomputed
        else:
            report_uncomputed(device, node_text(node), block)
        if block.lost:
            earlier, number, maker = block.lost
            add_finding(
                device,
                "made in the capture",
                f"{node_text(maker)} made a tensor in the capture of graph {number}, "
                f"{node_text(earlier)} wrote to it, and a replay wrote over that before "
                f"{node_text(node)} reads it: a tensor that other code keeps and uses too, such as "
                "a cached workspace, is to be made before the capture.",
            )
        block.lost = block.unread = None
    for block in changed:
        block.lost, block.unread = None, node


def only_writes_gpu(device, node, anew):
    """Whether a launch only makes or fills tensors on the GPU, which nobody need ever use."""
    name = base_name(node.operator)
    there = isinstance(node.args[0], Place) if name == "copy_" else device.asked.want != "cpu"
    returns = node.operator._schema.returns
    return there and anew and all(isinstance(one.type, torch.TensorType) for one in returns)


def report_uncomputed(device, reader, block):
    """A launch or a graph uses what a capture has made and no replay has written."""
    add_finding(
        device,
        "not computed yet",
        f"{reader} reads what was made in the capture of graph {block.uncomputed.number}, or "
        "computed from it, and no replay has written it: a capture computes nothing. Replay the "
        "graph first; what other code uses too, make before the capture.",
    )


def is_self_addition(node):
    """Whether a launch adds the result of a graph to the very same memory."""
    first, *others = node.args
    alike = others and isinstance(first, Place) and isinstance(others[0], Place)
    return (
        base_name(node.operator) in ("add", "add_")
        and alike
        and (first.block, first.where) == (others[0].block, others[0].where)
        and first.block.tenant is not None
    )


def check_overwritten(device, blocks):
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
            add_finding(
                device,
                "result overwritten",
                f"A tensor that is read now, {owner}, was overwritten by a replay of graph "
                f"{block.overwritten}, in whose memory it may lie: read or clone it before "
                "that replay, or keep what that graph allocated.",
            )


@dataclass
class Gradient:
    """A gradient that a graph adds to, and what has happened since something has set it to zero."""

    number: int  # of the tensor in its block
    parameter: object  # the block of what it is the gradient of
    added: bool = False  # by a replay
    used: bool = False  # and the parameter was updated then


def note_accumulation(device, leaves):
    """In a backward pass under capture: note gradients from before it, not set to zero there."""
    for leaf in leaves:
        block = None if leaf.grad is None else device.memory.find(leaf.grad)
        if block is not None and block not in device.capture.written:
            device.capture.adds.add(block)
            device.adding[block] = Gradient(block.generation, device.memory.find(leaf))


def check_accumulation(device, capture):
    """Before a replay: tell if it adds to the gradients of an earlier step."""
    here = {block: device.adding[block] for block in capture.adds}
    kept = [one for b, one in here.items() if not b.free and b.generation == one.number]
    used = [one for one in kept if one.used]
    if used:
        add_finding(
            device,
            "gradients added",
            f"Graph {capture.number} adds to {len(used)} gradients that were there before the "
            "capture, and after an update of their parameters nothing sets them to zero: every "
            "replay adds to what the one before has left. Set them to None before the capture, or "
            "call zero_grad in it.",
        )
    for one in here.values():
        one.added = True


def note_zeroing_and_updates(device, written, anew):
    """After a launch or a replay: gradients that are zero again, or whose parameters it updates."""
    for block, one in device.adding.items():
        if block in anew:
            one.added = one.used = False
        elif one.added and one.parameter in written:
            one.used = True


def note_gradients(device, capture, record):
    """At the end of a capture: the leaves whose gradients it writes and does not itself use for an
    update, with its record, how often it had been replayed when an optimizer last looked, and
    whether it adds to what is there.
    """
    for leaf in capture.leaves:
        if leaf.grad is not None and device.memory.find(leaf) not in capture.written:
            adds = device.memory.find(leaf.grad) in capture.reads
            device.gradients[leaf] = record, 0, adds
    capture.leaves = []  # which the graph does not keep


def check_lost_gradients(device, optimizer, *_):
    """At an eager step of an optimizer: tell the gradients of replays that .grad has not, and
    remark those that replays do not add up.
    """
    lost = []
    for parameter in [each for group in optimizer.param_groups for each in group["params"]]:
        record, before, adds = device.gradients.get(parameter, (None, 0, False))
        if record and not device.capturing():
            device.gradients[parameter] = record, record.replays, adds
            if parameter.grad is None and record.replays > before:
                lost.append(record.number)
            elif record.replays > before + 1 and not adds and NOT_ACCUMULATED not in record.remarks:
                record.remarks.append(NOT_ACCUMULATED)
    if lost:
        add_finding(
            device,
            "gradients lost",
            f"{type(optimizer).__name__} leaves out {len(lost)} parameters whose gradients graph "
            f"{lost[0]} computes: .grad is None, as after zero_grad(), and a replay sets no "
            "attribute. Keep the gradients of the capture: zero_grad(set_to_none=False).",
        )
