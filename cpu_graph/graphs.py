"""A CUDA graph on the stand-in: a capture that runs nothing, and its replay."""

import warnings
import weakref
from itertools import count
from types import CellType, FunctionType

import torch

from cpu_graph import errors, hints, pools
from cpu_graph.errors import (
    NotModelled,
    attr_error,
    cuda_error,
    is_refusal,
    not_modelled_stub,
    pickle_error,
    torch_error,
)
from cpu_graph.lines import shown, users_line
from cpu_graph.memory import Place
from cpu_graph.nodes import POISON, is_overwrite, modes_off, name_of, nan_node
from cpu_graph.order import merge_into
from cpu_graph.values import Values
from cpu_graph.warmups import blocks_changed_by_warmup, report_warmup_changes, warmed_draws

numbers = count(1)


class Capture:
    """A capture under way, and what it has recorded."""

    def __init__(self, device, pool, mode):
        self.device = device
        self.pool = pool
        self.mode = mode
        self.origin = device.stream
        self.number = next(numbers)
        self.line = users_line()
        self.nodes = []
        self.bodies = [self.nodes]  # where nodes go: the graph, or a conditional node's body
        self.clocks = {device.stream: {}}  # of each stream that takes part
        self.ticks = count(1)
        self.lost = False
        self.handle = None  # a weak reference to that of its graph, once it has ended
        self.outside = []  # launches that ran during it and are not in it
        self.values = Values()
        self.leaves = []  # of its backward passes
        self.adds = set()  # the gradients from before it that it adds to
        self.poisoned = set()
        self.written = {}  # block that the program writes to in it -> its generation
        self.anew = set()  # block that it writes without regard to what is there
        self.changed = {}  # block -> the operators that change what is there
        self.reads = {}  # block from outside -> its first GraphInput
        self.empty = {}  # block -> the generation of what torch.empty has made there, and the node
        self.start = {}  # the random state of each generator when it began
        self.numbers = count(1)  # of later random states

    def note_maker(self, node):
        """Note who makes tensors without a launch."""
        for block, *_ in node.spans:
            self.empty[block] = block.generation, node

    def add(self, node):
        clock = self.clocks[self.device.stream]
        node.stream = self.device.stream
        clock[node.stream] = next(self.ticks)
        node.clock = dict(clock)
        for (block, *_), writes in node.spans.items():
            block.in_graph = True
            of_the_program = node.operator is not POISON
            if of_the_program and block.tenant is not self and block not in self.written:
                self.reads.setdefault(block, GraphInput(block, node))
            if writes:
                block.writer = node.stream
            if writes and of_the_program:
                self.written.setdefault(block, block.generation)
                if is_overwrite(node.operator):
                    self.anew.add(block)
                else:
                    self.changed.setdefault(block, set()).add(node.operator)
        self.bodies[-1].append(node)
        self.device.notify("recorded", self, node)

    def has_unjoined_work(self):
        """Whether some stream did work that the capturing stream did not wait for at the end."""
        return not all(node.before(self.clocks[self.origin]) for node in all_nodes(self.nodes))


class GraphInput:
    """What a graph takes from outside: the tensor in a block, and the graph whose result it is."""

    def __init__(self, block, node):
        self.generation = block.generation
        self.operator = name_of(node.operator)
        self.where = f"{self.operator} at {shown(node.line)}"
        self.producer = block.tenant and block.tenant.number
        self.reported = False  # that its tensor is gone


class Conditional:
    """A body of nodes that a replay runs once if its handle is set, or as long as it is."""

    def __init__(self, capture, flag, loops):
        self.begins = SetHandle(self, capture, flag)
        self.loops = loops
        self.nodes = Body(self)
        self.set = False

    def rounds(self):
        """The nodes of each round; a node of the body may set the handle for the next one."""
        self.begins.read()
        while self.set:
            yield from executed_nodes(self.nodes)
            self.set = self.set and self.loops


class SetHandle:
    """A kernel that sets a conditional node's handle from a boolean on the GPU."""

    def __init__(self, node, capture, flag):
        block = capture.device.memory.find(flag)
        if block is None or flag.dtype is not torch.bool or flag.dim():
            raise NotModelled("A conditional node needs a boolean CUDA tensor of no dimension.")
        self.node = node
        self.flag = Place(block, flag)

    def read(self):
        self.node.set = self.flag.view().item()


class Body(list):
    """The nodes of a conditional node, which is its owner."""

    def __init__(self, owner):
        super().__init__()
        self.owner = owner


def executed_nodes(nodes):
    """The nodes that a replay runs, those of conditional bodies as often as it runs them."""
    for node in nodes:
        if isinstance(node, Conditional):
            yield from node.rounds()
        elif isinstance(node, SetHandle):
            node.read()
        else:
            yield node


def all_nodes(nodes):
    """All nodes, those of conditional bodies too."""
    for node in nodes:
        if isinstance(node, Conditional):
            yield from all_nodes(node.nodes)
        elif not isinstance(node, SetHandle):
            yield node


class DriverGraph:
    """The driver's graph, which goes with its owner: that breaks a capture that is under way."""

    def __init__(self, device):
        self.device = device

    def __del__(self):
        capture = self.device.under_way  # in whichever thread that happens
        if capture:
            capture.lost = "freed"


class CUDAGraph:
    """What torch's C++ class does; torch's own Python class stands on it, see ``rebase_class``."""

    stand_in = None  # the device of the stand-in in force

    def __new__(cls, keep_graph=False):
        graph = super().__new__(cls)
        graph.stand_in = CUDAGraph.stand_in  # for good: it may be collected under a later one
        graph._kept = keep_graph
        graph.capture = None
        graph.handle = None
        graph.generators = set()
        graph.origin = graph.stand_in.stream
        graph.token = None
        graph.retained = []
        graph.has_instance = graph.finalizing = False
        graph.last = 0, {}  # the moment after its last launch
        return graph

    def __init__(self, keep_graph=False):
        pass

    def register_generator_state(self, generator):
        generator.register(self)

    def capture_begin(self, pool=None, capture_error_mode="global"):
        if capture_error_mode not in errors.ERROR_MODES:
            raise torch_error(errors.UNKNOWN_MODE + str(capture_error_mode))
        if pool is not None and not isinstance(pool, tuple):
            raise torch_error(errors.NO_TUPLE, TypeError)
        if self.capture:
            raise torch_error(errors.OWNS_GRAPH)
        if self.stand_in.stream == 0:
            raise torch_error(errors.DEFAULT_STREAM)
        if self.stand_in.capture:
            raise cuda_error(401)
        self.token = pool if pool and any(pool) else (next(pools.ids), 0)  # two zeros name none
        capture = Capture(self.stand_in, self.token, capture_error_mode)
        capture.graph = self
        self.origin = capture.origin
        self.stand_in.capture = capture
        for generator in {torch.cuda.default_generators[0], *self.generators}:
            generator.begin_capture(capture)

    def capture_end(self):
        self.capture_end_pre()
        self.capture_end_post()
        if not self._kept:
            self.has_instance = True

    def capture_end_pre(self):
        capture = self.stand_in.capture
        if capture is None or capture.graph is not self:
            raise self.not_begun()
        if self.stand_in.stream != capture.origin:
            raise torch_error(errors.OTHER_STREAM)
        self.stand_in.capture = None
        capture.graph = None  # else neither of the two would be gone before the other
        if capture.lost:
            raise cuda_error(901)
        if capture.has_unjoined_work():
            raise cuda_error(904)
        for generator in capture.start:
            generator.capture = None
        capture.end = {generator: generator.number for generator in capture.start}
        self.capture = capture
        self.finalizing = True  # hooks of torch's run now, and find the driver's graph alive
        self.handle = DriverGraph(self.stand_in)
        capture.handle = weakref.ref(self.handle)
        launches = sum(node.operator is not POISON for node in all_nodes(capture.nodes))
        self.record = hints.CaptureRecord(capture.number, shown(capture.line), launches)
        self.stand_in.captures.append(self.record)
        capture.values.update_at_capture_end(self.stand_in)
        capture.warmed = blocks_changed_by_warmup(capture)
        hints.note_gradients(self.stand_in, capture, self.record)
        capture.buffers = hints.scratch_buffers(capture, all_nodes(capture.nodes))
        capture.warmed_draws = warmed_draws(self.stand_in, all_nodes(capture.nodes))
        hints.report_outside(self.stand_in, capture)
        hints.add_capture_remarks(self.stand_in, self.record, capture, all_nodes(capture.nodes))
        if not capture.nodes:
            warnings.warn(errors.EMPTY, UserWarning, stacklevel=3)

    def not_begun(self):
        """Before torch 2.15 a graph took the stream on which it was made for the capture's."""
        if errors.SINCE_2_15:
            return torch_error(errors.NOT_BEGUN)
        here = self.stand_in.stream == self.origin
        return cuda_error(401) if here else torch_error(errors.OTHER_STREAM)

    def capture_end_post(self):
        self.finalizing = False

    @staticmethod
    def get_currently_capturing_graph():
        device = CUDAGraph.stand_in
        if not device.capturing():
            raise torch_error(errors.NO_CAPTURE)
        return device.capture.graph

    def begin_capture_to_if_node(self, flag):
        self._begin_body(flag, loops=False)

    def begin_capture_to_while_node(self, flag):
        self._begin_body(flag, loops=True)

    def _begin_body(self, flag, loops):
        capture = self.stand_in.capture
        node = Conditional(capture, flag, loops)
        capture.bodies[-1].append(node)
        capture.bodies.append(node.nodes)

    def set_conditional_handle_for_current_node(self, flag):
        capture = self.stand_in.capture
        body = capture.bodies[-1]
        body.append(SetHandle(body.owner, capture, flag))

    def end_capture_to_conditional_node(self):
        self.stand_in.capture.bodies.pop()

    def replay(self):
        if self.capture is None:
            raise torch_error(errors.NO_GRAPH)
        if self.stand_in.capturing():
            hints.report_nested_replay(self.stand_in, self.record)
            if errors.PER_CAPTURE:
                self.stand_in.refuse(900)
            raise torch_error(errors.REPLAY_INSIDE)
        if self.stand_in.closed:
            raise NotModelled(
                "A replay outside of the block in which a graph was made is not modelled."
            )
        self.has_instance = True
        device = self.stand_in
        device.launches["graphs"] += 1
        self._add_replay_hints()
        # its launches run one after the other
        merge_into(device.order.clocks[device.stream], device.order.pending_clock(self.last))
        launch = next(device.order.ticks)
        clock = device.order.tick(device.stream)
        try:
            with device.lock, modes_off():
                self._launch(launch, clock)
        except Exception as error:
            if is_refusal(error):
                raise
            raise NotModelled(f"This replay is not modelled ({error}).") from error
        self.last = device.order.now(device.stream)
        self.record.replays += 1
        hints.note_lost_eager_writes(self.capture)
        hints.note_zeroing_and_updates(device, self.capture.written, self.capture.anew)

    def _add_replay_hints(self):
        device, capture = self.stand_in, self.capture
        hints.check_inputs(device, capture)
        hints.check_accumulation(device, capture)
        with modes_off():
            capture.values.report_changed(device, capture.number)
        if not self.record.replays:
            report_warmup_changes(device, capture, self.record)

    def _launch(self, launch, clock):
        device, capture = self.stand_in, self.capture
        launched = []
        states = {}
        for generator, begins in capture.start.items():
            states[generator, 0] = generator.raw_state() if capture.end[generator] else begins
        raced = False
        rounds = count(1) if any(isinstance(node, Conditional) for node in capture.nodes) else None
        for recorded in executed_nodes(capture.nodes):
            stream = recorded.stream if rounds is None else capture.origin
            # nodes of a loop are launched more than once: all nodes then are on one stream
            ticks = recorded.clock if rounds is None else {stream: next(rounds)}
            inside = {(launch, stream): tick for stream, tick in ticks.items()}
            clocks = clock | inside
            node = recorded.copy_for_replay((launch, stream), clocks, capture.number, device.stream)
            device.order.save_contents(node.spans)
            if node.draws:
                generator, begins, ends = node.draws
                node.state = states[generator, begins]
                states[generator, ends] = node.run()
            else:
                node.run()
            raced |= device.order.log_launch(node)
            launched.append(node)
            merge_into(device.order.clocks[device.stream], inside)
        raced |= self._poison_newer_blocks(launch)
        device.order.rerun_after_race(raced)
        for generator, number in capture.end.items():
            if number:
                generator.set_raw_state(states[generator, number])
        device.notify("launched", launched, self)

    def _poison_newer_blocks(self, launch):
        """Poison newer blocks that a real allocator might have cut out of those just written;
        returns whether another stream uses one of them at the same time.
        """
        device, capture = self.stand_in, self.capture
        raced = False
        for block in capture.written.keys() | capture.poisoned:
            block.last_graph = capture.number
            block.overwritten = None
            block.uncomputed = None
        newer = {
            block
            for older, generation in capture.written.items()
            for block, before in older.overlaps.items()
            if generation <= before
        }
        for block in newer - capture.written.keys():
            node = nan_node(block)
            node.stream = launch, capture.origin
            node.clock = dict(device.order.clocks[device.stream])
            device.order.save_contents(node.spans)
            node.run()
            raced |= device.order.log_launch(node)
            block.overwritten = capture.number
        return raced

    def reset(self):
        self.capture = None
        self.handle = None
        self.has_instance = False

    @property
    def _has_graph_exec(self):
        return self.has_instance

    def pool(self):
        if self.capture is None:
            raise torch_error(errors.NO_POOL)
        return self.token

    def pools(self):
        if self.capture is None:
            raise torch_error(errors.NO_POOLS)
        return [self.token, *self.retained]

    def _retain_pool(self, pool):
        self.retained.append(pool)

    def instantiate(self):
        if self.capture is None:
            raise torch_error(errors.NOT_ENDED)
        if self.has_instance and not self._kept:
            raise torch_error(errors.NOT_THE_USERS)
        self.has_instance = True

    def raw_cuda_graph(self):
        if not (self._kept or self.finalizing):
            raise torch_error(errors.NOT_KEPT)
        if self.finalizing:  # torch drops what a global hook raises
            self.record.remarks.append("a hook asks for the raw CUDA graph: that is not modelled")
        raise NotModelled("The stand-in has no raw CUDA graph.")

    def raw_cuda_graph_exec(self):
        raise NotModelled("The stand-in has no raw CUDA graph.")

    enable_debug_mode = not_modelled_stub("CUDAGraph.enable_debug_mode")
    debug_dump = not_modelled_stub("CUDAGraph.debug_dump")
    get_graph_data = not_modelled_stub("CUDAGraph.get_graph_data")

    def __reduce_ex__(self, protocol):
        raise pickle_error(self)

    def __getattr__(self, name):
        raise attr_error(name, torch.cuda.graphs.CUDAGraph, "CUDAGraph")


for _name in ("pools", "get_currently_capturing_graph"):
    if not errors.PER_CAPTURE and not hasattr(torch.cuda.graphs.CUDAGraph, _name):
        delattr(CUDAGraph, _name)  # this torch has none


def rebase_class(real, base):
    """torch's own Python class on another base: what its methods call super() is then that base."""
    cell = CellType()

    def rebound(value):
        if isinstance(value, staticmethod):  # as __new__ is
            return staticmethod(rebound(value.__func__))
        if not isinstance(value, FunctionType) or "__class__" not in value.__code__.co_freevars:
            return value
        cells = zip(value.__code__.co_freevars, value.__closure__, strict=True)
        closure = tuple(cell if name == "__class__" else old for name, old in cells)
        named = value.__globals__, value.__name__
        copy = FunctionType(value.__code__, *named, value.__defaults__, closure)
        copy.__kwdefaults__ = value.__kwdefaults__
        return copy

    left_out = {"__dict__", "__weakref__", "debug_dump", "enable_debug_mode", "get_graph_data"}
    names = {name: rebound(v) for name, v in vars(real).items() if name not in left_out}
    cell.cell_contents = type(real.__name__, (base,), names)
    return cell.cell_contents


TorchGraph = rebase_class(torch.cuda.graphs.CUDAGraph, CUDAGraph)
