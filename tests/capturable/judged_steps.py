"""Steps with a fault each, and steps without, for preflight to judge; the truth about them is a
capture's.

A step is made by a function of the device, which returns a Case. Its fault is on the line that
ends with "# here". Single operators are rows of tables, here and in test_contexts.py.
"""

import functools
import itertools
import time
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import clip_grad_norm_
from torch.utils.checkpoint import checkpoint

N, D = 4, 6  # rows and columns of most batches


class Case(NamedTuple):
    """A step and two batches of its inputs."""

    step: Callable
    inputs: tuple
    other_inputs: tuple


class Kind(NamedTuple):
    """How a step is made, the rules of which one names its fault (none for a step without one), and
    whether a CPU shows it.

    words: what is in the finding of a fault; it then need not be on the line that is marked.
    """

    make: Callable[[str], Case]
    rules: tuple[str, ...] = ()
    on_cpu: bool = True
    words: str = ""


STEPS: dict[str, Kind] = {}


def fault(*rules: str, **options: Any) -> Callable:
    """Register a step with a fault that one of these rules names."""

    def register(make: Callable[[str], Case]) -> Callable:
        STEPS[make.__name__] = Kind(make, rules, **options)
        return make

    return register


clean = fault()


def numbers(device: str, *shape: int) -> torch.Tensor:
    """Random numbers that lie apart from zero."""
    return torch.randn(shape, device=device) + 0.01


def on_batches(step: Callable, device: str, shape: tuple[int, ...] = (N, D)) -> Case:
    """A case of a step that takes one tensor."""
    return Case(step, (numbers(device, *shape),), (numbers(device, *shape),))


def of_one_operator(*rules: str, **rows: tuple[tuple, Callable]) -> None:
    """Register steps of one operator: name=(shape of its tensor, step). rules: as in fault."""
    for name, (shape, step) in rows.items():
        STEPS[name] = Kind(partial(on_batches, step, shape=shape), rules)


def adamw(parameters: Any) -> torch.optim.Optimizer:
    rate = torch.tensor(1e-3, device=parameters[0].device)
    return torch.optim.AdamW(parameters, rate, capturable=True)


def trains(loss_of: Callable) -> Callable:
    """Make a case of the loss of a model, which a step minimises."""

    @functools.wraps(loss_of)
    def make(device: str) -> Case:
        model = nn.Linear(D, D).to(device)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        def step(x: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = loss_of(model, x)
            loss.backward()
            optimizer.step()
            return loss.detach()

        return on_batches(step, device)

    return make


def symmetric(x: torch.Tensor) -> torch.Tensor:
    """A positive definite matrix."""
    return x @ x.mT + torch.eye(x.shape[-1], device=x.device)


# ------------------------------------------------------------------ single operators


of_one_operator(
    "sync",
    solves=((4, 4), lambda x: torch.linalg.solve(symmetric(x), x)),  # here
    eigenvalues=((4, 4), lambda x: torch.linalg.eigh(symmetric(x)).eigenvalues),  # here
    singular_values=((5, 4), lambda x: torch.linalg.svdvals(x)),  # here
    pseudo_inverse=((5, 4), lambda x: torch.linalg.pinv(x)),  # here
    least_squares=((6, 3), lambda x: torch.linalg.lstsq(x, x[:, :1]).solution),  # here
    general_eigenvalues=((4, 4), lambda x: torch.linalg.eigvals(x).abs().sort().values),  # here
    range_of_tensors=((8,), lambda x: torch.linspace(x.min(), 9, 5, device=x.device)),  # here
    to_sparse=((4, 4), lambda x: x.relu().to_sparse().sum()),  # here
    membership=((50,), lambda x: torch.isin(x.long(), torch.arange(99, device=x.device))),  # here
)
of_one_operator("frozen number", clock=((4,), lambda x: x * (time.perf_counter() % 1)))  # here
until_2_14 = () if torch.__version__ >= "2.14" else ("sync",)  # std was checked on the CPU
of_one_operator(*until_2_14, normal_of_tensors=((8,), lambda x: torch.normal(x, x.abs())))  # here
of_one_operator(
    histogram_with_a_range=((40,), lambda x: torch.histc(x, 8, min=-3, max=3)),
    median_without_nans=((8,), lambda x: x - x.nanmedian()),
    interpolation=((2, 3, 4, 4), partial(F.interpolate, scale_factor=2.0, mode="bilinear")),
    spectrogram=((2, 64), lambda x: torch.stft(x, 16, window=x[0, :16], return_complex=True)),
    embedding_with_a_norm=((6, 4), lambda x: F.embedding(x.long().abs(), x * 2, max_norm=1.0)),
    jacobian=((4,), torch.func.jacrev(lambda x: x.tanh() * x.sum())),
    sampled_without_a_wait=((N, D), lambda x: (x / x.clone().exponential_(1)).argmax(-1)),
)


# ------------------------------------------------------------------ values that freeze


@fault("shape", "frozen number", "path")
def lengths_among_the_inputs(device):
    def step(x, lengths):
        return torch.stack([part.sum() for part in x.split(lengths)])  # here

    return Case(step, (numbers(device, 6), [3, 2, 1]), (numbers(device, 6), [1, 1, 4]))


@fault("frozen number")
def number_in_a_dictionary(device):
    def step(batch):
        return batch["x"] * batch["weight"]  # here

    light, heavy = ({"x": numbers(device, 4), "weight": weight} for weight in (0.5, 2.0))
    return Case(step, (light,), (heavy,))


class Scaled:
    scale = 1.0

    def __call__(self, x):
        return x * self.scale  # here

    def train(self, batches):
        for x in batches:
            self(x)
            self.scale *= 0.5


@fault("frozen number")
def number_that_the_loop_changes(device):
    return on_batches(Scaled(), device)


class Switched:
    with_l1 = False

    def __call__(self, x):
        loss = x.square().mean()
        return loss + x.abs().mean() if self.with_l1 else loss  # here

    def train(self, batches):
        for number, x in enumerate(batches):
            if number == 100:
                self.with_l1 = True
            self(x)


@fault("path")
def flag_that_the_loop_sets(device):
    return on_batches(Switched(), device)


@fault("path", words="what follows was not compared")
def every_second_step(device):
    run = SimpleNamespace(n=0)

    def step(x):
        run.n += 1
        return x.relu() if run.n % 2 else x.sigmoid()

    return on_batches(step, device)


def _cycled(device: str, optimizer: Callable, scheduler: Callable) -> Case:
    model = nn.Linear(D, D).to(device)
    optimizer = optimizer([*model.parameters()])
    scheduler = scheduler(optimizer)

    def step(x):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    step.scheduler = scheduler
    return on_batches(step, device)


@fault("frozen number", words="cycle_momentum=False")
def one_cycle(device):
    scheduler = torch.optim.lr_scheduler.OneCycleLR
    return _cycled(device, adamw, partial(scheduler, max_lr=1e-2, total_steps=100))


@fault("frozen number", words="cycle_momentum=False")
def cyclic_momentum(device):
    rate = torch.tensor(1e-3, device=device)
    optimizer = partial(torch.optim.SGD, lr=rate, momentum=0.9, fused=True)
    scheduler = torch.optim.lr_scheduler.CyclicLR
    return _cycled(device, optimizer, partial(scheduler, base_lr=1e-3, max_lr=1e-2))


# ------------------------------------------------------------------ Python that runs once


class Counted:
    n = 0

    def __call__(self, x):
        self.n += 1  # here
        return x * 2


@fault("CPU work", words="n changes")
def counter_of_a_class(device):
    return on_batches(Counted(), device)


@fault("CPU work", words="numbers changes")
def an_iterator(device):
    numbers = itertools.count()

    def step(x):
        return x * (next(numbers) % 2 == 0)

    return on_batches(step, device)


@fault("CPU work", words="calls changes")
def an_attribute_of_the_function(device):
    def step(x):
        step.calls = getattr(step, "calls", 0) + 1
        return x * 2

    return on_batches(step, device)


# ------------------------------------------------------------------ memory that moves


@fault("shape", "moved tensor")
def growing_cache(device):
    kept = SimpleNamespace(keys=torch.zeros(0, D, device=device))

    def step(x):
        kept.keys = torch.cat([kept.keys, x])  # here
        return (x @ kept.keys.T).softmax(-1) @ kept.keys

    return on_batches(step, device)


@fault("moved tensor")
def buffers_that_change_places(device):
    run = SimpleNamespace(front=torch.zeros(D, device=device), back=torch.ones(D, device=device))

    def step(x):
        run.back.copy_(0.5 * run.front + x.mean(0))
        run.front, run.back = run.back, run.front  # here
        return run.front * 1

    return on_batches(step, device)


@fault("moved tensor", words="inputs[0]['h'] is at another address")
def an_output_under_the_name_of_an_input(device):
    def step(data):
        h = torch.tanh(data["h"] + data["x"])
        data["y"] = h.sum(-1)
        data["h"] = h

    batch, other = ({"x": numbers(device, N), "h": numbers(device, N)} for _ in range(2))
    return Case(step, (batch,), (other,))


# ------------------------------------------------------------------ what a step may not contain


@fault("sync")
def backward_of_a_masked_scatter(device):
    weight = nn.Parameter(torch.ones(N * D, device=device))

    def step(x):
        weight.grad = None
        spread = torch.zeros_like(x).masked_scatter(x > 0, weight)
        spread.sum().backward()  # here

    return on_batches(step, device)


def _compiled(device: str, **options: Any) -> Case:
    return on_batches(partial(torch.compile(nn.Linear(D, D, device=device), **options)), device)


for options, setting in (
    ({"mode": "reduce-overhead"}, "reduce-overhead"),
    ({"backend": "cudagraphs"}, "cudagraphs"),
    ({"options": {"triton.cudagraphs": True}}, "triton.cudagraphs"),
):
    STEPS[f"compiled with {setting}"] = Kind(
        partial(_compiled, **options), ("graph",), words=setting
    )


@fault("inputs", words="inputs[0]")
def input_made_under_inference_mode(device):
    with torch.inference_mode():
        x = numbers(device, N)
    return Case(lambda x: x * 2, (x,), (numbers(device, N),))


# ------------------------------------------------------------------ what a graph can take


@clean
def cache_written_at_a_row_of_positions(device):
    cache, at = torch.zeros(N, 8, D, device=device), torch.zeros(1, dtype=int, device=device)

    @torch.inference_mode()
    def step(x):
        cache.index_copy_(1, at, x.unsqueeze(1))
        at.add_(1).remainder_(8)
        return cache.sum(1)

    return on_batches(step, device)


@clean
@trains
def checkpointed_in_half(model, x):
    with torch.autocast(x.device.type, dtype=torch.bfloat16):
        return checkpoint(model, x, use_reentrant=False).float().square().mean()


@clean
@trains
def penalty_on_gradients(model, x):
    points = x.detach().requires_grad_()
    (slope,) = torch.autograd.grad(model(points).sum(), points, create_graph=True)
    return (slope.norm(dim=1) - 1).square().mean()


@clean
@trains
def labels_made_on_the_gpu(model, x):
    labels = (torch.arange(N, device=x.device) + N // 2) % N
    views = F.normalize(model(x), dim=1)
    return F.cross_entropy(views @ views.T, labels, label_smoothing=0.1, ignore_index=-1)


@clean
def micro_batches_with_clipping(device):
    model = nn.Linear(D, D).to(device)
    optimizer, log = adamw([*model.parameters()]), {}

    def step(x):
        optimizer.zero_grad()
        for part in x.chunk(2):
            loss = model(part).square().mean() / 2
            loss.backward()
        clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        log["loss"] = loss.detach()

    return on_batches(step, device)


# ------------------------------------------------------------------ a GPU shows these, a CPU does
# not


@fault("sync", on_cpu=False)
def copies_out(device):
    def step(x):
        x.mul(2).to("cpu")  # here
        return x * 2

    return on_batches(step, device)


@fault("stream", on_cpu=False)
def stream_without_a_join(device):
    side = torch.cuda.Stream() if device == "cuda" else None

    def step(x):
        if side is None:
            return x * 2
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            return x * 2  # here

    return on_batches(step, device)


@fault("frozen number", on_cpu=False)
def scalar_on_the_cpu(device):
    scale = torch.tensor(2.0)

    def step(x):
        scale.add_(1)
        return x * scale  # here

    return on_batches(step, device)


@fault("copy")
def positions_made_on_the_cpu(device):
    table = nn.Embedding(N, D).to(device)

    def step(x):
        positions = torch.arange(len(x)).to(x.device)  # here
        return x + table(positions)

    return on_batches(step, device)


@clean
def pinned_copy(device):
    host = torch.randn(D).pin_memory() if device == "cuda" else torch.randn(D)
    return on_batches(lambda x: x + host.to(x.device, non_blocking=True), device)


@clean
def two_streams_joined(device):
    side = torch.cuda.Stream() if device == "cuda" else None

    def step(x):
        if side is None:
            return x * 2 + x.relu()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            y = x * 2
        z = x.relu()
        torch.cuda.current_stream().wait_stream(side)
        return y + z

    return on_batches(step, device)


@fault("moved tensor")
def state_bound_twice(device):
    state = {"mean": torch.zeros(D, device=device)}

    def step(x):
        state["mean"] = state["mean"] * 0.9
        state["mean"] = state["mean"] + x.mean(0)  # here
        return x * 2

    return on_batches(step, device)


@fault("path")
def branch_on_a_counter_of_its_own(device):
    made = SimpleNamespace(count=3)

    def step(x):
        if made.count % 4 == 0:  # here
            x = x.relu()
        made.count += 1
        return x * 2

    return on_batches(step, device)


@fault("frozen number")
def counter_in_a_dict(device):
    made = {"count": 0}

    def step(x):
        return x * min(1.0, made["count"] / 10)  # here

    def train(batches):
        for batch in batches:
            made["count"] += 1
            step(batch)

    assert train
    return on_batches(step, device)
