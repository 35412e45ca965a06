"""Scenarios: an iteration of several microbatches, and
its validation. Each raises Wrong with what it finds.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from course.answers.graph_use import EVERY_TIME_THE_FIRST, Used, Wrong, close, copied, parting, use
from course.scenarios.common import few, perceptron

DREW = "The warm-up drew from the generator: put its state back."
EVAL = "Training has no dropout: capture it in training mode."
DROPOUT = "Validation has dropout: capture it after net.eval()."
LAST = "The gradients are those of the last microbatch alone: do not zero them within the graph."


class Mask(nn.Module):
    """A dropout of a quarter that draws from a generator of its own."""

    def __init__(self, generator: torch.Generator):
        super().__init__()
        self.generator = generator

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x itself in eval mode."""
        drawn = (
            torch.rand(x.shape, device=x.device, generator=self.generator)
            if self.training
            else 0 * x
        )
        return x * (drawn < 0.75) / (0.75 if self.training else 1)


def masked() -> tuple[nn.Module, torch.Generator]:
    """A network with such a dropout and gradients of zero, and its generator."""
    generator = torch.Generator("cuda").manual_seed(few(1, 1000))
    net = perceptron(Mask(generator))
    for parameter in net.parameters():
        parameter.grad = torch.zeros_like(parameter)
    return net, generator


def gradients(net: nn.Module) -> list:
    """What .grad holds."""
    return [parameter.grad for parameter in net.parameters()]


def loss_of(net: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    """The loss that the exercises name."""
    return net(inputs).square().mean()


def iterate_eagerly(net: nn.Module, group: list, zero_between: bool = False) -> torch.Tensor:
    """The losses of some microbatches; their gradients add up, unless they are zeroed between."""
    losses = []
    for inputs in group:
        if zero_between:
            net.zero_grad(set_to_none=False)
        loss = loss_of(net, inputs) / len(group)
        loss.backward()
        losses.append(loss.detach())
    return torch.stack(losses)


def iterations(net: nn.Module, iterate: Callable, groups: list, own: list) -> tuple[Used, list]:
    """How iterate was used, and the gradients after
    each call; the caller zeroes its own before each.
    """
    found = []

    def asked(*group):
        torch._foreach_zero_(own)
        given = iterate(list(group))
        found.append(copied(own))
        return torch.stack(list(given)) if isinstance(given, list | tuple) and given else given

    used = use(asked, [tuple(group) for group in groups])
    if any(gradient is not mine for gradient, mine in zip(gradients(net), own, strict=True)):
        raise Wrong(
            "It replaced .grad: add to the gradients that exist, because the caller zeroes and "
            "reads those."
        )
    return used, found


def capture_iteration(answer: Callable) -> None:
    """A network whose dropout has a generator, and five iterations of two to four microbatches."""
    (net, generator), count = masked(), few(2, 5)
    groups = list(torch.randn(5, count, few(), 4, device="cuda"))
    own = gradients(net)
    start = generator.get_state()
    used, sums = iterations(net, partial(iterate_eagerly, net), groups, own)
    expected = used.given
    generator.set_state(start)
    iterate = answer(net, generator, list(copied(groups[0])))
    if not torch.equal(generator.get_state(), start):
        raise Wrong(DREW)
    used, found = iterations(net, iterate, groups, own)
    if used.given[0].numel() != count:
        raise Wrong(
            f"It gives {used.given[0].numel()} losses where {count} are asked: one for each "
            "microbatch."
        )
    whole = [count * losses for losses in expected]
    used.gives(
        expected,
        {EVERY_TIME_THE_FIRST: [expected[0]] * 5, "Divide each loss by the number of them.": whole},
    )
    if not close(found, sums):
        generator.set_state(start)
        lasts = iterations(net, partial(iterate_eagerly, net, zero_between=True), groups, own)[1]
        raise Wrong(
            LAST
            if close(found, lasts)
            else "The gradients are not eager's. " + parting(found, sums)
        )
    used.replays(graphs=5, operators=5 * (3 * count + 4))


def in_turns(net: nn.Module, inputs: list, train: Callable, validate: Callable) -> Used:
    """How the two were used: a pair of losses for each
    input, with a step of plain SGD between the two.
    """

    def turn(batch):
        net.zero_grad(set_to_none=False)
        trained = train(batch)
        with torch.no_grad():
            torch._foreach_add_(list(net.parameters()), gradients(net), alpha=-0.1)
        before = copied(gradients(net))
        validated = validate(batch)
        if not close(gradients(net), before):
            raise Wrong("Validation changes the gradients: it is to have no backward pass.")
        return trained, validated

    return use(turn, inputs, what="Each")


def in_modes(net: nn.Module, *modes: bool) -> list[Callable]:
    """Eager training and validation, each with dropout or without."""

    def run(loss, mode, batch):
        net.train(mode)
        result = loss(net, batch).detach()
        net.train()
        return result

    both = (lambda net, batch: iterate_eagerly(net, [batch])[0], loss_of)
    return [partial(run, *pair) for pair in zip(both, modes, strict=True)]


def train_and_validate(answer: Callable) -> None:
    """The same network, trained and validated in turns."""
    net, generator = masked()
    inputs, start = list(torch.randn(4, few(), 4, device="cuda")), generator.get_state()
    weights, results = copied(list(net.parameters())), []
    for modes in ((True, False), (True, True), (False, False)):
        results.append(in_turns(net, inputs, *in_modes(net, *modes)).given)
        generator.set_state(start)
        with torch.no_grad():
            torch._foreach_copy_(list(net.parameters()), weights)
    pair = answer(net, generator, inputs[0].clone())
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise Wrong("Two functions are asked: return train, validate.")
    if not torch.equal(generator.get_state(), start):
        raise Wrong(DREW)
    if not net.training:
        raise Wrong(
            "The network stays in eval mode: call net.train() after the capture of the validation."
        )
    used = in_turns(net, inputs, *pair)
    used.gives(results[0], {DROPOUT: results[1], EVAL: results[2]})
    used.replays(graphs=2 * len(inputs), operators=20 * len(inputs))
