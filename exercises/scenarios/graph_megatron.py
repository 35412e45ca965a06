"""Scenarios: graphs of several models, training and its validation."""

import copy
from collections.abc import Callable, Iterable
from functools import partial

import torch
from torch import nn

from exercises.answers.graph_use import AnswerCalls, call_answer, watch_graphs
from exercises.answers.tensors import are_close, are_equal, copy_tensors
from exercises.answers.wrong import EVERY_TIME_THE_FIRST, Wrong
from exercises.scenarios.common import as_functions, draw_int
from exercises.scenarios.eager import grads_of, perceptron
from exercises.scenarios.rules import refuse_grad, unmodified
from helpers.capture import unchanged

EVAL = "Training has no dropout: capture it in training mode."
DROPOUT = "Validation has dropout: capture it after net.eval()."
STALE_WEIGHTS = (
    "Validation computes with the weights of the capture: its graph has to read the tensors that "
    "training updates, not copies of them."
)
FIRST_MODEL = ("The second model gets the first one's graph.", "Each needs a graph of its own.")


class DropoutWithGenerator(nn.Module):
    """A dropout of a quarter that draws from a generator of its own."""

    def __init__(self, generator: torch.Generator):
        super().__init__()
        self.generator = generator

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x itself in eval mode."""
        if not self.training:
            return x
        drawn = torch.rand(x.shape, device=x.device, generator=self.generator)
        return x * (drawn < 0.75) / 0.75


def net_with_zero_gradients(*between: nn.Module) -> nn.Module:
    """A network with gradients of zero."""
    net = perceptron(*between)
    for parameter in net.parameters():
        parameter.grad = torch.zeros_like(parameter)
    return net


def loss_of(net: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    """The loss that the exercises name."""
    return net(inputs).square().mean()


def backpropagate_loss(net: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    """The loss of a batch, whose gradients are added to those of net."""
    loss = loss_of(net, inputs)
    loss.backward()
    return loss.detach()


def make_iteration(net: nn.Module) -> Callable:
    """A function of a batch: zeroes the gradients of net, adds new ones, returns the loss."""

    def iterate(inputs):
        torch._foreach_zero_(grads_of(net))
        return backpropagate_loss(net, inputs)

    return iterate


def warm_up_each(calls: Iterable[Callable], batches: list) -> None:
    """Call each function twice, with two batches of its own. Raises Wrong if that raises."""
    for number, call in enumerate(calls):
        for batch in batches[2 * number : 2 * number + 2]:
            try:
                call(batch)
            except RuntimeError as error:
                raise Wrong(
                    f"A batch with a different number of rows raises: {str(error).splitlines()[0]}",
                    "Give each number of rows its own graph, with its own static input.",
                ) from error


def judge_in_graphs(answer: Callable) -> None:
    """Two networks, each with an iteration that zeroes its own gradients, used in turns; then the
    same with batches of two numbers of rows.
    """
    nets, rows = [net_with_zero_gradients(), net_with_zero_gradients()], draw_int()
    batches = list(torch.randn(8, rows, 4, device="cuda"))
    longer = list(torch.randn(8, rows + 2, 4, device="cuda"))
    iterates = [make_iteration(net) for net in nets]
    requests = [(number % 2, inputs) for number, inputs in enumerate(batches[4:])]
    expected = [iterates[number](inputs).clone() for number, inputs in requests]
    sums = [copy_tensors(grads_of(net)) for net in nets]
    first = [iterates[0](inputs).clone() for _, inputs in requests]
    frozen = [iterates[number](batches[2 * number]).clone() for number, _ in requests]
    with unmodified("batch", batches, longer), watch_graphs() as built:
        graphed = answer(list(iterates))
        calls = as_functions(graphed, "one for the first network", "one for the second")
        for number, inputs in enumerate(batches[:4]):
            calls[number // 2](inputs)
        used = call_answer(
            lambda number, inputs: calls[number](inputs), requests, what="A function"
        )
        used.require_results(expected, {FIRST_MODEL: first, EVERY_TIME_THE_FIRST: frozen})
        if not are_close([grads_of(net) for net in nets], sums):
            raise Wrong("The gradients are not the eager ones.")
        used.require_launches(graphs=len(requests), operators=3 * len(requests))
        mixed = [pair for both in zip(batches[4:], longer[4:], strict=True) for pair in both]
        _require_graph_per_size(calls, iterates, longer, mixed)
    if len(built.captured) > 4:
        raise Wrong(
            f"It captures {len(built.captured)} graphs for two models with two numbers of rows "
            "each.",
            "Capture each number of rows once for each model.",
        )


def _require_graph_per_size(calls, iterates, longer, mixed):
    """Raises Wrong unless each model replays its own graph for each number of rows."""
    requests = [(number // 2 % 2, inputs) for number, inputs in enumerate(mixed)]
    expected = [iterates[number](inputs).clone() for number, inputs in requests]
    warm_up_each(calls, longer)
    used = call_answer(lambda number, inputs: calls[number](inputs), requests, what="A function")
    used.require_results(expected)
    if used.seen.captured or not used.seen.replayed:
        raise Wrong(
            "It starts again when a number of rows comes back.",
            "Keep the graph of each number of rows, and capture each once.",
        )
    used.require_launches(graphs=len(requests), operators=3 * len(requests))


def require_accumulation(
    train: Callable, batches: list, own: list, generator: torch.Generator
) -> None:
    """Raises Wrong if a second call does not add to the gradients of the first."""
    torch._foreach_zero_(own)
    train(batches[0])
    first, state = copy_tensors(own), generator.get_state()
    train(batches[1])
    both = copy_tensors(own)
    torch._foreach_zero_(own)
    generator.set_state(state)
    train(batches[1])
    if not are_close(both, [one + two for one, two in zip(first, own, strict=True)]):
        raise Wrong(
            "The graph sets the gradients to zero: leave that to the caller, who may add up "
            "several iterations."
        )


def take_turns(net: nn.Module, inputs: list, train: Callable, validate: Callable) -> AnswerCalls:
    """How the two were used: a pair of losses for each input, with a step of plain SGD between the
    two.
    """
    around = []

    def turn(batch):
        net.zero_grad(set_to_none=False)
        trained = train(batch)
        with torch.no_grad():
            torch._foreach_add_(list(net.parameters()), grads_of(net), alpha=-0.1)
        before = copy_tensors(grads_of(net))
        validated = validate(batch)
        around.append((before, copy_tensors(grads_of(net))))
        return trained, validated

    used = call_answer(turn, inputs, what="Each")
    if not all(are_equal(*pair) for pair in around):
        raise Wrong("Validation changes the gradients.", "It is to have no backward pass.")
    return used


def eager_pair(net: nn.Module, *modes: bool) -> list[Callable]:
    """Eager training and validation, each with dropout or without."""

    def run(loss, mode, batch):
        net.train(mode)
        result = loss(net, batch).detach()
        net.train()
        return result

    return [partial(run, *pair) for pair in zip((backpropagate_loss, loss_of), modes, strict=True)]


def capture_and_record_modes(net: nn.Module, capture: Callable) -> tuple:
    """What capture() gives, and the modes of its forward passes: (training, gradients on).

    A validation in training mode draws, which an unregistered generator refuses; we say why.
    """
    modes = []
    hook = net.register_forward_pre_hook(
        lambda net, given: modes.append((net.training, torch.is_grad_enabled()))
    )
    try:
        return capture(), set(modes)
    except RuntimeError as error:
        if modes and modes[-1] == (True, False):
            raise Wrong(
                f"{DROPOUT} In training mode it draws, which ends here in: {error}"
            ) from error
        raise
    finally:
        hook.remove()


def judge_train_and_validate(answer: Callable) -> None:
    """The same network, trained and validated in turns."""
    generator = torch.Generator("cuda").manual_seed(draw_int(1, 1000))
    net = net_with_zero_gradients(DropoutWithGenerator(generator))
    inputs, start = list(torch.randn(4, draw_int(), 4, device="cuda")), generator.get_state()

    def eagerly(train, validate):
        with unchanged(net, generators=[generator]):
            return take_turns(net, inputs, train, validate).given

    expected, with_dropout, without = (
        eagerly(*eager_pair(net, *modes)) for modes in ((True, False), (True, True), (False, False))
    )
    frozen = copy.deepcopy(net).eval()
    stale = eagerly(eager_pair(net, True, False)[0], lambda batch: loss_of(frozen, batch).detach())
    sample = inputs[0].clone()
    with unmodified("inputs", sample, inputs):
        pair, seen = capture_and_record_modes(net, lambda: answer(net, generator, sample))
        train, validate = as_functions(pair, "train", "validate")
        if not torch.equal(generator.get_state(), start):
            raise Wrong("The warm-up drew from the generator: put its state back.")
        if not net.training:
            raise Wrong("The network stays in eval mode: call net.train() after the capture.")
        used = take_turns(net, inputs, train, validate)
    used.require_results(expected, {DROPOUT: with_dropout, EVAL: without, STALE_WEIGHTS: stale})
    if (False, True) in seen:
        raise Wrong(
            "Validation is captured with gradients on, so its graph keeps what a backward pass "
            "would need: capture it under torch.no_grad()."
        )
    refuse_grad(used.kept)
    used.require_launches(graphs=2 * len(inputs), operators=20 * len(inputs))
    require_accumulation(train, inputs, grads_of(net), generator)
