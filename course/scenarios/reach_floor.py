"""Scenario: several steps in one graph. It raises Wrong with the symptom it finds."""

from collections.abc import Callable

import torch
from torch.nn.functional import mse_loss

from course.answers.graph_use import Wrong, close, copied, use
from course.scenarios.common import TRAINED, draw_batches, few, losses_of, momentum, perceptron


def steps_in_one_graph(answer: Callable) -> None:
    """Three stacks of k batches, and a step of plain SGD that the answer is given."""
    net, steps = perceptron(), few(2, 5)
    parameters, batches = list(net.parameters()), draw_batches(3 * steps)

    def step(inputs, targets):
        loss = mse_loss(net(inputs), targets)
        with torch.no_grad():
            for parameter, gradient in zip(
                parameters, torch.autograd.grad(loss, parameters), strict=True
            ):
                parameter -= 0.1 * gradient
        return loss.detach()

    stacks = [
        tuple(map(torch.stack, zip(*batches[i : i + steps], strict=True)))
        for i in range(0, 3 * steps, steps)
    ]
    before = copied(net.state_dict())
    firsts = [batches[i - i % steps] for i in range(3 * steps)]
    expected, repeated = (
        list(torch.stack(losses_of(net, lambda own: momentum(own, 0), fed)).reshape(3, steps))
        for fed in (batches, firsts)
    )
    train = answer(step, net, *copied(stacks[0]))
    if not close(net.state_dict(), before):
        raise Wrong(TRAINED)
    used = use(lambda *stack: _stacked(train(*stack), steps), stacks)
    used.gives(
        expected,
        {"Every step trains on the first batch: step number i is to read inputs[i].": repeated},
    )
    used.replays(graphs=3, operators=18)


def _stacked(losses, steps):
    if torch.is_tensor(losses) and losses.numel() == 1 < steps:
        raise Wrong(f"It gives one loss where {steps} are asked: keep the loss of every step.")
    return torch.stack(list(losses)) if isinstance(losses, list | tuple) and losses else losses
