"""Operators of the program's own (torch.library): which kernel runs, and when."""

import torch
from torch import Tensor

from tests.cpu_graph.conformance.common import PAGEABLE, READ, captured, captured_with, ones
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


@torch.library.custom_op("conformance::from_cpu", mutates_args=())
def from_cpu(x: Tensor) -> Tensor:
    return x + torch.ones(2).cuda()


@torch.library.custom_op("conformance::waiting", mutates_args=())
def waiting(x: Tensor) -> Tensor:
    torch.cuda.synchronize()
    return x * 2


@torch.library.custom_op("conformance::cuda_alone", mutates_args=(), device_types="cuda")
def cuda_alone(x: Tensor) -> Tensor:
    return x * 7


@torch.library.custom_op("conformance::cpu_alone", mutates_args=(), device_types="cpu")
def cpu_alone(x: Tensor) -> Tensor:
    return x * 7


@torch.library.custom_op("conformance::add_to", mutates_args=("x",))
def add_to(x: Tensor, y: Tensor) -> None:
    x.add_(y)


@torch.library.custom_op("conformance::random", mutates_args=())
def random(x: Tensor) -> Tensor:
    return torch.rand_like(x)


@torch.library.custom_op("conformance::twice", mutates_args=())
def twice(x: Tensor) -> Tensor:
    return double(double(x))


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
library.define("in_place(Tensor(a!) x) -> Tensor(a!)")
library.impl("in_place", lambda x: x.mul_(2), "CompositeExplicitAutograd")


@told([0, 1, 1])
def its_python_runs_once_at_the_capture():
    x = ones(2)
    counts = [len(calls)]
    replay = captured(lambda: double(x))
    counts.append(len(calls))
    replay()
    replay()
    return [*counts, len(calls)]


@told([False, True])
def its_python_knows_whether_it_is_captured():
    x = ones(2)
    double(x)
    captured(lambda: double(x))
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


@told([True, True])
def an_operator_draws_anew_at_each_replay():
    x = ones(64)
    replay = captured(lambda: random(x))
    first, second = replay().clone(), replay().clone()
    return [not torch.equal(first, second), bool((first < 1).all())]


@told([8, 8])
def an_operator_of_operators_is_replayed():
    x = ones(2)
    replay = captured(lambda: twice(x))
    x.fill_(2)
    return replay()


@told([[2, 2], [[True, True], [True, True]]])
def the_backward_function_of_an_operator_sees_cuda_tensors():
    x = ones(2, requires_grad=True)
    squared(x).sum().backward()
    return [x.grad.tolist(), calls]


@told([[2, 2], [6, 6]])
def the_backward_function_of_an_operator_is_captured():
    x = ones(2, requires_grad=True)
    replay = captured(lambda: torch.autograd.grad(squared(x).sum(), x)[0])
    first = replay().tolist()
    with torch.no_grad():
        x.fill_(3)
    return [first, replay().tolist()]


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


@told([2, 2])
def an_operator_made_of_others_has_a_gradient():
    x = ones(2, requires_grad=True)
    torch.ops.conformance.of_others(x).sum().backward()
    return x.grad


@told([[1, 1], [2, 2], [4, 4]])
def an_operator_in_place_by_a_schema():
    x = ones(2)
    replay = captured(lambda: torch.ops.conformance.in_place(x))
    before = x.tolist()
    replay()
    first = x.tolist()
    replay()
    return [before, first, x.tolist()]


@told([2, 2])
def an_operator_in_a_graphed_callable():
    x = ones(2)
    return torch.cuda.make_graphed_callables(lambda x: double(x), (x.clone(),))(x)


@told([[2, 2], [2, 2]])
def an_operator_under_inference_mode():
    x = ones(2)
    with torch.inference_mode():
        replay = captured(lambda: double(x))
        return [replay().tolist(), double(x).tolist()]


programs(
    an_operator_that_reads_is_refused_in_a_capture=(READ, lambda: captured_with(summed, ones(2))),
    an_operator_that_reads_in_eager=([2, 2], lambda: summed(ones(2))),
    an_operator_that_copies_from_the_cpu_is_refused_in_a_capture=(
        PAGEABLE,
        lambda: captured_with(from_cpu, ones(2)),
    ),
    an_operator_that_copies_from_the_cpu_in_eager=([2, 2], lambda: from_cpu(ones(2))),
    an_operator_that_waits_is_refused_in_a_capture=(READ, lambda: captured_with(waiting, ones(2))),
    an_operator_that_waits_in_eager=([2, 2], lambda: waiting(ones(2))),
    an_operator_of_the_cpu_on_the_cpu=([7, 7], lambda: cpu_alone(torch.ones(2))),
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
