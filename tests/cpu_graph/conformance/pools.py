"""Pools: what is freed in a capture goes to later captures of its pool, and to no others."""

import torch

from tests.cpu_graph.conformance.common import captured, ones
from tests.cpu_graph.conformance.outcomes import program, programs


def second_of_three(order, hold, pools=1):
    """What the second of three graphs gives, after replays in this order."""
    pool, x = [torch.cuda.graph_pool_handle() for _ in range(3)], ones(2**20)
    held = []
    doubled = captured(lambda: held.append(x * 2), pool=pool[0])
    plus_one = captured(lambda: held[0] + 1, pool=pool[1 % pools])
    if not hold:
        held.clear()
    hundred = captured(lambda: x * 100, pool=pool[2 % pools])
    for number in order:
        (doubled, plus_one, hundred)[number]()
    return plus_one.output[0].item()


@program(101, shows="Graphs replayed in another order")
def another_order_reads_what_a_later_graph_wrote():
    return second_of_three((0, 2, 1), hold=False)


programs(
    the_order_of_capture_is_right=(3, lambda: second_of_three((0, 1, 2), hold=False)),
    a_held_result_is_not_overwritten=(3, lambda: second_of_three((0, 2, 1), hold=True)),
    private_pools_are_not_shared=(3, lambda: second_of_three((0, 2, 1), hold=False, pools=3)),
)


def slow_and_quick(shared, two_streams):
    """What a graph gives that sleeps between two operators while another one of its pool is
    replayed.
    """
    x, pool = ones(2**20), torch.cuda.graph_pool_handle() if shared else None

    def slow():
        doubled = x * 2
        torch.cuda._sleep(10**8)
        return doubled + 1

    slow, quick = captured(slow, pool=pool), captured(lambda: x * 10, pool=pool)
    torch.cuda.synchronize()
    slow()
    with torch.cuda.stream(torch.cuda.Stream() if two_streams else torch.cuda.current_stream()):
        quick()
    torch.cuda.synchronize()
    return [slow.output[0].item(), quick.output[0].item()]


@program([11, 10])
def two_graphs_of_a_pool_at_once():
    return slow_and_quick(shared=True, two_streams=True)


@program([3, 10])
def two_graphs_of_a_pool_one_after_the_other():
    return slow_and_quick(shared=True, two_streams=False)


@program([3, 10])
def two_graphs_of_two_pools_at_once():
    return slow_and_quick(shared=False, two_streams=True)


def freed_between(pool):
    """Two graphs in a pool, and the address of each one's result: the first is freed before the
    second.
    """
    x, kept = ones(2**20), []
    for factor in (2, 3):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            result = x * factor
        kept.append((graph, result.data_ptr()))
        del result
    return kept


def given_again(pool):
    (_, one), (_, other) = freed_between(pool)
    return one == other


programs(
    a_later_capture_gets_freed_memory=(True, lambda: given_again(torch.cuda.graph_pool_handle())),
    another_pool_does_not_get_it=(False, lambda: given_again(None)),
)


@program([True, False, False])
def pools_named_by_two_zeros_are_new_ones():
    (first, one), (second, other) = freed_between((0, 0))
    return [first.pool() != second.pool(), first.pool() == (0, 0), one == other]


@program(False)
def eager_does_not_get_a_pools_memory():
    x = ones(2**20)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = x * 2
    address = result.data_ptr()
    del result
    return address == torch.empty(2**20, device="cuda").data_ptr()
