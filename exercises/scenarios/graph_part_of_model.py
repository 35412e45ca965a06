"""Scenarios: graphs of parts of a model."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from exercises.answers.graph_use import call_answer, raise_symptom, watch_graphs
from exercises.answers.tensors import are_close, copy_tensors
from exercises.answers.wrong import EAGER, EVERY_TIME_THE_FIRST, Wrong, require_function
from exercises.scenarios.common import NO_WARM_UP, Runs, draw_int
from exercises.scenarios.eager import accumulated_gradients, draw_batches
from exercises.scenarios.rules import unmodified
from exercises.scenarios.warm_ups import Net

NO_GRADIENT = (
    "The part before the graph gets no gradient and does not train.",
    "What does the graph return for its input?",
)
OTHER_SHAPE = (
    "The gradients are not the eager ones: does the sample have the shape "
    "of what the part before returns?"
)
OTHER_DROPOUT = (
    "The gradients are not the eager ones.",
    "Is the dropout of the graphed part in train() mode while it is graphed?",
)
OTHER_MODE = (EAGER, "The part was graphed: what has changed since then?")
GOES_ON = "Each answer starts from the one before: set z to zero before the first round."
MOST_ROUNDS = 200


class Decides(nn.Module):
    """A layer that reads a value, so that it cannot be captured."""

    def __init__(self, fan_in: int = 4):
        super().__init__()
        self.layer = nn.Linear(fan_in, 8)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """(rows, fan_in) to (rows, 8)."""
        hidden = self.layer(inputs)
        return hidden.sin() if hidden.sum().item() > 0 else hidden.cos()


def judge_graph_second(answer: Callable) -> None:
    """Two parts, of which the second has dropout; four passes, each compared with eager."""
    second = Net(nn.Linear(8, 8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 2))
    net = nn.Sequential(nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3)), second).cuda()
    _judge_passes(answer, net, differs=OTHER_DROPOUT)


def judge_graph_around(answer: Callable) -> None:
    """Three parts, of which the one in the middle reads a value; four passes, each compared with
    eager.
    """
    first = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh())
    last = Net(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2))
    net = nn.Sequential(first, Decides(8), last).cuda()

    def check(found, replayed, captured):
        if any(gradient is None for gradient in found):
            raise Wrong(NO_GRADIENT)
        if len(replayed) != 4:
            raise Wrong(
                f"{len(replayed)} graphs were launched, not {4}: each part has one for its forward "
                "pass and one for its backward pass."
            )
        if len({graph.pool() for graph in replayed}) > 1:
            raise Wrong("The parts are in different pools: pass both in one call, as a tuple.")
        if replayed != [graph for graph in captured if graph in replayed]:
            raise Wrong(
                "The graphs share a pool but are replayed in a different order than they were "
                "captured in, so they overwrite each other: pass the parts in one tuple, in the "
                "order in which they run."
            )

    _judge_passes(answer, net, check)


def _judge_passes(answer, net, check=lambda *_: None, differs=OTHER_SHAPE):
    """Raises Wrong unless each pass of the answer's net gives eager's gradients, from graphs.

    check(gradients of a pass, graphs that it replayed, graphs that were captured) looks for more.
    """
    twin, batches = copy.deepcopy(net), draw_batches(4)
    sample = batches[0][0].clone()
    with unmodified("inputs", sample):
        net, captured = _build_graphed_net(answer, net, sample)
        warmed_up = Net.runs > 0
        if not all(module.training for module in net.modules()):
            raise Wrong(
                "The model that you return is in eval() mode, so it trains without dropout.",
                "Return it in train() mode.",
            )
        for batch in batches:
            found, expected, replayed = _one_pass(net, twin, batch)
            if not replayed:
                raise Wrong(OTHER_MODE if captured else EAGER)
            check(found, replayed, captured)
            if found[0] is None:
                raise Wrong(NO_GRADIENT)
            if not warmed_up:
                raise Wrong(NO_WARM_UP)
            if not are_close(found, expected):
                raise Wrong(differs)


class FixedPointRound:
    """A round in place, which halves the distance of z to its end and returns how far z moved."""

    def __init__(self):
        self.layer = nn.Linear(4, 4, bias=False).cuda().requires_grad_(False)
        nn.init.orthogonal_(self.layer.weight, gain=0.5)

    def __call__(self, z: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """z and x: (rows, 4)."""
        new = torch.tanh(self.layer(z)) + x
        moved = (new - z).abs().max()
        z.copy_(new)
        return moved

    def solve(self, z: torch.Tensor, x: torch.Tensor) -> int:
        """Run rounds until z hardly moves; return how many."""
        rounds = 1
        while self(z, x) > 0.01:
            rounds += 1
        return rounds


def judge_make_solver(answer: Callable) -> None:
    """Four inputs of different sizes, so that they need different numbers of rounds."""
    one_round, rows = FixedPointRound(), draw_int()
    inputs = [size * torch.randn(rows, 4, device="cuda") for size in (0.1, 10.0, 1.0, 0.1)]
    expected = [torch.zeros_like(x) for x in inputs]
    rounds = [one_round.solve(z, x) for z, x in zip(expected, inputs, strict=True)]
    noted = Runs(one_round)
    sample = inputs[0].clone()
    with unmodified("x", sample):
        with watch_graphs() as seen:
            solver = answer(noted, sample)
        with _count_replays_per_call(solver) as (counted, replayed_in):
            used = call_answer(counted, inputs)
    replayed = used.counts["graphs"]
    if seen.captured and not replayed:
        raise Wrong(
            "No round is replayed: what one_round returned in the capture has no value of this "
            "call before the first replay. Replay once, then read it."
        )
    if replayed and not used.seen.captured:
        if noted.cold:
            raise Wrong(NO_WARM_UP)
        if replayed_in != rounds:
            _raise_rounds_symptom(used, inputs, expected, rounds, replayed_in, one_round)
    used.require_launches(graphs=sum(rounds), operators=8 * len(inputs) + 4 * sum(rounds))
    used.require_results(expected)


@contextmanager
def _count_replays_per_call(solver: Callable) -> Iterator[tuple]:
    """The solver, and a list that gets the number of replays of each call.

    Raises Wrong at a replay that no call can need.
    """
    replay, counts = torch.cuda.CUDAGraph.replay, []

    def call(x):
        counts.append(0)
        return require_function(solver)(x)

    def counting(graph):
        counts[-1] += 1
        if counts[-1] > MOST_ROUNDS:
            raise Wrong(
                f"Call {len(counts)} replays more than {MOST_ROUNDS} rounds: does each round go on "
                "from the z of the one before?"
            )
        return replay(graph)

    with patch.object(torch.cuda.CUDAGraph, "replay", counting):
        yield call, counts


def _raise_rounds_symptom(used, inputs, expected, rounds, replayed_in, one_round):
    """Raises Wrong with why a call replays more or fewer rounds than eager takes."""
    z, going_on = torch.zeros_like(inputs[0]), []
    for x in inputs:
        one_round.solve(z, x)
        going_on.append(z.clone())
    first_again = expected[:1] * len(inputs)
    raise_symptom(used.given, [(GOES_ON, going_on), (EVERY_TIME_THE_FIRST, first_again)])
    number = [a == b for a, b in zip(replayed_in, rounds, strict=True)].index(False)
    raise Wrong(
        f"Call {number + 1} replays {replayed_in[number]} rounds where eager takes "
        f"{rounds[number]}. Does each call begin with zeros in the graph's z, and does it decide "
        "after every round?"
    )


def _build_graphed_net(answer, net, sample):
    """The net with its graphs, these in the order of their captures.

    Raises Wrong if a sample has a history.
    """
    before = copy_tensors(net.state_dict())
    Net.runs = 0
    with watch_graphs() as seen, _record_samples() as samples:
        answered = answer(net, sample)
    if any(one.grad_fn is not None for one in samples):
        raise Wrong(
            "A sample has a history.",
            "It keeps the autograd graph of the part before it alive, and a later capture of that "
            "part would fail.",
        )
    net = answered if isinstance(answered, nn.Module) else net
    if not are_close(list(net.parameters()), [before[name] for name, _ in net.named_parameters()]):
        raise Wrong("It changes weights.")
    return net, seen.captured


@contextmanager
def _record_samples() -> Iterator[list]:
    """The tensors that the block passes to make_graphed_callables as samples."""
    samples: list = []
    make = torch.cuda.make_graphed_callables

    def made(callables, sample_args, *args, **options):
        samples.extend(leaf for leaf in tree_leaves(sample_args) if torch.is_tensor(leaf))
        return make(callables, sample_args, *args, **options)

    with patch.object(torch.cuda, "make_graphed_callables", made):
        yield samples


def _one_pass(net, twin, batch):
    """The gradients of a pass, those of eager, and the graphs that the pass replayed."""
    seed = int(torch.randint(1000, ()))
    for module in (net, twin):
        module.zero_grad()
    torch.manual_seed(seed)
    expected = accumulated_gradients(twin, [batch])
    torch.manual_seed(seed)
    with watch_graphs() as seen:
        found = accumulated_gradients(net, [batch])
    return found, expected, seen.replayed
