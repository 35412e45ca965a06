"""The CPU and a capture: what it may not ask, copy or wait for."""

from contextlib import suppress

import torch

from tests.cpu_graph.conformance.common import (
    ERROR,
    LOST,
    NOT_CAPTURED,
    PAGEABLE,
    READ,
    SINCE_2_13,
    SINCE_2_15,
    captured,
    ones,
)
from tests.cpu_graph.conformance.outcomes import program, programs

LONG = 10**8


def in_capture(name, gives, ask, shows=None):
    """A program that does one thing in a capture, with a tensor, one on the CPU and a
    pinned one.
    """

    def asks():
        x = ones(4)
        host = torch.ones(4)
        pinned = torch.ones(4).pin_memory()
        return captured(lambda: ask(x, host, pinned))()

    programs(**{name: (gives, asks, shows)})


TWO = ["RuntimeError: Expected all tensors to be on the same device"]
in_capture("item", READ, lambda x, *_: x.sum().item())
in_capture("nonzero", READ, lambda x, *_: x.nonzero())
in_capture("a_mask", READ, lambda x, *_: x[x > 0].sum())
in_capture("a_synchronize", READ, lambda *_: torch.cuda.synchronize())
in_capture("tolist", PAGEABLE, lambda x, *_: x.tolist())
in_capture(
    "numpy",
    ["TypeError: can't convert cuda:0 device type tensor to numpy."],
    lambda x, *_: x.numpy(),
)
in_capture("copy_to_the_cpu", PAGEABLE, lambda x, host, _: host.copy_(x))
in_capture("a_tensor_from_a_number", PAGEABLE, lambda x, *_: x * torch.tensor(2.0, device="cuda"))
in_capture("a_full_tensor", [2, 2, 2, 2], lambda x, *_: x * torch.full((), 2.0, device="cuda"))
in_capture("an_index_list", PAGEABLE, lambda x, *_: x[[0, 2]])
in_capture("two_devices", TWO, lambda x, host, _: x + host)
in_capture("a_nested_capture", READ, lambda x, *_: captured(lambda: x * 2)())
in_capture("pinned_and_blocking", READ, lambda x, host, pinned: x.copy_(pinned))
in_capture(
    "pinned_not_blocking", [1] * 4, lambda x, host, pinned: (x * 0).copy_(pinned, non_blocking=True)
)
in_capture("where_for_a_mask", 4, lambda x, *_: torch.where(x > 0, x, 0).sum())


REPLAY = (
    [READ[0], LOST[0]]
    if SINCE_2_13
    else ["RuntimeError: Cannot prepare for replay during capturing stage"]
)


@program(REPLAY)
def a_replay_inside_a_capture():
    x = ones(4)
    return captured(captured(lambda: x * torch.rand(4, device="cuda")))()


@program(NOT_CAPTURED)
def a_replay_before_the_capture():
    torch.cuda.CUDAGraph().replay()


@program(["RuntimeError: This CUDAGraph instance already owns a captured graph."])
def a_second_capture_into_one_graph():
    x = ones(4)
    captured(lambda: x, captured(lambda: x * 2).graph)


@program([2, 2, 2, 2])
def a_second_capture_after_a_reset():
    x = ones(4)
    graph = captured(lambda: x * 3).graph
    graph.reset()
    return captured(lambda: x * 2, graph)()


@program(["RuntimeError: CUDA graphs must be captured on a non-default stream."])
def a_capture_on_the_default_stream():
    torch.cuda.CUDAGraph().capture_begin()


@program(
    ["RuntimeError: info.status != cudaStreamCaptureStatusInvalidated", *LOST]
    if SINCE_2_13
    else LOST * 2
)
def an_old_graph_freed_in_a_capture():
    x = ones(4)
    graphs = [captured(lambda: x + 1)]

    def forget():
        graphs.clear()
        return x * 2

    captured(forget)


@program(SINCE_2_15, shows="A stream that stays after a failure")
def the_stream_after_a_failure_is_the_default_one():
    x = ones(4)
    try:
        captured(lambda: x.mean().item())
    except RuntimeError:
        return torch.cuda.current_stream() == torch.cuda.default_stream()


@program(LOST * 2)
def nothing_more_is_captured_after_a_failure():
    x = ones(4)

    def go_on():
        with suppress(RuntimeError):
            x.mean().item()
        x.mul_(2)

    captured(go_on)


@program([2, 2, 2, 2])
def a_capture_after_a_failed_one():
    x = ones(4)
    stream = torch.cuda.current_stream()
    try:
        captured(lambda: x.mean().item())
    except RuntimeError:
        torch.cuda.set_stream(stream)
    return captured(lambda: x * 2)()


@program([f"{ERROR}capturing stream has unjoined work"])
def a_fork_that_is_never_joined():
    x, side = ones(4), torch.cuda.Stream()

    def fork():
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            x.mul_(2)

    captured(fork)


@program([f"{ERROR}dependency created on uncaptured work in another stream", *LOST])
def a_wait_for_work_outside():
    x, event = ones(4), torch.cuda.Event()
    event.record()
    captured(lambda: (event.wait(), x * 2))


@program(
    [f"{ERROR}operation would make the legacy stream depend on a capturing blocking stream", *LOST]
)
def the_default_stream_drawn_in():
    x = ones(4)
    captured(lambda: (x * 2, torch.cuda.default_stream().wait_stream(torch.cuda.current_stream())))


@program(READ)
def an_event_asked_in_a_capture():
    event = torch.cuda.Event()
    event.record()
    captured(lambda: event.query())


@program([f"{ERROR}operation not permitted on an event last recorded in a capturing stream", *LOST])
def an_event_recorded_in_a_capture_is_asked():
    event = torch.cuda.Event()
    captured(lambda: (event.record(), event.query()))


@program([f"{ERROR}invalid argument"])
def a_replay_timed_from_inside():
    x = ones(4)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    captured(lambda: (start.record(), x * 2, end.record()))()
    torch.cuda.synchronize()
    start.elapsed_time(end)


@program(READ)
def a_side_stream_that_came_uninvited_and_allocates():
    x, side = ones(4), torch.cuda.Stream()

    def on_side():
        with torch.cuda.stream(side):
            return x.expand(2**24, 4).contiguous()

    captured(on_side)


def slow_copy(there, wait):
    """A copy in a graph between the GPU and pinned memory, read or written by the CPU at once."""
    x, landing = ones(4), torch.zeros(4).pin_memory()

    def copy():
        torch.cuda._sleep(LONG)
        (landing.copy_(x, non_blocking=True) if there else x.copy_(landing, non_blocking=True))

    replay = captured(copy)
    torch.cuda.synchronize()
    replay()
    if wait:
        torch.cuda.synchronize()
    if there:
        return landing[0].item()
    landing.fill_(9)
    return x[0].item()


programs(
    a_result_read_too_soon=(0, lambda: slow_copy(there=True, wait=False), "A result read too soon"),
    a_result_read_in_time=(1, lambda: slow_copy(there=True, wait=True)),
    a_pinned_input_overwritten_too_soon=(9, lambda: slow_copy(there=False, wait=False)),
    a_pinned_input_overwritten_in_time=(0, lambda: slow_copy(there=False, wait=True)),
)
