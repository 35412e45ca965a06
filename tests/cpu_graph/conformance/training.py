"""Training in a graph: gradients, optimizers, mixed precision."""

import torch
from torch.optim import SGD, Adam, AdamW

from helpers.capture import unchanged
from tests.cpu_graph.conformance.common import ERROR, LOST, READ, SINCE_2_13, captured, layer, ones
from tests.cpu_graph.conformance.outcomes import program, programs
from tests.cpu_graph.conformance.sameness import warmed_up


def gradient_after_three(gradient, zero=None):
    """A weight's gradient after three replays of a backward pass that adds one to it."""
    net = layer()
    net.weight.grad = torch.zeros_like(net.weight) if gradient else None

    def step():
        if zero:
            zero(net)
        net(ones(1, 4)).sum().backward()

    replay = captured(step)
    for _ in range(3):
        replay()
    return net.weight.grad[0, 0]


@program(3, shows="Gradients that grow")
def gradients_that_are_there_grow():
    return gradient_after_three(gradient=True)


@program(1)
def gradients_zeroed_in_the_capture():
    return gradient_after_three(True, lambda net: net.zero_grad(set_to_none=False))


@program([False, 1])
def zero_grad_outside_takes_the_gradients_away():
    net = layer()
    replay = captured(lambda: net(ones(1, 4)).sum().backward())
    kept = net.weight.grad
    net.zero_grad(set_to_none=True)
    replay()
    return [net.weight.grad is not None, kept[0, 0].item()]


@program(2)
def two_micro_batches_in_one_capture():
    net = layer()

    def step():
        net.zero_grad()
        for _ in range(2):
            net(ones(1, 4)).sum().backward()

    replay = captured(step)
    replay()
    replay()
    return net.weight.grad[0, 0]


@program([3, 0], shows="A capture that trains once more")
def a_warm_up_moves_the_state():
    def batches_seen(restore):
        norm = torch.nn.BatchNorm1d(4, device="cuda")
        start = {name: value.clone() for name, value in norm.state_dict().items()}
        for _ in range(3):
            norm(ones(8, 4))
        captured(lambda: norm(ones(8, 4)))
        if restore:
            norm.load_state_dict(start)
        return norm.num_batches_tracked.item()

    return [batches_seen(False), batches_seen(True)]


@program([1, 100, 4, 344], shows="An optimizer state made in the capture")
def a_capture_makes_the_state_of_adam():
    def state_after_four(warm_up):
        weight = torch.nn.Parameter(ones(1))
        weight.grad = ones(1)
        optimizer = Adam([weight], capturable=True)
        if warm_up:
            optimizer.step()
        replay = captured(optimizer.step)
        for _ in range(4 - warm_up):
            replay()
        state = optimizer.state[weight]
        return [int(state["step"]), round(1000 * state["exp_avg"].item())]

    return state_after_four(False) + state_after_four(True)


@program([2, 1], shows="A library that runs different code in a capture")
def a_library_asks_for_a_capture():
    def scaled(scale=None):
        if scale is None:
            scale = 2 if torch.cuda.is_current_stream_capturing() else 1
        return ones(1) * scale

    return [captured(scaled)().item(), captured(lambda: scaled(1))().item()]


def equal_to_eager(make, **options):
    """Whether five replays of a step give eager's losses, its state restored after a warm-up."""

    def losses(graph):
        torch.manual_seed(0)
        net = torch.nn.Sequential(
            torch.nn.Linear(8, 16), torch.nn.Dropout(0.5), torch.nn.Linear(16, 1)
        ).cuda()
        inputs, target = torch.randn(5, 4, 8, device="cuda"), ones(4, 1)
        optimizer, static = make(net.parameters(), **options), inputs[0].clone()

        def step():
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(net(static), target)
            loss.backward()
            optimizer.step()
            return loss.detach()

        with unchanged(net, optimizer):
            warmed_up(step)
        run = captured(step) if graph else step
        torch.cuda.manual_seed(1)
        found = []
        for batch in inputs:
            static.copy_(batch)
            found.append(run().item())
        return found

    return losses(graph=True) == losses(graph=False)


@program(
    [
        "RuntimeError: Attempting CUDA graph capture of step() for an "
        "instance of Adam but param_groups'"
    ]
)
def adam_without_capturable():
    return equal_to_eager(Adam, lr=0.01)


programs(
    fused_sgd_equals_eager=(True, lambda: equal_to_eager(SGD, lr=0.1, momentum=0.9, fused=True)),
    capturable_adamw_equals_eager=(True, lambda: equal_to_eager(AdamW, lr=0.01, capturable=True)),
)


def train_with(optimizer_type, **options):
    net = layer()
    optimizer = optimizer_type(net.parameters(), **options)

    def step():
        optimizer.zero_grad()
        net(ones(1, 4)).sum().backward()
        optimizer.step()
        return net.weight

    return captured(step)()[0, 0].item() * 2


@program(READ)
def sgd_with_a_tensor_as_learning_rate():
    return train_with(SGD, lr=torch.tensor(0.5, device="cuda"))


@program(1)
def fused_sgd_with_a_tensor_as_learning_rate():
    return train_with(SGD, lr=torch.tensor(0.5, device="cuda"), fused=True)


def clip(**options):
    net = layer()

    def step():
        net(ones(1, 4)).sum().backward()
        return torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0, **options)

    return captured(step)()


programs(
    clipping_that_raises_an_error=(READ, lambda: clip(error_if_nonfinite=True)),
    clipping_that_does_not=(4, clip),
)


def scaled(**options):
    net, scaler = layer(), torch.amp.GradScaler(init_scale=2.0)
    optimizer = SGD(net.parameters(), lr=0.5, **options)
    scaler.scale(ones(1))

    def step():
        scaler.scale(net(ones(1, 4)).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        return net.weight[0, 0] * 2

    return captured(step)()


programs(
    a_gradient_scaler_that_looks=(READ, scaled),
    a_gradient_scaler_with_a_fused_optimizer=(1, lambda: scaled(fused=True)),
)


def after_update(cache):
    net, x = layer(), ones(1, 4)
    with torch.autocast("cuda", torch.bfloat16, cache_enabled=cache):
        net(x)
        replay = captured(lambda: net(x)[0, 0])
        with torch.no_grad():
            net.weight.mul_(2)
        return replay().item()


@program(4, shows="A weight in the cache of autocast")
def a_weight_in_autocasts_cache():
    return after_update(cache=True)


@program(8)
def a_weight_not_in_autocasts_cache():
    return after_update(cache=False)


OF_DEFAULT_STREAM = (
    [
        "RuntimeError: During CUDA graph capture, autograd node 'torch::autograd::AccumulateGrad' "
        "has a stale reference"
    ]
    if SINCE_2_13
    else [
        f"{ERROR}operation would make the legacy stream depend on a capturing blocking stream",
        *LOST,
    ]
)


@program(OF_DEFAULT_STREAM)
def a_gradient_that_remembers_the_default_stream():
    """It is added in a capture while a loss of an earlier eager step is kept."""
    net = layer()
    kept = net(ones(1, 4)).sum()

    def step():
        net.zero_grad()
        net(ones(1, 4)).sum().backward()
        return net.weight.grad[0]

    return captured(step)() + 0 * kept.detach()
