"""Streams order a capture, and whatever is left unordered goes wrong."""

import torch

from tests.cpu_graph.conformance.common import captured, ones, settled, zeros
from tests.cpu_graph.conformance.outcomes import program, programs

LONG = 10**8  # cycles: about 50 ms


def main():
    return torch.cuda.current_stream()


@program([2, 2, 2, 2])
def a_fork_that_is_joined():
    x, side = ones(4), torch.cuda.Stream()

    def fork_and_join():
        side.wait_stream(main())
        with torch.cuda.stream(side):
            result = x * 2
        main().wait_stream(side)
        return result

    return captured(fork_and_join)()


def two_counters(join):
    mine, theirs = zeros(2, 1)
    side = torch.cuda.Stream()

    def step():
        mine.add_(1)
        if join:
            side.wait_stream(main())
        with torch.cuda.stream(side):
            theirs.add_(1)
        if join:
            main().wait_stream(side)

    replay = captured(step)
    for _ in range(3):
        replay()
    torch.cuda.synchronize()
    return [mine.item(), theirs.item()]


@program([3, 1], shows="Work on the wrong stream")
def work_on_another_stream_is_not_in_the_graph():
    return two_counters(join=False)


@program([3, 3])
def work_on_a_joined_stream_is():
    return two_counters(join=True)


def read_on_the_side(wait):
    """What a side stream makes of a tensor that the main stream is about to fill with 5."""
    x = ones(4)
    y = zeros(4)
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    torch.cuda._sleep(LONG)
    x.fill_(5)
    if wait:
        side.wait_stream(main())
    with torch.cuda.stream(side):
        y.copy_(x)
    return settled(y)[0]


programs(
    a_missing_wait_reads_too_early=(1, lambda: read_on_the_side(wait=False)),
    a_wait_reads_in_time=(5, lambda: read_on_the_side(wait=True)),
)


def prefetched(wait):
    """Sums of two batches, the second copied by a side stream during the first's replay."""
    static = zeros(4)
    batches = [ones(4), ones(4) * 10]
    side = torch.cuda.Stream()

    def slow_sum():
        torch.cuda._sleep(LONG)
        return static.sum()

    replay = captured(slow_sum)
    static.copy_(batches[0])
    torch.cuda.synchronize()
    first = replay().clone()
    if wait:
        side.wait_stream(main())
    with torch.cuda.stream(side):
        static.copy_(batches[1])
    main().wait_stream(side)
    return [settled(first).item(), replay().item()]


programs(
    a_copy_that_does_not_wait_for_the_replay=([40, 40], lambda: prefetched(wait=False)),
    a_copy_that_waits_for_the_replay=([4, 40], lambda: prefetched(wait=True)),
)


def inside(wait):
    """What a branch of a graph reads, which waits for the producer or began before it."""
    x = ones(4)
    y = zeros(4)
    side = torch.cuda.Stream()

    def step():
        side.wait_stream(main())
        torch.cuda._sleep(LONG)
        x.fill_(5)
        if wait:
            side.wait_stream(main())
        with torch.cuda.stream(side):
            y.copy_(x)
        main().wait_stream(side)

    captured(step)()
    return settled(y)[0]


programs(
    a_branch_that_forks_too_early=(1, lambda: inside(wait=False)),
    a_branch_that_forks_in_time=(5, lambda: inside(wait=True)),
)


def read_after_an_event(early):
    """What a side stream reads that waits for an event recorded before or behind the producer."""
    x = ones(4)
    y = zeros(4)
    side = torch.cuda.Stream()
    event = torch.cuda.Event()
    torch.cuda.synchronize()
    if early:
        event.record()
    torch.cuda._sleep(LONG)
    x.fill_(5)
    if not early:
        event.record()
    side.wait_event(event)
    with torch.cuda.stream(side):
        y.copy_(x)
    return settled(y)[0]


programs(
    an_event_orders_what_was_done_before_it=(5, lambda: read_after_an_event(early=False)),
    an_event_recorded_too_early_orders_nothing=(1, lambda: read_after_an_event(early=True)),
)


def read_result(wait):
    x = ones(4)
    y = zeros(4)
    side = torch.cuda.Stream()

    def slow():
        torch.cuda._sleep(LONG)
        return y.copy_(x * 3)

    replay = captured(slow)
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        replay()
    if wait:
        main().wait_stream(side)
    kept = y.clone()
    return settled(kept)[0]


programs(
    a_replay_on_another_stream_is_read_too_early=(0, lambda: read_result(wait=False)),
    a_replay_on_another_stream_is_waited_for=(3, lambda: read_result(wait=True)),
)
