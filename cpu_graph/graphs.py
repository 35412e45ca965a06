"""CUDAGraph on the stand-in: a capture that runs nothing, and its replay."""

import warnings
from itertools import count

import torch

from cpu_graph.errors import (
    DEFAULT_STREAM,
    EMPTY,
    NO_GRAPH,
    NOT_KEPT,
    OWNS_GRAPH,
    PER_CAPTURE,
    REPLAY_INSIDE,
    NotModelled,
    cuda_error,
)
from cpu_graph.nodes import unseen
from cpu_graph.order import merge

pools = count(1)


class Capture:
    """A capture under way, and what it has recorded."""

    def __init__(self, device, pool):
        self.device, self.pool, self.origin = device, pool, device.stream
        self.nodes, self.clocks, self.ticks = [], {device.stream: {}}, count(1)  # a clock per stream that takes part
        self.lost, self.poisoned = False, set()
        self.start, self.numbers = {}, count(1)  # random states: of each generator now, and numbers of later ones

    def add(self, node):
        node.stream, clock = self.device.stream, self.clocks[self.device.stream]
        clock[node.stream] = next(self.ticks)
        node.clock = dict(clock)
        for (block, *_), writes in node.spans.items():
            block.in_graph, block.writer = True, node.stream if writes else block.writer
        self.nodes.append(node)

    def unjoined(self):
        """Whether some stream did work that the capturing stream did not wait for at the end."""
        return not all(node.before(self.clocks[self.origin]) for node in self.nodes)


class CUDAGraph:
    """torch.cuda.CUDAGraph on the stand-in."""

    stand_in = None  # the device of the stand-in in force

    def __init__(self, keep_graph=False):
        self.stand_in = CUDAGraph.stand_in  # for good: it may be collected under a later one
        self.keep_graph, self.capture, self.generators = keep_graph, None, set()
        self.token = None

    def register_generator_state(self, generator):
        generator.register(self)

    def capture_begin(self, pool=None, capture_error_mode="global", check_input_liveness=False):
        if self.capture:
            raise RuntimeError(OWNS_GRAPH)
        if check_input_liveness:
            raise NotModelled("check_input_liveness is not modelled.")
        if self.stand_in.stream == 0:
            raise RuntimeError(DEFAULT_STREAM)
        if self.stand_in.capture:
            self.stand_in.refuse(900)
        self.token = pool or (0, next(pools))
        capture = self.stand_in.capture = Capture(self.stand_in, self.token)
        for generator in {torch.cuda.default_generators[0], *self.generators}:
            generator.begin(capture)

    def capture_end(self):
        capture, self.stand_in.capture = self.stand_in.capture, None
        if capture is None or capture.lost:
            raise cuda_error(901)
        if capture.unjoined():
            raise cuda_error(904)
        for generator in capture.start:
            generator.capture = None
        capture.end = {generator: generator.number for generator in capture.start}
        self.capture = capture
        if not capture.nodes:
            warnings.warn(EMPTY, UserWarning, stacklevel=3)

    def replay(self):
        if self.capture is None:
            raise RuntimeError(NO_GRAPH)
        if self.stand_in.capturing():
            if PER_CAPTURE:
                self.stand_in.refuse(900)
            raise RuntimeError(REPLAY_INSIDE)
        device = self.stand_in
        device.counts["graphs"] += 1
        launch, clock = next(device.order.ticks), device.order.tick(device.stream)
        with unseen():
            self.launch(launch, clock)

    def launch(self, launch, clock):
        device, capture = self.stand_in, self.capture
        states = {(g, 0): g.raw_state() if capture.end[g] else capture.start[g] for g in capture.start}
        raced = False
        for recorded in capture.nodes:
            inside = {(launch, stream): tick for stream, tick in recorded.clock.items()}
            node = recorded.launched((launch, recorded.stream), clock | inside)
            device.order.save(node.spans)
            if node.draws:
                generator, begins, ends = node.draws
                node.state = states[generator, begins]
                states[generator, ends] = node.run()
            else:
                node.run()
            raced |= device.order.enter(node)
            merge(device.order.clocks[device.stream], inside)
        device.order.settle(raced)
        for generator, number in capture.end.items():
            if number:
                generator.set_raw_state(states[generator, number])

    def reset(self):
        if self.capture and self.stand_in.capture:
            self.stand_in.capture.lost = "freed"  # a graph cannot be destroyed during a capture
        self.capture = None

    def __del__(self):
        if self.__dict__.get("capture"):
            self.reset()

    def pool(self):
        return self.token

    def instantiate(self):
        pass

    def raw_cuda_graph(self):
        if not self.keep_graph:
            raise RuntimeError(NOT_KEPT)
        raise NotModelled("The stand-in has no raw CUDA graph.")

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        raise NotModelled(f"CUDAGraph.{name} is not modelled.")
