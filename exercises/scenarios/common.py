"""What several lessons' scenarios use: random sizes, a network and its eager training, what
warm-ups leave behind.
"""

import copy
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.functional import mse_loss

from cpu_graph import on_stand_in
from cpu_graph.nodes import Node
from exercises.answers.comparison import short_repr
from exercises.answers.graph_use import EAGER, GraphUse, Wrong, are_equal, copy_tensors
from helpers.capture import unchanged

TRAINED = (
    "The warm-up trained the model.",
    "Put its weights back in place, before the first replay.",
)
DREW = ("The warm-up drew random numbers.", "Put the random state back, before the first replay.")
FILLED = ("The warm-up filled the optimizer's momentum.", "Put it back to zero in place.")
ANEW = (
    "Each replay makes the optimizer's state anew.",
    "A step of warm-up must make it before the capture.",
)
NO_WARM_UP = (
    "It captures without a warm-up.",
    "Run what is captured once before the capture, because a library that is used for the first "
    "time cannot be set up in a capture.",
)
POOLS = ("Each graph has a pool of its own.", "Give the later ones the pool of the first.")
TOO_LARGE = (
    "A request goes through a graph that is too large.",
    "Take the smallest that holds it.",
)
WRITTEN_WHILE_READ = (
    "While the CPU reads a result, the copy of the next one may already write to the same memory.",
    "Copy the next one to other memory.",
)
ON_DEFAULT_STREAM = (
    "A warm-up ran on the default stream.",
    "AccumulateGrad may remember it, and the capture then fails with error 906: warm up on a side "
    "stream.",
)


@contextmanager
def untrained(net: nn.Module) -> Iterator[None]:
    """Raises Wrong if the warm-up of the block has trained net."""
    before = copy_tensors(net.state_dict())
    yield
    if not are_equal(net.state_dict(), before):
        raise Wrong(TRAINED)


def momentum_empty(optimizer: torch.optim.Optimizer) -> None:
    """Raises Wrong if the warm-up has left momentum."""
    if any(state["momentum_buffer"].count_nonzero() for state in optimizer.state.values()):
        raise Wrong(FILLED)


@contextmanager
def nothing_drawn() -> Iterator[None]:
    """Raises Wrong if the warm-up of the block has drawn on the GPU."""
    before = torch.cuda.get_rng_state()
    yield
    if not are_equal(torch.cuda.get_rng_state(), before):
        raise Wrong(DREW)


def not_eager(seen: GraphUse) -> None:
    """Raises Wrong if nothing was replayed."""
    if not seen.replayed:
        raise Wrong(EAGER)


def on_side_stream(streams: list) -> None:
    """Raises Wrong if a warm-up ran on the default stream."""
    if torch.cuda.default_stream() in streams:
        raise Wrong(ON_DEFAULT_STREAM)


class Runs:
    """A function that notes the stream of each of its runs, captured ones apart; cold: whether it
    was captured before it had run. graphs: those of seen in which it was captured.
    """

    def __init__(self, function: Callable, seen: GraphUse | None = None):
        self.function = function
        self.seen = seen
        self.graphs: list[torch.cuda.CUDAGraph] = []
        self.eager: list[torch.cuda.Stream] = []
        self.captured: list[torch.cuda.Stream] = []
        self.cold = False

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Run the function."""
        self.note()
        return self.function(*arguments, **named)

    def note(self) -> None:
        """Note a run."""
        capturing = torch.cuda.is_current_stream_capturing()
        self.cold |= capturing and not self.eager
        (self.captured if capturing else self.eager).append(torch.cuda.current_stream())
        if capturing and self.seen:
            self.graphs.append(self.seen.captured[-1])


def passes(net: nn.Module) -> tuple[Runs, Runs]:
    """The forward passes of a network and its copies from now on: all of them, and those that
    autograd records.
    """
    every, recorded = Runs(net), Runs(net)

    def note(_, inputs, outputs):
        every.note()
        if outputs.requires_grad:
            recorded.note()

    net.register_forward_hook(note)
    return every, recorded


class Net(nn.Sequential):
    """Layers that count their runs outside of captures, and those of their copies. A hook could
    not: make_graphed_callables refuses a module that has one.
    """

    runs = 0

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """The output of the layers."""
        Net.runs += not torch.cuda.is_current_stream_capturing()
        return super().forward(inputs)


def in_one_pool(seen: GraphUse) -> None:
    """Raises Wrong if captured graphs have different memory pools."""
    if len(seen.pools) > 1:
        raise Wrong(POOLS)


def smallest_that_holds(replayed: list, sizes: list[int], counts: list[int]) -> None:
    """Raises Wrong unless each size has a graph of its own, and each request of so many rows
    replayed the smallest that holds it.
    """
    fitting = [sizes[bisect_left(sizes, count)] for count in counts]
    graphs = dict(zip(fitting, replayed, strict=True))
    if len(set(graphs.values())) < len(sizes) or [graphs[size] for size in fitting] != replayed:
        raise Wrong(TOO_LARGE)


def tensors_of(given: Any, count: int, what: str = "losses") -> list:
    """What an answer returned, if it is a list of so many tensors, or one tensor of so many
    numbers.
    """
    is_flat = torch.is_tensor(given) and given.ndim == 1
    if not (isinstance(given, list | tuple) or is_flat) or not all(map(torch.is_tensor, given)):
        raise Wrong(f"A list of {what}, each a tensor, is asked, not {short_repr(given)}.")
    if len(given) != count:
        raise Wrong(f"It returns {len(given)} {what} where {count} are asked.")
    return list(given)


def whole_tokens(tokens: Iterable) -> None:
    """Raises Wrong if tokens are floats, which an embedding refuses."""
    if any(one.is_floating_point() for one in tokens):
        raise Wrong("The tokens are floats, which an embedding refuses.", "Return integers.")


def several(given: Any, *names: str) -> tuple:
    """What an answer returned, if it is as many values as there are names."""
    if not isinstance(given, tuple | list) or len(given) != len(names):
        raise Wrong(f"Return {len(names)} values: {', '.join(names)}.")
    return tuple(given)


def functions(given: Any, *names: str) -> tuple:
    """What an answer returned, if it is as many functions as there are names."""
    if not all(map(callable, several(given, *names))):
        raise Wrong(f"Return {len(names)} functions: {', '.join(names)}.")
    return tuple(given)


def replayed_for_each(seen: GraphUse, count: int, what: str = "batches") -> None:
    """Raises Wrong unless graphs were replayed as often as there are batches."""
    not_eager(seen)
    if len(seen.replayed) != count:
        raise Wrong(f"{len(seen.replayed)} replays for {count} {what}: each needs one.")


def few(low: int = 2, high: int = 7) -> int:
    """A number that the seed of the run chooses."""
    return int(torch.randint(low, high, ()))


def perceptron(*between: nn.Module) -> nn.Module:
    """Two layers on the GPU, from 4 to 2 numbers, with what is given between them."""
    return nn.Sequential(nn.Linear(4, 8), *between, nn.Linear(8, 2)).cuda()


def draw_batches(count: int) -> list:
    """Pairs of inputs (rows, 4) and targets (rows, 2) on the GPU; the seed of the run chooses the
    rows.
    """
    rows = few()
    return [
        (torch.randn(rows, 4, device="cuda"), torch.randn(rows, 2, device="cuda"))
        for _ in range(count)
    ]


def train_step(
    net: nn.Module, optimizer: torch.optim.Optimizer, inputs: torch.Tensor, targets: torch.Tensor
) -> torch.Tensor:
    """An eager step of training; returns its loss."""
    optimizer.zero_grad()
    loss = mse_loss(net(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.detach()


def losses_of(net: nn.Module, make: Callable, batches: Iterable, rates: list | None = None) -> list:
    """The losses of an eager training of a copy of net, which leaves the random state as it is."""
    net = copy.deepcopy(net)
    optimizer, losses = make(net.parameters()), []
    with unchanged():
        for number, (inputs, targets) in enumerate(batches):
            for group in optimizer.param_groups:
                group["lr"] = rates[number] if rates else group["lr"]
            losses.append(train_step(net, optimizer, inputs, targets))
    return losses


def sgd(parameters: Iterable) -> torch.optim.Optimizer:
    """SGD without a memory."""
    return torch.optim.SGD(parameters, lr=0.1)


def momentum(parameters: Iterable) -> torch.optim.Optimizer:
    """SGD with a memory."""
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def gradients(net: nn.Module) -> list:
    """What .grad holds; None where there is no gradient."""
    return [parameter.grad for parameter in net.parameters()]


def accumulated_gradients(net: nn.Module, batches: list) -> list:
    """The gradients of all batches, added up; None where there is no gradient."""
    for inputs, targets in batches:
        mse_loss(net(inputs), targets).backward()
    return copy_tensors(gradients(net))


def sgd_step(net: nn.Module) -> Callable:
    """A step of plain SGD on net, which leaves no .grad."""
    parameters = list(net.parameters())

    def step(inputs, targets):
        loss = mse_loss(net(inputs), targets)
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter -= 0.1 * gradient
        return loss.detach()

    return step


def nodes_of(seen: GraphUse) -> list[Node]:
    """The nodes of the captured graphs. The stand-in knows them; on a GPU the list is empty."""
    if on_stand_in() is None:
        return []
    return [node for graph in seen.captured for node in graph.capture.nodes]
