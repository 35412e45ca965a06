"""What a graph checks of its caller, launches of one graph, blocks of another size,
inference mode.
"""

import torch
from torch import nn

from tests.cpu_graph.conformance.common import NOT_CAPTURED, captured, ones, zeros
from tests.cpu_graph.conformance.outcomes import program, programs
from tests.cpu_graph.conformance.sameness import warmed_up

LONG = 20_000_000
NO_POOL = ["RuntimeError: Called CUDAGraph::pool() without a preceding successful capture."]


def made(**options):
    x = ones(4)
    return captured(lambda: x * 2, torch.cuda.CUDAGraph(**options)).graph


def by_hand(mode):
    x = ones(4)
    graph = torch.cuda.CUDAGraph()
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        graph.capture_begin(capture_error_mode=mode)
        doubled = x * 2
        graph.capture_end()
    graph.replay()
    torch.cuda.synchronize()
    return doubled[0]


@program(NO_POOL)
def a_pool_asked_before_the_capture():
    torch.cuda.CUDAGraph().pool()


@program(NOT_CAPTURED)
def a_replay_after_a_reset():
    graph = made()
    graph.reset()
    graph.replay()


@program(["RuntimeError: Unknown capture error mode. Expected"])
def an_unknown_error_mode():
    return by_hand("fast")


@program([2, 2, 2])
def the_error_modes_of_a_capture():
    return [by_hand(mode) for mode in ("global", "thread_local", "relaxed")]


@program([2, 2])
def a_graph_of_the_users_own_class():
    class Counted(torch.cuda.CUDAGraph):
        replays = 0

        def replay(self):
            self.replays += 1
            super().replay()

    x = ones(4)
    replay = captured(lambda: x * 2, Counted())
    replay()
    return [replay()[0].item(), replay.graph.replays]


@program([False, True])
def a_stream_has_a_number():
    """A stream made of another one's number is on the same queue, and is not equal to it."""
    stream = torch.cuda.Stream()
    again = torch.cuda.ExternalStream(stream.cuda_stream)
    return [again == stream, torch.cuda.default_stream().cuda_stream == 0]


@program(2)
def an_external_stream_captures():
    x, stream = ones(4), torch.cuda.Stream()
    replay = captured(lambda: x * 2, stream=torch.cuda.ExternalStream(stream.cuda_stream))
    return replay()[0]


@program([2, True])
def a_pool_made_for_a_capture():
    x, pool = ones(4), torch.cuda.MemPool()
    replay = captured(lambda: x * 2, pool=pool.id)
    return [replay()[0].item(), replay.graph.pool() == pool.id]


def launched_twice(two_streams):
    """One graph launched twice, on one stream or two: the second waits for the first."""
    x = zeros(4)

    def step():
        x.add_(1)
        torch.cuda._sleep(LONG)
        x.mul_(2)

    replay = captured(step)
    torch.cuda.synchronize()
    for _ in range(2):
        with torch.cuda.stream(torch.cuda.Stream() if two_streams else None):
            replay.graph.replay()
    torch.cuda.synchronize()
    return x[0]


programs(
    one_graph_on_one_stream=(6, lambda: launched_twice(two_streams=False)),
    one_graph_on_two_streams=(6, lambda: launched_twice(two_streams=True)),
)


def after_a_larger_graph(order):
    """Whether a smaller graph's result is right, where a larger one's of its pool was let go."""
    pool = torch.cuda.graph_pool_handle()
    large = ones(2**22)
    small = ones(2**21)
    first = captured(lambda: large * 2, pool=pool).graph
    second = captured(lambda: small * 3, pool=pool)
    for number in order:
        (first, second.graph)[number].replay()
    torch.cuda.synchronize()
    return bool((second.output == 3).all())


programs(
    a_smaller_block_after_the_larger_one=(True, lambda: after_a_larger_graph((0, 1))),
    a_larger_graph_replayed_over_a_smaller_block=(False, lambda: after_a_larger_graph((1, 0))),
    a_larger_graph_replayed_again=(False, lambda: after_a_larger_graph((0, 1, 0))),
)


def inferred(inside, outside):
    network, x = nn.Linear(4, 2).to("cuda"), ones(2, 4)
    nn.init.ones_(network.weight)
    nn.init.zeros_(network.bias)
    with torch.inference_mode():
        warmed_up(network, x)
    with torch.inference_mode(inside):
        replay = captured(lambda: network(x))
    with torch.inference_mode(outside):
        x.fill_(2)
        return replay()[0, 0].item()


programs(
    inference_mode_round_the_capture=(8, lambda: inferred(inside=True, outside=False)),
    inference_mode_round_the_replay=(8, lambda: inferred(inside=False, outside=True)),
    inference_mode_round_both=(8, lambda: inferred(inside=True, outside=True)),
)
