"""make_graphed_callables."""

import torch

from tests.cpu_graph.conformance.common import graphed, layer, ones
from tests.cpu_graph.conformance.outcomes import program, programs


def sample():
    return (ones(2, 4),)


def first_part_trains(requires_grad):
    first, second = layer(), layer()
    second = graphed(second, (ones(2, 4).requires_grad_(requires_grad),))
    second(first(ones(2, 4))).sum().backward()
    return first.weight.grad is not None


@program(False, shows="A partial graph that stops training")
def a_sample_without_a_gradient_stops_training():
    return first_part_trains(False)


@program(True)
def a_sample_with_a_gradient_lets_it_pass():
    return first_part_trains(True)


def accumulated(own_grad):
    net = graphed(layer(), sample())
    if own_grad:
        net.weight.grad = torch.zeros_like(net.weight)
    for factor in (1, 2):
        net(ones(2, 4) * factor).sum().backward()
    return net.weight.grad[0, 0]


@program(8, shows="Accumulated gradients that are wrong")
def gradients_accumulate_in_the_graphs_memory():
    return accumulated(own_grad=False)


@program(6)
def gradients_accumulate_in_memory_of_their_own():
    return accumulated(own_grad=True)


def gradient_of_first(forwards):
    net = graphed(layer(), sample())
    losses = [net(ones(2, 4) * factor).sum() for factor in (1, 3)[:forwards]]
    losses[0].backward()
    return net.weight.grad[0, 0]


@program(6, shows="Two forwards before one backward")
def two_forwards_before_one_backward():
    return gradient_of_first(forwards=2)


@program(2)
def one_forward_before_its_backward():
    return gradient_of_first(forwards=1)


def calls_in_three(place):
    net, calls = graphed(torch.nn.Sequential(layer(), layer()), sample()), []
    net.get_submodule(place).register_forward_hook(lambda *_: calls.append(place))
    for _ in range(3):
        net(*sample())
    return len(calls)


programs(
    a_hook_on_a_part_never_fires=(0, lambda: calls_in_three("0"), "A hook that never fires"),
    a_hook_on_the_whole_fires=(3, lambda: calls_in_three("")),
)


def python_calls(mode_of_graph):
    net, calls = torch.nn.Sequential(layer()).train(mode_of_graph), []
    forward = net.forward
    net.forward = lambda x: calls.append(1) or forward(x)
    net = graphed(net, sample())
    calls.clear()
    for _ in range(3):
        net.eval()(*sample())
    return len(calls)


@program(3, shows="A model in the other mode")
def the_other_mode_runs_eagerly():
    return python_calls(mode_of_graph=True)


@program(0)
def the_same_mode_replays():
    return python_calls(mode_of_graph=False)


def dtype_of_result(graphed_under):
    with torch.autocast("cuda", torch.bfloat16, cache_enabled=False, enabled=graphed_under):
        net = graphed(layer(), sample())
    with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
        return str(net(*sample()).dtype)


@program("torch.float32", shows="Autocast only round the call")
def autocast_only_round_the_call():
    return dtype_of_result(graphed_under=False)


@program("torch.bfloat16")
def autocast_round_the_graphing_too():
    return dtype_of_result(graphed_under=True)


@program(128, shows="One row that becomes many")
def one_row_becomes_many():
    return graphed(layer(), (ones(8, 4),))(ones(1, 4)).sum().detach()


def scaled_by(x, scale=None):
    return x + 0 if scale is None else x * scale


@program([1, 5], shows="An argument too many")
def an_argument_too_many_is_dropped():
    return [
        graphed(scaled_by, args)(ones(4), ones(4) * 5)[0].item()
        for args in ((ones(4),), (ones(4), ones(4)))
    ]


@program(["AssertionError: Modules must not have hooks registered at the time they are passed."])
def a_hook_before_graphing():
    net = layer()
    net.register_forward_hook(lambda *_: None)
    graphed(net, sample())


@program(
    [
        "RuntimeError: trying to differentiate twice a function that was marked with "
        "@once_differentiable"
    ]
)
def a_gradient_of_a_gradient():
    net, inputs = graphed(layer(), (ones(2, 4).requires_grad_(),)), ones(2, 4).requires_grad_()
    slope = torch.autograd.grad(net(inputs).square().sum(), inputs, create_graph=True)[0]
    slope.sum().backward()


def losses(graph):
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Dropout(0.5), torch.nn.Linear(16, 1)
    )
    net, inputs = net.cuda(), torch.randn(5, 4, 8, device="cuda")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net = graphed(net, (inputs[0].clone(),)) if graph else net
    torch.cuda.manual_seed(1)
    found = []
    for batch in inputs:
        optimizer.zero_grad()
        loss = net(batch).square().mean()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


@program(True)
def training_a_graphed_model_equals_eager():
    return losses(graph=True) == losses(graph=False)
