"""Scenarios: graphs of a model, of a part of one, of all but the optimizer. Each raises Wrong with what it finds."""

import copy
from collections.abc import Callable
from functools import partial

import torch
from torch import nn
from torch.nn.functional import mse_loss

from course.scenarios.first_graphs import few
from course.scenarios.training import DREW, TRAINED, draw_batches, losses_of, momentum, perceptron
from course.symptoms import EAGER, Wrong, close, copied, use, watch


def gradients(net: nn.Module, batches: list) -> list:
    """The gradients of all batches, added up; None where there is no gradient."""
    for inputs, targets in batches:
        mse_loss(net(inputs), targets).backward()
    return [None if parameter.grad is None else copied(parameter.grad) for parameter in net.parameters()]


def graph_for_accumulation(answer: Callable) -> None:
    """A model with batch normalisation, and an ordinary loop of three steps with two micro-batches each."""
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2)).cuda()
    twin, batches = copy.deepcopy(net), draw_batches(6)
    before = copied(net.state_dict())
    graphed = answer(net, batches[0][0].clone())
    if not isinstance(graphed, nn.Module):
        raise Wrong(f"The graphed module is to be returned, not a {type(graphed).__name__}.")
    if not close(graphed.state_dict(), before):
        raise Wrong("The warm-up moved the running statistics of batch normalisation: put the buffers back in place.")
    for pair in (batches[:2], batches[2:4], batches[4:]):
        for module in (graphed, twin):
            module.zero_grad(set_to_none=False)
        expected = gradients(twin, pair)
        with watch() as seen:
            found = gradients(graphed, pair)
        _added(found, expected, seen)
    if not close(graphed.state_dict(), twin.state_dict()):
        raise Wrong("The running statistics are not eager's after the training.")


def _added(found, expected, seen):
    """Raises Wrong unless the gradients of two graphed passes are those of two eager ones."""
    if not seen.replayed:
        raise Wrong(f"{EAGER} A graphed module replays in the mode that it was graphed in.")
    if any(gradient is None for gradient in found):
        raise Wrong("A parameter has no gradient.")
    if not close(found, expected):
        raise Wrong(
            "The second micro-batch wrote over the first one's gradient: .grad was None, and became the graph's own "
            "memory. Give every parameter a .grad of zeros beforehand."
        )


class Decides(nn.Module):
    """A layer that reads a value, so that it cannot be captured."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 8)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """(rows, 4) to (rows, 8)."""
        hidden = self.layer(inputs)
        return hidden.sin() if hidden.sum().item() > 0 else hidden.cos()


def graph_middle(answer: Callable) -> None:
    """Three parts, of which the first reads a value; four passes, each compared with eager."""
    middle = nn.Sequential(*[nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(few(1, 4))])
    net = nn.Sequential(Decides(), middle, nn.Linear(8, 2)).cuda()
    twin, batches = copy.deepcopy(net), draw_batches(4)
    before = copied(net.state_dict())
    answered = answer(net, batches[0][0].clone())
    net = answered if isinstance(answered, nn.Module) else net
    if not close(list(net.parameters()), list(before.values())):
        raise Wrong("It changes weights.")
    for batch in batches:
        for module in (net, twin):
            module.zero_grad()
        expected = gradients(twin, [batch])
        with watch() as seen:
            found = gradients(net, [batch])
        _trains(found, expected, seen)


def _trains(found, expected, seen):
    """Raises Wrong unless all three parts get the right gradients, and the middle replays two graphs."""
    if not seen.replayed:
        raise Wrong(EAGER)
    if any(gradient is None for gradient in found[2:-2]):
        raise Wrong("The graphed part gets no gradient: captured by hand, its forward pass has no backward.")
    if found[0] is None:
        raise Wrong("The part before the graph gets no gradient and does not train: its sample must require one.")
    if len(seen.replayed) != 2:
        raise Wrong(f"{len(seen.replayed)} graphs were launched where one forward and one backward would do.")
    if not close(found, expected):
        raise Wrong("The gradients are not eager's: does the sample have the shape of what the first part gives?")


RATES = [0.1 / 2**number for number in range(5)]  # of the steps below


def graph_without_optimizer(answer: Callable) -> None:
    """A network with dropout; before each of five steps the loop sets the optimizer's rate, a Python number."""
    net, batches = perceptron(nn.Dropout(0.5)), draw_batches(5)
    random, before = torch.cuda.get_rng_state(), copied(net.state_dict())
    expected, symptoms = _trained(copy.deepcopy(net), batches, random)
    torch.cuda.set_rng_state(random)
    optimizer, stepped = momentum(net.parameters()), []
    optimizer.register_step_post_hook(lambda *_: stepped.append(True))
    train = answer(net, optimizer, *copied(batches[0]))
    if not close(net.state_dict(), before):
        raise Wrong(TRAINED)
    if not torch.equal(torch.cuda.get_rng_state(), random):
        raise Wrong(DREW)

    def step(rate, *batch):
        optimizer.param_groups[0]["lr"] = rate
        return train(*batch)

    used = use(step, [(rate, *batch) for rate, batch in zip(RATES, batches, strict=True)])
    if not stepped:
        raise Wrong("Nothing calls optimizer.step().")
    used.gives(expected, symptoms)
    used.replays(graphs=5, operators=5 * 25)


def _trained(net, batches, random):
    """The losses of an eager training, and functions that give those that each mistake leads to."""

    def losses(rates, batches=batches):
        torch.cuda.set_rng_state(random)
        return losses_of(net, momentum, batches, rates)

    return losses(RATES), {
        "The rate stays that of the capture: leave optimizer.step() outside of the graph.": partial(
            losses, RATES[:1] * 5
        ),
        "The weights never move: after the replay .grad must be there for optimizer.step().": partial(
            losses, [0.0] * 5
        ),
        "Every step trains on the first batch: copy the new one into the static inputs.": partial(
            losses, RATES, batches[:1] * 5
        ),
    }
