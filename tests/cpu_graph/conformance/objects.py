"""Streams, events, graphs, pools, generators and memory as objects, and other threads."""

import copy
import pickle
import threading

import torch

from tests.cpu_graph.conformance.common import SINCE_2_15, captured, captured_with, ones, zeros
from tests.cpu_graph.conformance.outcomes import program, programs, said

LONG = 10**8
NAMES = {"stream": "Stream", "event": "Event", "graph": "CUDAGraph"}


class Holder(torch.nn.Module):
    """A module that holds something else than tensors."""

    def __init__(self, held):
        super().__init__()
        self.held = held


def made(thing):
    return getattr(torch.cuda, NAMES[thing])()


COPIES = {
    "a_copy_of": copy.deepcopy,
    "a_shallow_copy_of": copy.copy,
    "a_pickle_of": pickle.dumps,
    "a_copy_of_a_module_with": lambda held: copy.deepcopy(Holder(held)),
}
for thing in NAMES:
    words = f"TypeError: cannot pickle '{NAMES[thing]}' object"
    article = "an" if thing == "event" else "a"
    for name, copied in COPIES.items():
        row = words, lambda copied=copied, thing=thing: said(lambda: copied(made(thing)))
        programs(**{f"{name}_{article}_{thing}": row})


@program(True)
def a_copy_of_a_generator_draws_the_same():
    generator = torch.Generator("cuda").manual_seed(3)
    twin = copy.deepcopy(generator)
    one, other = (torch.rand(4, device="cuda", generator=g) for g in (generator, twin))
    return torch.equal(one, other)


@program([True, True, True])
def what_is_a_stream_or_an_event():
    stream, event = torch.cuda.Stream(), torch.cuda.Event()
    return [
        isinstance(stream, torch.Stream),
        issubclass(torch.cuda.Stream, torch.Stream),
        isinstance(event, torch.Event),
    ]


@program("NotImplementedError: Could not run 'aten::record_stream' with arguments from the 'CPU' ")
def a_stream_of_a_cpu_tensor():
    return said(lambda: torch.ones(2).record_stream(torch.cuda.Stream())).partition("backend")[0]


@program(["OutOfMemoryError: CUDA out of memory. Tried to allocate 4194304.00 GiB", [1, 1]])
def more_memory_than_there_is():
    x = ones(2)
    words = said(lambda: torch.empty(2**50, device="cuda")).partition(". GPU")[0]
    return [words.removesuffix("."), x.tolist()]


@program("OutOfMemoryError: CUDA out of memory. Tried to allocate 4194304.00 GiB")
def more_memory_than_there_is_in_a_capture():
    words = said(lambda: captured(lambda: torch.empty(2**50, device="cuda")))
    return words.partition(". GPU")[0].removesuffix(".")


@program([True, False])
def addresses_in_a_pool_of_other_sizes_can_be_compared():
    pool = torch.cuda.graph_pool_handle()
    x, y = ones(2**20), ones(2**19)
    captured(lambda: ((x * 2) + 1).sum(), pool=pool)
    result = captured(lambda: y * 3, pool=pool).output
    return [result.data_ptr() == result.data_ptr(), result.data_ptr() == x.data_ptr()]


@program("AcceleratorError: CUDA error: the operation cannot be performed in the present state")
def a_capture_begun_in_a_capture():
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(torch.cuda.Stream()):
        return said(
            lambda: captured_with(lambda x: (x * 2, graph.capture_begin()), ones(2))
        ).strip()


@program([1, 1])
def views_in_inference_mode_share_memory():
    x = ones(2, 2)
    with torch.inference_mode():
        y = torch.zeros(2, 2, device="cuda")
        y.reshape(4).add_(x.reshape(4))
    return y[0]


def in_a_thread(function):
    """What a function gives in another thread, or raises there."""
    told = []

    def run():
        try:
            told.append(function())
        except Exception as error:
            told.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if isinstance(told[0], Exception):
        raise told[0]
    return told[0]


@program([True, "cuda:0", False])
def a_thread_asks_where_a_tensor_is():
    x = ones(2)
    return in_a_thread(lambda: [x.is_cuda, str(x.device), torch.ones(2).is_cuda])


programs(
    refused="A capture in another thread",
    a_thread_captures=(
        [4, 4],
        lambda: in_a_thread(lambda: (lambda x: captured(lambda: x * 4)().tolist())(ones(2))),
    ),
)


def raw_graph_in_a_hook():
    """Whether a hook finds the driver's graph when a capture ends."""
    graph, numbers = torch.cuda.CUDAGraph(), []
    graph.register_capture_end_hook(lambda graph: numbers.append(graph.raw_cuda_graph()))
    captured(lambda: ones(2) * 2, graph=graph)
    return numbers[0] > 0


def draws_in_a_body():
    """A random number in the body of a conditional node."""
    x, graph = zeros(()), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        graph.begin_capture_to_while_node(x < 3)
        x.add_(torch.rand((), device="cuda"))
        graph.set_conditional_handle_for_current_node(x < 3)
        graph.end_capture_to_conditional_node()


def gradients_of_the_default_stream():
    """A weight that was used on the default stream before, captured as the setting allows."""
    weight = ones(2).requires_grad_()
    loss = (weight * 3).sum()  # keeps the node that adds to its gradient
    torch.autograd.graph.set_override_stale_capture_stream(True)
    try:
        captured(lambda: (weight * 2).sum().backward())()
    finally:
        torch.autograd.graph.set_override_stale_capture_stream(False)
    return [int(loss.item()), *weight.grad.tolist()]


if SINCE_2_15:
    programs(
        refused="no raw CUDA graph",
        a_raw_graph_is_live_in_a_hook=(True, raw_graph_in_a_hook),
    )
    programs(
        a_random_number_in_a_body=(
            ["RuntimeError: RNG within data-dependent conditional nodes is not supported yet."],
            draws_in_a_body,
        ),
        a_stale_stream_is_overridden=([6, 2, 2], gradients_of_the_default_stream),
    )
