"""Captures run nothing, and freeze what Python decides."""

import random

import torch

from tests.cpu_graph.conformance.common import PAGEABLE, SINCE_2_15, captured, layer, ones, zeros
from tests.cpu_graph.conformance.outcomes import program


@program(2, shows="A branch that is frozen")
def a_branch_is_frozen():
    x, doubling = ones(4), [True]
    replay = captured(lambda: x * 2 if doubling[0] else x * 1)
    doubling[0] = False
    return replay()[0]


@program(1)
def where_chooses_at_each_replay():
    x, flag = ones(4), torch.tensor(True, device="cuda")
    replay = captured(lambda: torch.where(flag, x * 2, x))
    flag.fill_(False)
    return replay()[0]


@program(2, shows="A number that is frozen")
def a_tensor_on_the_cpu_is_a_number():
    x, scale = ones(4), torch.tensor(2.0)
    replay = captured(lambda: x * scale)
    scale.fill_(5.0)
    return replay()[0]


@program(5)
def a_tensor_on_the_gpu_is_read():
    x, scale = ones(4), torch.tensor(2.0, device="cuda")
    replay = captured(lambda: x * scale)
    scale.fill_(5.0)
    return replay()[0]


def weight_after_halving(lr, **options):
    net = layer()
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, **options)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    net.weight.grad = torch.ones_like(net.weight)
    replay = captured(optimizer.step)
    for _ in range(2):
        replay()
        scheduler.step()
    return net.weight[0, 0].item() * 4


@program(0, shows="A learning rate that stays")
def a_scheduler_has_no_effect():
    return weight_after_halving(0.5)


@program(1)
def a_scheduler_writes_into_a_tensor():
    return weight_after_halving(torch.tensor(0.5, device="cuda"), fused=True)


@program([1, 3], shows="A counter on the CPU")
def a_counter_on_the_cpu_counts_captures():
    count, on_gpu = [0], zeros(())

    def counting():
        count[0] += 1
        return on_gpu.add_(1)

    replay = captured(counting)
    for _ in range(3):
        replay()
    return [count[0], on_gpu.item()]


@program(1, shows="A random number from the CPU")
def a_random_number_from_python_is_frozen():
    x = ones(())
    replay = captured(lambda: x * random.random())
    return len({replay().item() for _ in range(5)})


@program(0)
def a_mask_can_be_written_through():
    x = ones(4)

    def mask():
        x[x > 0] = 0.0
        return x

    return captured(mask)().sum()


@program([1, 7, 1, 1] if SINCE_2_15 else PAGEABLE)
def one_element_can_be_written():
    x = ones(4)

    def write():
        x[1] = 7
        return x

    return captured(write)()
