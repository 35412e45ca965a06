"""Scenarios: graphs of parts of a model. Each raises Wrong with what it finds."""

import copy
from collections.abc import Callable

import torch
from torch import nn

from course.answers.graph_use import EAGER, EVERY_TIME_THE_FIRST, Wrong, close, copied, use, watch
from course.scenarios.common import accumulated_gradients, draw_batches, few

NO_GRADIENT = (
    "The part before the graph gets no gradient and does not train: its sample must require one."
)
NO_BACKWARD = (
    "The graphed part gets no gradient: captured by hand, its forward pass has no backward."
)
OTHER_SHAPE = (
    "The gradients are not eager's: does the sample have the shape of what the part before returns?"
)


class Decides(nn.Module):
    """A layer that reads a value, so that it cannot be captured."""

    def __init__(self, fan_in: int = 4):
        super().__init__()
        self.layer = nn.Linear(fan_in, 8)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """(rows, fan_in) to (rows, 8)."""
        hidden = self.layer(inputs)
        return hidden.sin() if hidden.sum().item() > 0 else hidden.cos()


def graph_middle(answer: Callable) -> None:
    """Three parts, of which the first reads a value; four passes, each compared with eager."""
    middle = nn.Sequential(*[nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(few(1, 4))])
    net = nn.Sequential(Decides(), middle, nn.Linear(8, 2)).cuda()
    twin, batches = copy.deepcopy(net), draw_batches(4)
    net, _ = _graphed(answer, net, batches)
    for batch in batches:
        found, expected, replayed = _one_pass(net, twin, batch)
        if not replayed:
            raise Wrong(EAGER)
        if any(gradient is None for gradient in found[2:-2]):
            raise Wrong(NO_BACKWARD)
        if found[0] is None:
            raise Wrong(NO_GRADIENT)
        if len(replayed) != 2:
            raise Wrong(
                f"{len(replayed)} graphs were launched where one forward and one backward would do."
            )
        if not close(found, expected):
            raise Wrong(OTHER_SHAPE)


def graph_second(answer: Callable) -> None:
    """Two parts, of which the second has dropout; four passes, each compared with eager."""
    net = nn.Sequential(
        nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3)),
        nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 2)),
    ).cuda()
    twin, batches = copy.deepcopy(net), draw_batches(4)
    net, _ = _graphed(answer, net, batches)
    if not all(module.training for module in net.modules()):
        raise Wrong("The model that you return is in eval() mode, so it trains without dropout.")
    for batch in batches:
        found, expected, replayed = _one_pass(net, twin, batch)
        if not replayed:
            raise Wrong(
                f"{EAGER} A graphed part replays only in the mode, train() or eval(), in which it "
                "was graphed."
            )
        if found[0] is None:
            raise Wrong(NO_GRADIENT)
        if not close(found, expected):
            raise Wrong(
                "The gradients are not eager's: is the dropout of the graphed part in train() mode "
                "while it is graphed?"
            )


def graph_around(answer: Callable) -> None:
    """Three parts, of which the one in the middle reads
    a value; four passes, each compared with eager.
    """
    first = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh())
    last = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2))
    net = nn.Sequential(first, Decides(8), last).cuda()
    twin, batches = copy.deepcopy(net), draw_batches(4)
    net, captured = _graphed(answer, net, batches)
    for batch in batches:
        found, expected, replayed = _one_pass(net, twin, batch)
        if not replayed:
            raise Wrong(EAGER)
        if any(gradient is None for gradient in found):
            raise Wrong(
                "What is before the last part gets no gradient and does not train: the sample of "
                "the last part must require one."
            )
        if len(replayed) != 4:
            raise Wrong(
                f"{len(replayed)} graphs were launched, not 4: each of the two parts has one for "
                "its forward pass and one for its backward pass."
            )
        if len({graph.pool() for graph in replayed}) > 1:
            raise Wrong("The parts are in different pools: pass both in one call, as a tuple.")
        if replayed != [graph for graph in captured if graph in replayed]:
            raise Wrong(
                "The graphs share a pool but are replayed in a different order than they were "
                "captured in, so they overwrite each other: pass the parts in one tuple, in the "
                "order in which they run."
            )
        if not close(found, expected):
            raise Wrong(OTHER_SHAPE)


def make_solver(answer: Callable) -> None:
    """A round that halves the distance to its end, and four inputs of different sizes."""
    layer = nn.Linear(4, 4, bias=False).cuda().requires_grad_(False)
    nn.init.orthogonal_(layer.weight, gain=0.5)
    sizes = [0.1, 10.0, 1.0, 0.1]
    inputs = [size * torch.randn(few(), 4, device="cuda") for size in sizes[:1]]
    inputs += [size * torch.randn_like(inputs[0]) for size in sizes[1:]]
    warm_ups = 0

    def one_round(z, x):
        nonlocal warm_ups
        warm_ups += not torch.cuda.is_current_stream_capturing()
        new = torch.tanh(layer(z)) + x
        moved = (new - z).abs().max()
        z.copy_(new)
        return moved

    def solve(x, z):
        rounds = 1
        while one_round(z, x) > 0.01:
            rounds += 1
        return rounds

    expected = [torch.zeros_like(x) for x in inputs]
    rounds = [solve(x, z) for x, z in zip(inputs, expected, strict=True)]
    warm_ups = 0
    sample = inputs[0].clone()
    solver = answer(one_round, sample)
    warmed_up = warm_ups > 0
    used = use(solver, inputs)
    if not close(sample, inputs[0]):
        raise Wrong("It overwrites the x that it was given: capture a clone of x.")
    replayed = used.counts["graphs"]
    if replayed and not warmed_up:
        raise Wrong("It captures without a warm-up: call one_round once before the capture.")
    if replayed and not used.seen.captured and replayed != sum(rounds):
        _tell_rounds(used, inputs, expected, rounds, one_round)
    used.replays(graphs=sum(rounds), operators=8 * len(inputs) + 4 * sum(rounds))
    used.gives(expected, {EVERY_TIME_THE_FIRST: [expected[0]] * len(inputs)})


def _tell_rounds(used, inputs, expected, rounds, one_round):
    """Raises Wrong: why it replays more or fewer rounds than eager takes."""
    z, going_on = torch.zeros_like(inputs[0]), []
    for x in inputs:
        while one_round(z, x) > 0.01:
            pass
        going_on.append(z.clone())
    if close(used.given, going_on) and not close(going_on, expected):
        raise Wrong("Each answer starts from the one before: set z to zero before the first round.")
    if close(used.given, [expected[0]] * len(inputs)):
        raise Wrong(EVERY_TIME_THE_FIRST)
    raise Wrong(
        f"{used.counts['graphs']} rounds were replayed where eager takes {sum(rounds)}: replay one "
        "round, read how far z has moved, and decide."
    )


def _graphed(answer, net, batches):
    """The net with its graphs, and the graphs in the order of their captures."""
    before = copied(net.state_dict())
    with watch() as seen:
        answered = answer(net, batches[0][0].clone())
    net = answered if isinstance(answered, nn.Module) else net
    if not close(list(net.parameters()), [before[name] for name, _ in net.named_parameters()]):
        raise Wrong("It changes weights.")
    return net, seen.captured


def _one_pass(net, twin, batch):
    """The gradients of a pass, those of eager, and the graphs that the pass replayed."""
    seed = int(torch.randint(1000, ()))
    for module in (net, twin):
        module.zero_grad()
    torch.manual_seed(seed)
    expected = accumulated_gradients(twin, [batch])
    torch.manual_seed(seed)
    with watch() as seen:
        found = accumulated_gradients(net, [batch])
    return found, expected, seen.replayed
