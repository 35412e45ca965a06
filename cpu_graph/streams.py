"""Streams and events on the stand-in: they order launches, and time nothing."""

from itertools import cycle

import torch

from cpu_graph.errors import NotModelled, attr_error, cuda_error, pickle_error
from cpu_graph.order import HOST, merge_into
from cpu_graph.placement import device_type

REAL_CUDA_STREAM, REAL_EVENT = torch.cuda.Stream, torch.cuda.Event
HANDLE = 0x5EED0000  # where the numbers of streams begin, as the driver's addresses


class Stream:
    """torch.cuda.Stream: one of the pool's 32, handed out in turn."""

    stand_in = None  # the device of the stand-in in force
    numbers = cycle(range(1, 33))
    external = False

    def __init__(self, device=None, priority=0, stream_id=None):
        device_type(device)
        self.stream_id = next(self.numbers) if stream_id is None else stream_id
        self.device = torch.device("cuda", 0)
        self.priority = priority

    @property
    def cuda_stream(self):
        """The driver's number of the stream: 0 for the default stream."""
        return HANDLE + self.stream_id if self.stream_id else 0

    @property
    def device_index(self):
        return 0

    @staticmethod
    def priority_range():
        raise NotModelled("The priorities of streams are not modelled.")

    def __eq__(self, other):
        if not isinstance(other, Stream):
            return False
        return (self.stream_id, self.external) == (other.stream_id, other.external)

    def __hash__(self):
        return self.stream_id

    def __repr__(self):
        return f"<torch.cuda.Stream device=cuda:0 cuda_stream={self.stream_id:#x}>"

    def __enter__(self):
        self.context = torch.cuda.stream(self)
        self.context.__enter__()
        return self

    def __exit__(self, *error):
        self.context.__exit__(*error)

    def wait_event(self, event):
        event.wait(self)

    def wait_stream(self, stream):
        self.wait_event(stream.record_event())

    def record_event(self, event=None):
        event = event or torch.cuda.Event()
        event.record(self)
        return event

    def synchronize(self):
        device = self.stand_in
        if device.capture:
            device.refuse(900)
        device.order.wait(HOST, device.order.clocks[self.stream_id])

    def query(self):
        if self.stand_in.capturing(self.stream_id):
            self.stand_in.refuse(900)
        if self.stand_in.capture and self.stand_in.capture.mode != "relaxed":
            self.stand_in.refuse(900)
        order = self.stand_in.order
        if all(
            node.before(order.clocks[HOST]) for node in order.log if on_stream(node, self.stream_id)
        ):
            return True
        raise NotModelled("Stream.query asks how far the GPU is: the stand-in has no time.")

    def is_capturing(self):
        return self.stand_in.capturing(self.stream_id)

    def __reduce_ex__(self, protocol):
        raise pickle_error(self)

    def __getattr__(self, name):
        raise attr_error(name, REAL_CUDA_STREAM, "Stream")


if torch.version.cuda and not hasattr(REAL_CUDA_STREAM, "is_capturing"):
    del Stream.is_capturing  # this torch has none


class CudaOrTorchMeta(type):
    """torch.Stream and torch.Event are also what torch.cuda's make."""

    def __instancecheck__(cls, thing):
        return isinstance(thing, (cls.of_cuda, cls.real))

    def __subclasscheck__(cls, other):
        return issubclass(other, (cls.of_cuda, cls.real))


class TorchStream(metaclass=CudaOrTorchMeta):
    """torch.Stream: on "cuda" one of the stand-in's, else torch's own."""

    of_cuda, real = Stream, torch.Stream

    def __new__(cls, device=None, priority=0, **given):
        if given or (device is not None and device_type(device) != "cuda"):
            return cls.real(device, priority=priority, **given)
        return Stream(priority=priority)


def on_stream(node, stream_id):
    """Whether a launch is on a stream, or in a graph that was launched there."""
    return stream_id in node.clock


def external_stream(number, device=None):
    """torch.cuda.ExternalStream: the stream that has a driver's number; it equals no other one."""
    if number == 0:
        return Stream(stream_id=0)
    if not HANDLE < number <= HANDLE + 32:
        raise NotModelled(
            "torch.cuda.ExternalStream of a stream that torch did not make is not modelled."
        )
    stream = Stream(stream_id=number - HANDLE)
    stream.external = True
    return stream


class Event:
    """torch.cuda.Event: what a stream had done when it was recorded."""

    stand_in = None  # the device of the stand-in in force

    def __init__(self, enable_timing=False, blocking=False, interprocess=False, external=False):
        self.enable_timing = enable_timing
        self.external = external
        self.clock = self.capture = None

    @property
    def cuda_event(self):
        """The driver's number of the event, as of a stream."""
        return id(self)

    def record(self, stream=None):
        device = self.stand_in
        stream = stream or torch.cuda.current_stream()
        if self.external and device.capturing(stream.stream_id):
            raise NotModelled("An external event in a capture is not modelled.")
        self.capture = device.capture if device.capturing(stream.stream_id) else None
        self.epoch, self.clock = device.order.now(stream.stream_id)
        if self.capture:
            self.clock = dict(self.capture.clocks[stream.stream_id])
        else:
            merge_into(self.clock, device.order.clocks[HOST])

    def wait(self, stream=None):
        device = self.stand_in
        stream = stream or torch.cuda.current_stream()
        if self.clock is None:
            return
        if self.capture is None:
            if device.capturing(stream.stream_id):
                device.refuse(905)
            device.order.wait(stream.stream_id, self._awaited_clock())
        elif self.capture is not device.capture:
            raise NotModelled(
                "Waiting for an event that an earlier capture recorded is not modelled."
            )
        elif stream.stream_id == 0:
            device.refuse(906)
        else:
            merge_into(device.capture.clocks.setdefault(stream.stream_id, {}), self.clock)

    def query(self):
        if self.clock is None:  # torch does not ask CUDA
            return True
        self._ask()
        if all(node.before(self.stand_in.order.clocks[HOST]) for node in self._awaited_launches()):
            return True
        raise NotModelled("Event.query asks how far the GPU is: the stand-in has no time.")

    def synchronize(self):
        self._ask()
        if self.clock is not None:
            self.stand_in.order.wait(HOST, self._awaited_clock())

    def elapsed_time(self, end_event):
        if self.capture or end_event.capture:
            raise cuda_error(1)
        raise NotModelled("Event.elapsed_time: the stand-in has no time.")

    def _ask(self):
        if self.capture:
            self.stand_in.refuse(907)
        if self.stand_in.capture and self.stand_in.capture.mode != "relaxed":
            self.stand_in.refuse(900)

    def __reduce_ex__(self, protocol):
        raise pickle_error(self)

    def __getattr__(self, name):
        raise attr_error(name, REAL_EVENT, "Event")

    def _awaited_clock(self):
        return self.stand_in.order.pending_clock((self.epoch, self.clock))

    def _awaited_launches(self):
        awaited = self._awaited_clock()
        return [node for node in self.stand_in.order.log if node.before(awaited)]


class TorchEvent(metaclass=CudaOrTorchMeta):
    """torch.Event: on "cuda" one of the stand-in's, else torch's own."""

    of_cuda, real = Event, torch.Event

    def __new__(cls, device=None, **given):
        if device is not None and device_type(device) != "cuda":
            return cls.real(device, **given)
        return Event(**given)
