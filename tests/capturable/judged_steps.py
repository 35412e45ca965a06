"""Steps with a fault each, and steps without, for preflight to judge; the truth about them is a
capture's.

A step is made by a function of the device, which returns a Case. Its fault stands on the line that
ends with "# here".
"""

import io
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial, wraps
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import clip_grad_norm_


@dataclass
class Case:
    """A step, two batches of inputs, and what it changes: state() returns tensors and Python
    values."""

    step: Callable
    inputs: tuple = ()
    others: tuple | None = None
    kwargs: dict = field(default_factory=dict)
    other_kwargs: dict | None = None
    state: Callable[[], list] = list


@dataclass
class Kind:
    """How a step is made, the rules of which one names its fault ("" for none), and whether a CPU
    shows it.

    random: results differ from run to run.
    """

    make: Callable[[str], Case]
    rules: tuple[str, ...] = ()
    on_cpu: bool = True
    random: bool = False


STEPS: dict[str, Kind] = {}


def fault(*rules: str, **options: Any) -> Callable:
    """Register a step with a fault that one of these rules names."""

    def register(make: Callable[[str], Case]) -> Callable:
        STEPS[make.__name__] = Kind(make, rules, **options)
        return make

    return register


def clean(make: Callable | None = None, **options: Any) -> Callable:
    """Register a step without a fault."""
    if make is None:
        return partial(clean, **options)
    STEPS[make.__name__] = Kind(make, **options)
    return make


def of_one_operator(*rules: str, **rows: tuple[tuple, Callable]) -> None:
    """Register steps of one operator: name=(shape of its tensor, step). rules: as in fault."""
    for name, (shape, step) in rows.items():
        STEPS[name] = Kind(takes(*shape)(step), rules)


def numbers(device: str, *shape: int) -> torch.Tensor:
    """Random numbers that lie apart from zero."""
    return torch.randn(shape, device=device) + 0.01


def on_batches(step: Callable, device: str, *shape: int, state: Callable[[], list] = list) -> Case:
    """A case of a step that takes one tensor."""
    return Case(step, (numbers(device, *shape),), (numbers(device, *shape),), state=state)


def takes(*shape: int) -> Callable:
    """Make a case of a step that takes one tensor of this shape and keeps nothing."""

    def made(step: Callable) -> Callable[[str], Case]:
        @wraps(step)
        def make(device: str) -> Case:
            return on_batches(step, device, *shape)

        return make

    return made


def symmetric(x: torch.Tensor) -> torch.Tensor:
    """A positive definite matrix."""
    return x @ x.mT + torch.eye(x.shape[-1], device=x.device)


def trained(
    model: nn.Module, optimizer: Any, device: str, *shape: int, loss: Callable | None = None
) -> Case:
    """A training step on one tensor, without a target."""
    model.to(device)
    optimizer = optimizer(model.parameters())

    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        value = loss(model(x)) if loss else model(x).square().mean()
        value.backward()
        optimizer.step()  # here
        return value.detach()

    return on_batches(step, device, *shape, state=lambda: list(model.parameters()))


# ------------------------------------------------------------------ waits inside of operators


of_one_operator(
    "sync",
    solves=((4, 4), lambda x: torch.linalg.solve(symmetric(x), x)),  # here
    factorises=((4, 4), lambda x: torch.linalg.cholesky(symmetric(x))),  # here
    eigenvalues=((4, 4), lambda x: torch.linalg.eigh(symmetric(x)).eigenvalues),  # here
    singular_values=((5, 4), lambda x: torch.linalg.svdvals(x)),  # here
    pseudo_inverse=((5, 4), lambda x: torch.linalg.pinv(x)),  # here
    least_squares=((6, 3), lambda x: torch.linalg.lstsq(x, x[:, :1]).solution),  # here
    general_eigenvalues=((4, 4), lambda x: torch.linalg.eigvals(x).abs().sort().values),  # here
    histogram_without_a_range=((40,), lambda x: torch.histc(x, 8)),  # here
    tensor_that_fills=((8,), lambda x: x.masked_fill(x > 0, x.min())),  # here
    range_of_tensors=((8,), lambda x: torch.linspace(x.min(), 9, 5, device=x.device)),  # here
    to_sparse=((4, 4), lambda x: x.relu().to_sparse().sum()),  # here
    counts=((20,), lambda x: torch.bincount((x * 3).long().abs(), minlength=40)),  # here
    unique_values=((20,), lambda x: torch.unique((x * 2).long())),  # here
)


@fault("sync", "path")
@takes(8)
def compares_all(x):
    return x * 2 if torch.allclose(x, x.abs()) else x  # here


@(clean if torch.__version__ >= "2.14" else fault("sync"))  # until then, std is checked on the CPU
@takes(8)
def normal_of_tensors(x):
    return torch.normal(x, x.abs()).sign() * 0 + x  # here


@fault("sync", "frozen number", "copy")
def connectionist_loss(device):
    lengths = torch.tensor([5, 4], device=device), torch.tensor([3, 2], device=device)
    labels = torch.randint(1, 4, (2, 3), device=device)

    def step(x):
        return F.ctc_loss(x.log_softmax(-1), labels, *lengths)  # here

    return on_batches(step, device, 5, 2, 4)


@clean
def embedding_with_a_norm(device):
    table = nn.Embedding(10, 4, max_norm=1.0).to(device)

    def step(x):
        with torch.no_grad():
            return table((x.abs() * 3).long().clamp(max=9))

    return on_batches(step, device, 6)


@fault("sync")
@takes(50)
def membership(x):
    return torch.isin((x * 3).long(), torch.arange(100, device=x.device))  # here


@fault("sync")
def backward_of_a_masked_scatter(device):
    weight = nn.Parameter(torch.ones(16, device=device))

    def step(x):
        weight.grad = None
        spread = torch.zeros_like(x).masked_scatter(x > 0, weight)
        spread.sum().backward()  # here

    return on_batches(step, device, 16, state=lambda: [weight.grad])


@fault("sync")
def product_backward(device):
    weight = nn.Parameter(torch.ones(6, device=device))

    def step(x):
        weight.grad = None
        (x * weight).prod(1).sum().backward()  # here

    return on_batches(step, device, 4, 6, state=lambda: [weight.grad])


@fault("sync")
def backward_of_a_selection(device):
    weight = nn.Parameter(torch.ones(16, device=device))

    def step(x):
        weight.grad = None
        weight[x > 0].sum().backward()  # here

    return on_batches(step, device, 16, state=lambda: [weight.grad])


@fault("sync")
def clipping_that_raises(device):
    model = nn.Linear(4, 4).to(device)

    def step(x):
        model.zero_grad()
        model(x).sum().backward()
        clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)  # here

    return on_batches(step, device, 3, 4, state=lambda: [p.grad for p in model.parameters()])


@fault("sync")
def averaged_model(device):
    model = nn.Linear(4, 4).to(device)
    average = torch.optim.swa_utils.AveragedModel(model)

    def step(x):
        average.update_parameters(model)  # here
        return average(x)

    return on_batches(step, device, 3, 4, state=lambda: list(average.module.parameters()))


@fault("sync")
def progress_bar(device):
    shown = io.StringIO()

    def step(x):
        loss = x.square().mean()
        shown.write(f"{loss:.3f}")  # here
        return loss

    return on_batches(step, device, 8)


@fault("sync")
@takes(8)
def numpy_metric(x):
    best = x.detach().cpu().numpy().max()  # here
    return x / float(best)


@fault("sync")
@takes(12)
def indices_of_hits(x):
    (rows,) = torch.where(x > 0)  # here
    return x.index_select(0, rows).sum()


# ------------------------------------------------------------------ values that freeze


@fault("frozen number")
def temperature_in_a_closure(device):
    temperature = 1.0

    def step(x):
        nonlocal temperature
        temperature *= 0.9
        return (x / temperature).softmax(-1)  # here

    return on_batches(step, device, 3, 4, state=lambda: [temperature])


@fault("frozen number")
def number_among_the_inputs(device):
    def step(x, scale):
        return x * scale  # here

    return Case(step, (numbers(device, 4), 0.1), (numbers(device, 4), 0.7))


@fault("path", "frozen number")
def flag_among_the_inputs(device):
    def step(x, train):
        return x.relu() if train else x.tanh()  # here

    return Case(step, (numbers(device, 4), True), (numbers(device, 4), False))


@fault("shape", "frozen number", "path")
def lengths_among_the_inputs(device):
    def step(x, lengths):
        return torch.stack([part.sum() for part in x.split(lengths)])  # here

    return Case(step, (numbers(device, 6), [3, 2, 1]), (numbers(device, 6), [1, 1, 4]))


@fault("frozen number")
def number_in_a_dictionary(device):
    def step(batch):
        return batch["x"] * batch["weight"]  # here

    made = [{"x": numbers(device, 4), "weight": weight} for weight in (0.5, 2.0)]
    return Case(step, (made[0],), (made[1],))


@fault("frozen number")
def number_among_keywords(device):
    def step(x, rate):
        return x * rate  # here

    one, two = ({"x": numbers(device, 4), "rate": rate} for rate in (0.5, 2.0))
    return Case(step, kwargs=one, other_kwargs=two)


@fault("path", "frozen number")
def mode_among_the_inputs(device):
    def step(x, reduction):
        return F.mse_loss(x, x * 2, reduction=reduction)  # here

    return Case(step, (numbers(device, 4), "mean"), (numbers(device, 4), "sum"))


@fault("frozen number")
@takes(4)
def clock(x):
    return x * (time.perf_counter() % 1)  # here


@fault("CPU work", "frozen number")
def augmentation(device):
    def step(x):
        return x * random.choice([0.5, 1.0, 2.0, 4.0, 8.0])  # here

    random.seed(1)
    return on_batches(step, device, 4)


@fault("moved tensor")
def running_mean(device):
    kept = SimpleNamespace(mean=torch.zeros(4, device=device))

    def step(x):
        kept.mean = 0.9 * kept.mean + 0.1 * x  # here
        return kept.mean * 1

    return on_batches(step, device, 4, state=lambda: [kept.mean])


@fault("shape", "moved tensor")
def growing_cache(device):
    kept = SimpleNamespace(keys=torch.zeros(0, 4, device=device))

    def step(x):
        kept.keys = torch.cat([kept.keys, x])  # here
        return (x @ kept.keys.T).softmax(-1) @ kept.keys

    return on_batches(step, device, 1, 4, state=lambda: [kept.keys])


@fault("path", "CPU work")
def every_second_step(device):
    kept = SimpleNamespace(n=0)

    def step(x):
        kept.n += 1  # here
        return x.relu() if kept.n % 2 else x.sigmoid()

    return on_batches(step, device, 4, state=lambda: [kept.n])


@fault("moved tensor")
def accumulated_gradients(device):
    model = nn.Linear(4, 4).to(device)

    def step(x):
        for parameter in model.parameters():
            parameter.grad = None if parameter.grad is None else parameter.grad * 0.5  # here
        model(x).sum().backward()

    return on_batches(step, device, 3, 4, state=lambda: [p.grad for p in model.parameters()])


@fault("output")
def returned_number(device):
    kept = SimpleNamespace(n=0.0)

    def step(x):
        x.mul_(2)
        kept.n += 1
        return kept.n  # here

    return on_batches(step, device, 4, state=lambda: [kept.n])


# ------------------------------------------------------------------ optimizers


@fault("optimizer")
def plain_rmsprop(device):
    return trained(nn.Linear(4, 4), torch.optim.RMSprop, device, 3, 4)


@fault("frozen number")
def cyclic_rate(device):
    model = nn.Linear(4, 4).to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)

    def step(x):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()  # here
        scheduler.step()

    return on_batches(step, device, 3, 4, state=lambda: list(model.parameters()))


def _capturable(name: str, device: str, **options: Any) -> Case:
    optimizer = partial(getattr(torch.optim, name), capturable=True, **options)
    return trained(
        nn.Sequential(nn.Linear(4, 8), nn.SiLU(), nn.Linear(8, 2)), optimizer, device, 3, 4
    )


@clean
def capturable_adam_with_amsgrad(device):
    return _capturable("Adam", device, amsgrad=True)


@clean
def capturable_rmsprop_centered(device):
    return _capturable("RMSprop", device, centered=True)


@clean
def rate_in_a_tensor(device):
    return _capturable("AdamW", device, lr=torch.tensor(0.01, device=device))


@clean
def maximised(device):
    return trained(nn.Linear(4, 4), partial(torch.optim.SGD, lr=1e-3, maximize=True), device, 3, 4)


# ------------------------------------------------------------------ what a graph can take


of_one_operator(
    histogram_with_a_range=((40,), lambda x: torch.histc(x, 8, min=-3, max=3)),
    median_without_nans=((8,), lambda x: x - x.nanmedian()),
    interpolation=((2, 3, 4, 4), partial(F.interpolate, scale_factor=2.0, mode="bilinear")),
    unfolded=((2, 3, 6, 6), lambda x: F.fold(F.unfold(x, 3, padding=1) * 2, 6, 3, padding=1)),
    shuffled_pixels=((2, 8, 3, 3), lambda x: F.pixel_shuffle(x, 2).flip(-1).roll(1, -1)),
    medians=((6, 5), lambda x: x.median(1).values + x.nanmedian(1).values + x.quantile(0.3)),
    searched=((4, 6), lambda x: torch.searchsorted(x.sort(1).values, x)),
    bucketized=((4, 6), lambda x: torch.bucketize(x, x[0].sort().values)),
)


@clean
@takes(2, 3, 8, 8)
def grid_sampling(x):
    grid = torch.stack(
        torch.meshgrid(*[torch.linspace(-1, 1, 6, device=x.device)] * 2, indexing="ij"), -1
    )
    return F.grid_sample(x, grid.expand(len(x), 6, 6, 2), align_corners=False)


@clean
@takes(9, 4)
def reduced_by_index(x):
    where = torch.arange(len(x), device=x.device) % 3
    return torch.zeros(3, 4, device=x.device).scatter_reduce(
        0, where[:, None].expand_as(x), x, "amax"
    )


@clean
def spectrogram(device):
    window = torch.hann_window(16, device=device)
    return on_batches(
        lambda x: torch.stft(x, 16, window=window, return_complex=True).abs(), device, 2, 64
    )


@clean
def instance_and_group_norm(device):
    model = nn.Sequential(nn.InstanceNorm1d(4, affine=True), nn.GroupNorm(2, 4), nn.Hardswish())
    return trained(model, partial(torch.optim.SGD, lr=0.1), device, 3, 4, 5)


@clean
def embedding_bag(device):
    table = nn.EmbeddingBag(10, 4).to(device)
    return on_batches(lambda x: table((x.abs() * 3).long().clamp(max=9)), device, 4, 5)


@clean
@takes(6, 5)
def triplet_and_hinge(x):
    return F.triplet_margin_loss(x, x.roll(1, 0), x.roll(2, 0)) + F.hinge_embedding_loss(
        x, x.sign()
    )


@clean
def weight_norm(device):
    model = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))
    return trained(model, partial(torch.optim.SGD, lr=0.1), device, 3, 4)


@clean
def jacobian(device):
    weight = numbers(device, 4, 4)

    def step(x):
        return torch.func.jacrev(lambda y: (y @ weight).tanh())(x)  # here

    return on_batches(step, device, 4)


@clean(random=True)
def sampled_with_gumbel(device):
    return on_batches(lambda x: F.gumbel_softmax(x, hard=True), device, 30, 5)


@clean
@takes(3, 4)
def complex_rotations(x):
    turned = torch.view_as_complex(x.unflatten(-1, (-1, 2))) * torch.polar(
        x[..., :2].abs(), x[..., :2]
    )
    return torch.view_as_real(turned).flatten(-2)


@clean
def keyword_batch(device):
    model = nn.Linear(4, 4).to(device)
    one, two = ({"x": numbers(device, 3, 4), "mask": numbers(device, 3, 4) > 0} for _ in range(2))
    return Case(lambda x, mask: model(x).masked_fill(mask, 0.0), kwargs=one, other_kwargs=two)


@clean
def reads_its_own_config(device):
    config = {"scale": 2.0, "act": "gelu"}

    def step(x):
        return getattr(F, config["act"])(x) * config["scale"]

    return on_batches(step, device, 6)


@clean
@takes(6)
def asks_whether_it_is_captured(x):
    if not torch.cuda.is_current_stream_capturing():
        x = x + 0.0
    return x * 2


# ------------------------------------------------------------------ a GPU shows these, a CPU does
# not


@fault("copy", on_cpu=False)
def copies_in(device):
    host = torch.randn(4)

    def step(x):
        return x + host.to(x.device)  # here

    return on_batches(step, device, 4)


@fault("sync", on_cpu=False)
@takes(4)
def copies_out(x):
    x.mul(2).to("cpu")  # here
    return x * 2


@fault("sync", on_cpu=False)
@takes(4)
def synchronises(x):
    if x.is_cuda:
        torch.cuda.synchronize()  # here
    return x * 2


@fault("stream", on_cpu=False)
def stream_without_a_join(device):
    side = torch.cuda.Stream() if device == "cuda" else None

    def step(x):
        if side is None:
            return x * 2
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            return x * 2  # here

    return on_batches(step, device, 4)


@fault("frozen number", on_cpu=False)
def scalar_on_the_cpu(device):
    scale = torch.tensor(2.0)

    def step(x):
        scale.add_(1)
        return x * scale  # here

    return on_batches(step, device, 4, state=lambda: [scale])


@clean
def pinned_copy(device):
    host = torch.randn(4).pin_memory() if device == "cuda" else torch.randn(4)
    return on_batches(lambda x: x + host.to(x.device, non_blocking=True), device, 4)


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

    return on_batches(step, device, 4)
