"""What the programs share."""

from functools import partial

import torch

ones = partial(torch.ones, device="cuda")
zeros = partial(torch.zeros, device="cuda")
graphed = torch.cuda.make_graphed_callables
ERROR = "AcceleratorError: CUDA error: "
READ = [
    f"{ERROR}operation not permitted when stream is capturing",
    f"{ERROR}operation failed due to a previous error",
]
VERSION = tuple(map(int, torch.__version__.split(".")[:2]))
SINCE_2_13 = VERSION >= (2, 13)  # random states are per capture
SINCE_2_15 = VERSION >= (2, 15)  # a failed capture leaves its stream
NOT_CAPTURED = ["RuntimeError: Called CUDAGraph::replay without a preceding successful capture."]
if SINCE_2_15:  # replay() asks for the instance first
    NOT_CAPTURED = ["RuntimeError: capture_end() must have been called before calling instantiate"]
LOST = READ[1:]
PAGEABLE = [
    "RuntimeError: Cannot copy between CPU and CUDA tensors during CUDA graph capture unless"
]


def captured(function, graph=None, **options):
    """Capture a function; its replay gives the static output."""
    graph = graph or torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, **options):
        output = function()

    def replay():
        graph.replay()
        return output

    replay.graph, replay.output = graph, output
    return replay


def captured_with(function, *given):
    """Capture a function of some tensors."""
    return captured(lambda: function(*given))


def layer(size=4):
    """A linear layer that sums: every weight is one."""
    linear = torch.nn.Linear(size, size, bias=False, device="cuda")
    torch.nn.init.ones_(linear.weight)
    linear(ones(1, size)).sum().backward()  # cuBLAS is set up
    linear.weight.grad = None
    return linear


def settled(tensor):
    """The tensor, once everything on the GPU is done."""
    torch.cuda.synchronize()
    return tensor
