"""What a warm-up has left behind: weights, statistics and optimizer state that nobody restored.

A warm-up runs the operators of a step several times on the same inputs, and the graph then works on
from what they have left. Training steps before a capture are none: their inputs are new each time.
"""

import gc
from collections import Counter

import torch

from cpu_graph.hints import add_finding, note_zeroing_and_updates
from cpu_graph.nodes import is_overwrite


class EagerUseOfBlock:
    """What eager launches last did with a block: when they read it and wrote to it."""

    def __init__(self):
        self.read_at = self.written_at = 0
        self.bytes = 0  # that were written last
        self.rewritten = False  # after a read of the tensor that it holds
        self.generation = None  # of that tensor
        self.since = 0  # the first write of those in times
        self.times = Counter()  # how often each operator has written, since another one did


def note_eager(device, node, in_place):
    """Note when an eager launch reads and writes blocks, some of them in place."""
    now = device.launches["operators"]
    if device.adding:
        written = {block for (block, *_), writes in node.spans.items() if writes}
        note_zeroing_and_updates(device, written, written if is_overwrite(node.operator) else ())
    if node.draws:
        device.drawn.add(node.operator)
    for (block, start, end), writes in node.spans.items():
        use = block.use = block.use or EagerUseOfBlock()
        if use.generation != block.generation:
            use.generation = block.generation
            use.rewritten = False
            use.read_at = 0
        if writes:
            use.bytes = end - start
            use.rewritten |= use.read_at > 0
        if not writes:
            use.read_at = now
        elif block not in in_place or is_overwrite(node.operator):
            use.times.clear()
            use.written_at = now
        else:
            use.since = use.since if use.times else now
            use.times[node.operator] += 1
            use.written_at = now


def blocks_changed_by_warmup(capture):
    """At the end of a capture: the blocks that its operators have changed before, on its inputs."""
    inputs = [
        block
        for block in capture.reads
        if block not in capture.written
        and block.kind == "cuda"
        and block.use
        # a number that the first step makes, as a GradScaler's, is no input
        and (block.use.bytes > 8 or block.use.rewritten)
    ]

    def warmed(block):
        use, operators = block.use, capture.changed[block]
        repeated = use and any(use.times[operator] > 1 for operator in operators)
        uses = [each.use for each in inputs]
        return repeated and all(each.read_at >= use.since > each.written_at for each in uses)

    found = [block for block in capture.changed if block in capture.reads and warmed(block)]
    # a step that draws its batch reads weights and buffers alone
    return found if found and len(state_names(capture.device, inputs)) < len(inputs) else []


def warmed_draws(device, nodes):
    """At the end of a capture: what drew before it, if that was a warm-up of the graph's draws."""
    return device.drawn if any(n.draws and n.operator in device.drawn for n in nodes) else None


def report_warmup_changes(device, capture, record):
    """Before the first replay: tell what a warm-up has changed and nobody has restored."""
    if capture.warmed_draws is device.drawn:  # no random state was set since
        record.remarks.append(
            "its random numbers are not those of a run without the warm-up: "
            "the random state was not set after it"
        )
    blocks = [block for block in capture.warmed if block.use.times]
    names = sorted(set(state_names(device, blocks).values())) if blocks else []
    if names:
        more = f" and {len(names) - 4} more" if len(names) > 4 else ""
        add_finding(
            device,
            "warm-up",
            f"The warm-up before graph {capture.number} ran several times on the same inputs and "
            f"changed {', '.join(names[:4])}{more}, which nobody restored before the first replay: "
            "save them before the warm-up, and copy_ them back in place after the capture.",
        )


def state_names(device, blocks):
    """Block -> name, of those with a module's weights and buffers, or an optimizer's state."""
    names = {}
    for thing in gc.get_objects():
        kind = type(thing)  # isinstance would ask proxies for their class
        if issubclass(kind, torch.nn.Module):
            held = [*thing.named_parameters(recurse=False), *thing.named_buffers(recurse=False)]
            found = {f"{kind.__name__}.{name}": tensor for name, tensor in held}
        elif issubclass(kind, torch.optim.Optimizer):
            found = {
                f"{kind.__name__}'s {name}": value
                for state in thing.state.values()
                for name, value in state.items()
                if isinstance(value, torch.Tensor)
            }
        else:
            continue
        for name, tensor in found.items():
            block = device.memory.find(tensor)
            if block in blocks:
                names[block] = name
    return names
