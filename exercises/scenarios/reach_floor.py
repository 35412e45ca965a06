"""Scenarios: variants of a training step, to write or to repair."""

import copy
from collections.abc import Callable, Iterator
from contextlib import nullcontext

import torch
from torch import nn
from torch.nn.functional import mse_loss

from exercises.answers.graph_use import AnswerCalls, call_answer, watch_graphs
from exercises.answers.tensors import are_close, copy_tensors, describe_first_difference
from exercises.answers.wrong import Wrong
from exercises.scenarios.common import draw_int, require_one_pool
from exercises.scenarios.eager import draw_batches, losses_of, make_sgd_step, perceptron, sgd
from exercises.scenarios.rules import refuse_grad, unmodified
from exercises.scenarios.warm_ups import require_untrained

OLD_WEIGHTS = (
    "Later steps train with the bfloat16 weights of the first: autocast "
    "keeps them until its block ends."
)


def judge_graph_per_buffer(answer: Callable) -> None:
    """A few buffers, which a loader fills again and again, and a step of plain SGD."""
    net, count = perceptron(), draw_int(2, 5)
    batches = draw_batches(3 * count)
    buffers = copy_tensors(batches[:count])
    firsts = [batches[i - i % count] for i in range(3 * count)]
    expected, stale, only_first = (
        losses_of(net, sgd, fed) for fed in (batches, 3 * batches[:count], firsts)
    )
    with require_untrained(net), watch_graphs() as building:
        train = answer(make_sgd_step(net), net, buffers)
    require_one_pool(building)

    def loaded() -> Iterator[int]:
        for number, batch in enumerate(batches):
            for buffer, new in zip(buffers[number % count], batch, strict=True):
                buffer.copy_(new)
            yield number % count

    used = call_answer(train, loaded())
    used.require_results(
        expected,
        {
            "Each graph reads a copy that was made once: let it read the buffer itself.": stale,
            "Every call trains on the first buffer: capture one graph for each.": only_first,
        },
    )
    replays_only = used.counts["graphs"] and not used.seen.captured
    if replays_only and used.counts["operators"] > 2 * len(batches):
        raise Wrong("It copies the batch in every call: let each graph read its buffer in place.")
    used.require_launches(graphs=len(batches), operators=len(batches))


def judge_bf16_steps_in_one_graph(answer: Callable) -> None:
    """Three stacks of k batches under autocast; the learning rate is high, so old weights show."""
    net, steps = perceptron(nn.Tanh()), draw_int(3, 6)
    batches = draw_batches(3 * steps)
    stacks = _batches_in_stacks(batches, steps)
    each, around, without = (
        list(torch.stack(_autocast_losses(net, batches, steps, where)).reshape(-1, steps))
        for where in ("each step", "all steps", "nothing")
    )
    optimizer, dropped = _sgd_with_high_rate(net), []
    zero_grad = optimizer.zero_grad

    def noted(*args, **options):
        dropped.append(torch.cuda.is_current_stream_capturing())
        return zero_grad(*args, **options)

    optimizer.zero_grad = noted
    with require_untrained(net):
        train = answer(net, optimizer, *stacks[0])
    used = _use_on_stacks(train, stacks, steps)
    if not any(dropped) and not are_close(used.given, each):
        raise Wrong(
            "No zero_grad is captured.", "It looks as if each step adds to the last gradient."
        )
    if are_close(used.given, around) and not are_close(around, each):
        raise Wrong(describe_first_difference(used.given, each), OLD_WEIGHTS)
    if _distance(used.given, without) < 0.1 * _distance(each, without):
        raise Wrong("The products run in float32.", "Keep the forward pass under autocast.")
    used.require_results(each)
    refuse_grad(used.kept)
    used.require_launches(graphs=3, operators=18)


def _sgd_with_high_rate(net):
    return torch.optim.SGD(net.parameters(), lr=0.5)


def _autocast_losses(net, batches, steps, where):
    """The losses of an eager training of a copy of net; where autocast is entered and left."""
    twin = copy.deepcopy(net)
    optimizer, losses = _sgd_with_high_rate(twin), []

    def autocast(there):
        return torch.autocast("cuda", torch.bfloat16) if there == where else nullcontext()

    for first in range(0, len(batches), steps):
        with autocast("all steps"):
            for inputs, targets in batches[first : first + steps]:
                optimizer.zero_grad()
                with autocast("each step"):
                    loss = mse_loss(twin(inputs), targets)
                loss.backward()
                optimizer.step()
                losses.append(loss.detach())
    return losses


def _batches_in_stacks(batches, steps):
    """Pairs of stacks, (steps, rows, columns)."""
    return [
        tuple(map(torch.stack, zip(*batches[i : i + steps], strict=True)))
        for i in range(0, len(batches), steps)
    ]


def _use_on_stacks(train: Callable, stacks: list[tuple], steps: int) -> AnswerCalls:
    def losses_of_stack(*stack):
        losses = train(*stack)
        if torch.is_tensor(losses) and losses.numel() == 1 < steps:
            raise Wrong(
                f"It returns one loss where {steps} are asked.", "Keep the loss of every step."
            )
        if isinstance(losses, list | tuple) and losses:
            return torch.stack(list(losses))
        return losses

    with unmodified("inputs or targets", stacks):
        return call_answer(losses_of_stack, stacks)


def _distance(these, those):
    return sum((a - b).abs().sum().item() for a, b in zip(these, those, strict=True))
