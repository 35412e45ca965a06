"""Places: devices by number, tensors of two places in one call, copies from one to the other."""

from functools import partial

import torch

from tests.cpu_graph.conformance.common import PAGEABLE, captured, captured_with, ones
from tests.cpu_graph.conformance.outcomes import program, programs, said

ORDINAL = "AcceleratorError: CUDA error: invalid device ordinal"
FAR = {  # a device that there is not, in a call
    "a_new_tensor": lambda: torch.ones(2, device="cuda:63"),
    "a_tensor_by_to": lambda: torch.ones(2).to(63),
    "a_set_device": lambda: torch.cuda.set_device(63),
    "a_stream": lambda: torch.cuda.Stream(device=63),
}
programs(
    **{
        f"device_63_of_{name}": (ORDINAL, lambda call=call: said(call))
        for name, call in FAR.items()
    }
)
programs(
    device_63_of_a_name=(
        "AssertionError: Invalid device id",
        lambda: said(lambda: torch.cuda.get_device_name(63)),
    ),
    device_0_of_a_tensor=([True, 0], lambda: [(x := torch.ones(2).to(0)).is_cuda, x.get_device()]),
    device_minus_one_changes_nothing=(
        0,
        lambda: torch.cuda.set_device(-1) or torch.cuda.current_device(),
    ),
    the_numbers_of_devices=(
        [1, 0, 1, 0],
        lambda: [
            torch.cuda.device_count(),
            torch.cuda.current_device(),
            torch.accelerator.device_count(),
            torch.accelerator.current_device_index(),
        ],
    ),
    a_device_with_a_number_is_not_one_without=(
        [False, True],
        lambda: [ones(1).device == torch.device("cuda"), ones(1).device == torch.device("cuda:0")],
    ),
)


@program([True, True, False, "cuda:0"])
def the_default_device():
    torch.set_default_device("cuda")
    try:
        net = torch.nn.Linear(2, 2)
        told = [torch.ones(2).is_cuda, net.weight.is_cuda, torch.ones(2, device="cpu").is_cuda]
        return [*told, str(torch.get_default_device())]
    finally:
        torch.set_default_device(None)


@program([True, True, 3])
def the_default_device_in_a_capture():
    torch.set_default_device("cuda:0")
    try:
        x = torch.ones(2)
        replay = captured(lambda: x + torch.full((2,), 2.0))
        return [torch.tensor([1.0]).is_cuda, torch.arange(3).is_cuda, replay()[0].item()]
    finally:
        torch.set_default_device(None)


ONE_PLACE = "RuntimeError: Expected all tensors to be on the same device, but "
ARGUMENT = ONE_PLACE + "got {} is on {}, different from other tensors on {}"
TWO = ONE_PLACE + "found at least two devices, cuda:0 and cpu!"
INDEXED = (
    "RuntimeError: indices should be either on cpu or on the same device as the indexed tensor"
)
THERE = ("cpu", "cuda:0")
BACK = ("cuda:0", "cpu")


def host(*shape):
    return torch.ones(*shape)


def index():
    return torch.tensor([0], device="cuda")


ROWS = {
    "a_sum": (TWO, lambda: ones(2) + host(2)),
    "a_sum_on_the_cpu_in_place": (TWO, lambda: host(2).add_(ones(2))),
    "a_product": (ARGUMENT.format("mat2", *THERE), lambda: ones(2, 2) @ host(2, 2)),
    "concatenation": (ARGUMENT.format("tensors", *THERE), lambda: torch.cat([ones(2), host(2)])),
    "indexing_the_cpu": (INDEXED, lambda: host(2)[index()]),
}
programs(
    **{
        f"two_places_in_{name}": (gives, lambda call=call: said(call))
        for name, (gives, call) in ROWS.items()
    }
)
programs(
    two_places_in_type_as=(
        [True, "torch.cuda.FloatTensor"],
        lambda: [(x := host(2).double().type_as(ones(2))).is_cuda, x.type()],
    ),
    a_cuda_tensor_that_wants_to_be_pinned=(
        "RuntimeError: Only dense CPU tensors can be pinned",
        lambda: said(lambda: torch.empty(2, device="cuda", pin_memory=True)),
    ),
    new_tensors_in_pinned_memory=(
        [True, True, False],
        lambda: [
            torch.empty(2, pin_memory=True).is_pinned(),
            torch.zeros(2, pin_memory=True).is_pinned(),
            torch.zeros(2).is_pinned(),
        ],
    ),
    what_is_of_a_class_of_cuda_tensors=(
        [True, False, False],
        lambda: [isinstance(x, torch.cuda.FloatTensor) for x in (ones(2), ones(2).half(), host(2))],
    ),
)


def pinned(*shape):
    return torch.ones(*shape).pin_memory()


def from_pinned(host, target=None):
    """Copy in a capture from a tensor in pinned memory, which is now all threes."""
    target = ones(2, 2) if target is None else target
    replay = captured(lambda: target.copy_(host, non_blocking=True))
    host.fill_(3)
    return replay()


def into_pinned(make, kept):
    """Copy in a capture into a tensor in pinned memory."""
    x = ones(2, 2) * 2
    target = make(kept)
    captured(lambda: target.copy_(x, non_blocking=True))()
    torch.cuda.synchronize()
    return target


THREES = [[3, 3], [3, 3]]
TWOS = [[2, 2], [2, 2]]
programs(
    a_copy_from_pinned=(THREES, lambda: from_pinned(pinned(2, 2))),
    a_copy_from_pinned_into_a_transposed_tensor=(
        THREES,
        lambda: from_pinned(pinned(2, 2), ones(2, 2).T),
    ),
    a_copy_from_every_other_pinned_row=(PAGEABLE, lambda: from_pinned(pinned(4, 2)[::2])),
    a_pinned_tensor_to_another_type_on_the_gpu=(
        [1, 1],
        lambda: captured_with(
            lambda host: host.to("cuda", torch.float16, non_blocking=True), pinned(2)
        )(),
    ),
    every_other_pinned_number_to_the_gpu=(
        PAGEABLE,
        lambda: captured_with(lambda host: host[::2].to("cuda", non_blocking=True), pinned(4))(),
    ),
    a_copy_into_pinned=(TWOS, lambda: into_pinned(lambda kept: kept, pinned(2, 2))),
    a_copy_into_every_other_pinned_row=(
        PAGEABLE,
        lambda: into_pinned(lambda kept: kept[::2], pinned(4, 2)),
    ),
)


@program([1, 7], shows="Metadata that stays behind")
def metadata_of_the_sample_stays():
    tokens = torch.arange(8.0, device="cuda").view(2, 4)
    lengths = torch.tensor([2, 4], device="cuda")
    last = lengths - 1
    replay = captured(lambda: tokens.gather(1, last[:, None])[:, 0])
    lengths.copy_(torch.tensor([3, 1]))
    return replay()


@program([6, 6], shows="An optional input left over")
def an_optional_input_is_left_over():
    x, bias = ones(4), torch.zeros(4, device="cuda")
    replay = captured(lambda: x + bias)
    bias.fill_(5)
    return [replay()[0].item(), replay()[0].item()]


@program(3, shows="Padded rows that reach the real ones")
def padded_rows_reach_the_sum_of_all():
    rows = ones(4)
    replay = captured(lambda: rows.sum())
    rows.zero_()[:2] = 1  # two real rows, and one of an earlier batch
    rows[3] = 1
    return replay()


@program(4, shows="A workspace that moves")
def a_workspace_moves():
    held = [torch.zeros(4, device="cuda")]
    x = ones(4)
    replay = captured(lambda: held[0].copy_(x).sum())
    held[0] = torch.zeros(8, device="cuda")
    other = torch.zeros(4, device="cuda")
    replay()
    return other.sum()


@program([5, 10], shows="A resumed learning rate on the CPU")
def a_resumed_learning_rate_is_on_the_cpu():
    weight = torch.nn.Parameter(ones(1) * 20)
    weight.grad = ones(1)
    optimizer = torch.optim.SGD([weight], lr=torch.tensor(5.0), fused=True)
    replay = captured(optimizer.step)
    optimizer.param_groups[0]["lr"].fill_(1.0)
    moved = []
    for _ in range(2):
        replay()
        moved.append(20 - weight.item())
    return moved


@program(1, shows="A graph that is captured and not used")
def a_batch_of_another_size_finds_no_graph():
    replays = {rows: captured(partial(torch.mul, ones(rows, 4), 2)) for rows in (2, 4)}
    return sum(rows in replays for rows in (2, 3, 3))
