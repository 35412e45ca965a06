"""The stand-in's device: where tensors lie, and one launch at a time."""

from collections import Counter
from contextlib import contextmanager
from copy import copy
from functools import partial
from threading import RLock, get_ident, local

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from cpu_graph.errors import NO_GPU_HAS, NotModelled, cuda_error, out_of_memory
from cpu_graph.hints import check_eager_use, on_race
from cpu_graph.lines import users_line
from cpu_graph.memory import LARGE, Memory, Place, rounded
from cpu_graph.nodes import Node, is_factory, is_overwrite, nan_node, rng_state, run_op, written_by
from cpu_graph.order import HOST, Order
from cpu_graph.placement import PlacementRequest
from cpu_graph.tables import gpu_strides_of
from cpu_graph.trees import mapped, tensors_in
from cpu_graph.warmups import note_eager


class ThreadState(local):
    """The current stream, in each thread."""

    stream = 0


class Device:
    """What there is one of: the memory, the order, the current stream, the capture under way."""

    def __init__(self):
        self.thread = get_ident()
        self.modes = ()  # the classes that see functions and operators
        self.closed = False  # the block has ended
        self.memory = Memory()
        self.launches = Counter()  # "graphs" replayed, and "operators" outside of them
        self.casts = False  # as a GPU's autocast does
        self.races = set()  # pairs of operators and lines that were reported
        self.captured_with = {}  # see values
        self.drawn = set()  # operators that drew since the random state was last set
        self.findings = []  # what was noticed, see hints
        self.adding = {}  # block of a gradient that a graph adds to -> see hints.Gradient
        self.gradients = WeakTensorKeyDictionary()  # leaf -> see hints.note_gradients
        self.captures = []  # those that ended well, as CaptureRecord
        self.listeners = []  # see log.Listener
        on_waited = partial(self.notify, "waited")
        self.order = Order(self.memory.finished, partial(on_race, self), on_waited)
        self.under_way = None  # the capture, in whichever thread
        self.thread_state = ThreadState()
        self.lock = RLock()  # one launch at a time
        self.asked = PlacementRequest()
        self.in_backward = False
        self.in_range = False  # whether torch's check of a quantile's range is left out

    @property
    def hints(self):
        """What was noticed, in sentences."""
        return [finding.sentence for finding in self.findings]

    @contextmanager
    def keep_out_of_report(self):
        """What a tool tries in the block, and undoes, is no part of the program's report."""
        before = self.captures, self.findings, self.races
        self.captures, self.findings, self.races = map(copy, before)
        try:
            yield
        finally:
            self.captures, self.findings, self.races = before

    @property
    def stream(self):
        """The number of the current stream."""
        return self.thread_state.stream

    @stream.setter
    def stream(self, number):
        self.thread_state.stream = number

    @property
    def capture(self):
        """The capture under way, if this thread has to mind it: another one has not, unless the
        mode is "global".
        """
        minds = self.is_owner_thread or (self.under_way and self.under_way.mode == "global")
        return self.under_way if minds else None

    @capture.setter
    def capture(self, capture):
        if not self.is_owner_thread:
            raise NotModelled("A capture in another thread than that of the block is not modelled.")
        self.under_way = capture

    @property
    def is_owner_thread(self):
        """Whether this is the thread that opened the block."""
        return get_ident() == self.thread

    def capturing(self, stream=None):
        """Whether a stream, or the current one, takes part in the capture under way."""
        capture = self.under_way
        return capture is not None and (self.stream if stream is None else stream) in capture.clocks

    def notify(self, event, *what):
        """Call a method of all listeners."""
        for listener in self.listeners:
            getattr(listener, event)(*what)

    def refuse(self, number):
        """Raise a CUDA error. A capture under way is lost by it."""
        if self.capture:
            self.capture.lost = True
        raise cuda_error(number)

    def memory_kind(self, tensor):
        """Where a tensor lies: "cuda", "pinned" or "cpu"."""
        block = self.memory.find(tensor)
        return block.kind if block else "cpu"

    def allocate(self, shape, stride, dtype, kind="cuda"):
        """A new tensor: from the capture's pool on a capturing stream, else from the common one."""
        if kind == "cpu":
            return torch.empty_strided(shape, stride, dtype=dtype)
        capture = self.capture if self.capturing() else None
        pool = capture.pool if capture else None
        size = rounded(shape, stride, dtype)
        if size >= NO_GPU_HAS:
            raise out_of_memory(size)
        block = self.memory.take_free_block((kind, pool, self.stream, size))
        if block is None:
            strict = self.capture and not capture and self.capture.mode != "relaxed"
            if strict and (kind == "cuda" or not self.is_owner_thread):
                self.refuse(900)  # the driver would have to give more
            stale = self.memory.stale_blocks(pool, capture, size) if kind == "cuda" else []
            self.overwrite(stale, capture)
            block = self.memory.make((kind, pool, self.stream, size))
            block.unknown_address = bool(stale)
            block.hosts = sum(older.home[3] > LARGE for older in stale)
            for older in stale:
                older.overlaps[block] = older.generation
        elif any(not newer.free for newer in block.overlaps):
            block.unknown_address = True  # part of it may be the newer block's
        block.tenant = capture
        tensor = self.memory.tensor(block, shape, stride, dtype)
        block.uncomputed = capture
        return tensor

    def overwrite(self, stale, capture):
        """Poison freed memory that a real allocator might have split or joined: now, or by a
        replay.
        """
        for block in stale:
            if capture is None:
                block.bytes.fill_(0xFF)
            elif block not in capture.poisoned:
                capture.poisoned.add(block)
                capture.add(nan_node(block))

    def node(self, operator, args, kwargs, outputs=None, draws=None):
        """What an operator does, by addresses. Ordinary CPU memory is read now and never again."""
        kept = [*written_by(operator, args, kwargs), *tensors_in(outputs)]
        given = [] if is_factory(operator) else tensors_in(args, kwargs)
        spans = self.spans(given, False) | self.spans(kept, True)
        node = Node(operator, *self.tensors_to_places((args, kwargs, outputs), kept), spans, draws)
        node.line = users_line()
        if not self.capturing():
            check_eager_use(self, node, is_overwrite(operator))
        else:
            written = {id(tensor) for tensor in kept}
            given = [t for t in tensors_in(args, kwargs) if id(t) not in written]
            self.capture.values.note(node, [t for t in given if not self.memory.find(t)])
        return node

    def spans(self, tensors, writes):
        """The bytes of tensors in the device's memory, and whether they are written."""
        return {span: writes for tensor in tensors if (span := self.memory.span(tensor))}

    def tensors_to_places(self, tree, kept):
        """Arguments or results by where they lie. Of ordinary CPU memory: the kept tensors, and
        copies of others.
        """
        kept = {id(tensor) for tensor in kept}

        def address(tensor):
            if block := self.memory.find(tensor):
                return Place(block, tensor)
            return tensor.data if id(tensor) in kept else tensor.detach().clone()

        return mapped(address, tree)

    def execute(self, operator, args, kwargs, kind, stream, generator=None):
        """Launch one operator on a stream, or by the host; new results are of a kind."""
        node = self.node(operator, args, kwargs, draws=generator and (generator, None, None))
        node.stream, node.clock = stream, self.order.tick(stream)
        node.state = generator and generator.raw_state()
        self.order.save_contents(node.spans)
        with rng_state(node.state) as ended:
            result = run_op(operator, args, kwargs)
        if generator:
            generator.set_raw_state(ended["state"])
        given = {id(tensor) for tensor in tensors_in(args, kwargs)}
        outputs = mapped(
            lambda t: t if id(t) in given else self.place_result(t, operator, kind), result
        )
        made = tensors_in(outputs)
        node.read = None if made else result
        node.outputs = self.tensors_to_places(outputs, made)
        node.spans |= self.spans(made, True)
        if self.capture and stream != HOST:
            self.capture.outside.append(node)
        self.order.rerun_after_race(self.order.log_launch(node))
        in_place = written_by(operator, args, kwargs)
        note_eager(self, node, {self.memory.find(tensor) for tensor in in_place})
        for block in (block for (block, *_), writes in node.spans.items() if writes):
            block.writer = stream
            block.overwritten = None
            block.uncomputed = node.uncomputed
        self.notify("launched", [node], None)
        return outputs if made else node.read  # which a race may have changed

    def place_result(self, tensor, operator, kind):
        moved = self.allocate(tensor.shape, gpu_strides_of(operator, tensor), tensor.dtype, kind)
        if kind != "cpu":
            self.order.save_contents({self.memory.span(moved): True})
        return moved.copy_(tensor)
