"""Operators of the program's own (torch.library): which kernel runs, and when."""

import torch
from torch import Tensor

from tests.cpu_graph.conformance.common import READ, captured, captured_with, ones
from tests.cpu_graph.conformance.outcomes import program, programs

calls = []  # what the Python of the operators has told since the program began


def told(gives):
    """Register a program that begins with nothing told."""

    def register(function):
        def run():
            calls.clear()
            return function()

        programs(**{function.__name__: (gives, run)})

    return register


@torch.library.custom_op("conformance::double", mutates_args=())
def double(x: Tensor) -> Tensor:
    calls.append(torch.cuda.is_current_stream_capturing())
    return x * 2


@torch.library.custom_op("conformance::where_it_is", mutates_args=())
def where_it_is(x: Tensor) -> Tensor:
    calls.append([x.is_cuda, str(x.device), torch.empty(1, device="cuda").is_cuda])
    return x.clone()


@torch.library.custom_op("conformance::summed", mutates_args=())
def summed(x: Tensor) -> Tensor:
    return x * x.sum().item()


@torch.library.custom_op("conformance::cuda_alone", mutates_args=(), device_types="cuda")
def cuda_alone(x: Tensor) -> Tensor:
    return x * 7


@torch.library.custom_op("conformance::cpu_alone", mutates_args=(), device_types="cpu")
def cpu_alone(x: Tensor) -> Tensor:
    return x * 7


@torch.library.custom_op("conformance::add_to", mutates_args=("x",))
def add_to(x: Tensor, y: Tensor) -> None:
    x.add_(y)


@torch.library.custom_op("conformance::squared", mutates_args=())
def squared(x: Tensor) -> Tensor:
    return x * x


def of_squared(ctx, gradient):
    (x,) = ctx.saved_tensors
    calls.append([gradient.is_cuda, x.is_cuda])
    return gradient * x * 2


def before_squared(ctx, inputs, output):
    calls.append([inputs[0].is_cuda, output.is_cuda])
    ctx.save_for_backward(inputs[0])


squared.register_autograd(of_squared, setup_context=before_squared)
library = torch.library.Library("conformance", "FRAGMENT")
library.define("by_schema(Tensor x) -> Tensor")
library.impl("by_schema", lambda x: x * 3, "CPU")
library.impl("by_schema", lambda x: x * 11, "CUDA")
library.define("of_others(Tensor x) -> Tensor")
library.impl("of_others", lambda x: calls.append(x.is_cuda) or x + x, "CompositeImplicitAutograd")


@told([False, True])
def its_python_knows_whether_it_is_captured():
    x = ones(2)
    double(x)
    replay = captured(lambda: double(x))
    replay()  # which runs no Python
    return calls


@told([[True, "cuda:0", True]] * 2)
def its_python_sees_cuda_tensors():
    x = ones(2)
    where_it_is(x)
    captured(lambda: where_it_is(x))
    return calls


@told([[2, 2], [4, 4]])
def an_operator_that_writes_to_its_argument():
    x, y = ones(2), ones(2)
    replay = captured(lambda: add_to(x, y))
    replay()
    first = x.tolist()
    replay()
    replay()
    return [first, x.tolist()]


@told([[2, 2], [[True, True], [True, True]]])
def the_backward_function_of_an_operator_sees_cuda_tensors():
    x = ones(2, requires_grad=True)
    squared(x).sum().backward()
    return [x.grad.tolist(), calls]


@told([[11, 11], [11, 11], [3, 3]])
def an_operator_by_a_schema_has_a_kernel_for_each_device():
    x, operator = ones(2), torch.ops.conformance.by_schema
    replay = captured(lambda: operator(x))
    return [operator(x).tolist(), replay().tolist(), operator(torch.ones(2)).tolist()]


@told([[2, 2], [True]])
def an_operator_made_of_others_sees_cuda_tensors():
    x = ones(2)
    replay = captured(lambda: torch.ops.conformance.of_others(x))
    return [replay().tolist(), calls]


programs(
    an_operator_that_reads_is_refused_in_a_capture=(READ, lambda: captured_with(summed, ones(2))),
)


@program("Could not run 'conformance::cpu_alone' with arguments from the 'CUDA' backend")
def an_operator_for_the_cpu_alone_is_refused():
    try:
        cpu_alone(ones(2))
    except NotImplementedError as error:
        return str(error).partition(".")[0]


@program("Could not run 'conformance::cuda_alone' with arguments from the 'CPU' backend")
def an_operator_for_cuda_alone_is_refused_on_the_cpu():
    try:
        cuda_alone(torch.ones(2))
    except NotImplementedError as error:
        return str(error).partition(".")[0]
