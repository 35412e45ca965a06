"""Steps that a CUDA graph captures, in which preflight must find nothing: each a function of the
device.

It returns the step and what makes a batch of its inputs.
"""

import importlib.util
import math
import re
import sys
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import clip_grad_norm_, parametrizations
from torch.utils.checkpoint import checkpoint

STEPS = {}
DECLARED = torch.library.Library("torchvision", "FRAGMENT")


def models_of(package):
    """A package of models, or the test is skipped.

    torchvision's, which transformers imports as well, are plain Python. Its compiled extension once
    took a test's process with it as it was loaded, and no model here needs it: it stays out, and
    the operators that Python expects of it are declared.
    """
    with patch.object(torch.ops, "load_library", side_effect=OSError("not needed")):
        try:
            importlib.import_module("torchvision")
        except ModuleNotFoundError:
            pass
        except RuntimeError:  # it registers what its extension would have defined
            _declare_operators()
            importlib.import_module("torchvision")
        return pytest.importorskip(package)


def _declare_operators():
    package = Path(importlib.util.find_spec("torchvision").origin)
    source = package.with_name("_meta_registrations.py").read_text()
    for missing in re.findall(r"register_fake\(\"torchvision::(\w+)", source):
        DECLARED.define(f"{missing}(Tensor boxes, Tensor scores, float threshold) -> Tensor")
    for name in [name for name in sys.modules if name.startswith("torchvision")]:
        del sys.modules[name]


def clean(make):
    STEPS[make.__name__] = make
    return make


def training(
    model, make_batch, loss=F.mse_loss, device="cpu", optimizer=torch.optim.SGD, **options
):
    """A step that trains a model; of a batch, the last tensor is the target."""
    model.to(device)
    optimizer = optimizer(model.parameters(), lr=0.01, **options)

    def step(*batch):
        optimizer.zero_grad()
        result = loss(model(*batch[:-1]), batch[-1])
        result.backward()
        optimizer.step()
        return result.detach()

    return step, make_batch


def random_of(device, *shapes):
    return lambda: tuple(torch.randn(shape, device=device) for shape in shapes)


def labelled(device, shape, classes, *size):
    """A batch of random numbers with labels."""
    return lambda: (
        torch.randn(shape, device=device),
        torch.randint(classes, (shape[0], *size), device=device),
    )


def tokens(device, *shape):
    return lambda: (
        torch.randint(50, shape, device=device),
        torch.randint(50, shape, device=device),
    )


def by_token(logits, labels):
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


class Recurrent(nn.Module):
    def __init__(self, kind, **options):
        super().__init__()
        self.inner = kind(8, 16, batch_first=True, **options)
        self.head = nn.Linear(32 if self.inner.bidirectional else 16, 4)

    def forward(self, x):
        return self.head(self.inner(x)[0][:, -1])


def trained(make_model, *shapes, **options):
    """A training on random inputs and targets of these shapes. options: as training takes them."""
    return lambda device: training(
        make_model(), random_of(device, *shapes), device=device, **options
    )


def mlp():
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))


def encoder(layers):
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)


SEQUENCES = (3, 5, 8), (3, 4)
ROWS = (5, 8), (5, 4)
STEPS |= {
    "lstm": trained(partial(Recurrent, nn.LSTM), *SEQUENCES),
    "lstm_of_two_layers": trained(
        partial(Recurrent, nn.LSTM, num_layers=2, dropout=0.1), *SEQUENCES
    ),
    "lstm_both_ways": trained(partial(Recurrent, nn.LSTM, bidirectional=True), *SEQUENCES),
    "gru": trained(partial(Recurrent, nn.GRU), *SEQUENCES),
    "rnn": trained(partial(Recurrent, nn.RNN), *SEQUENCES),
    "sgd": trained(mlp, *ROWS),
    "momentum": trained(mlp, *ROWS, momentum=0.9, nesterov=True),
    "decay": trained(mlp, *ROWS, weight_decay=0.1),
    "spectral_norm": trained(lambda: parametrizations.spectral_norm(nn.Linear(8, 4)), *ROWS),
    "transformer_encoder": trained(partial(encoder, 2), (3, 5, 8), (3, 5, 8)),
}
for _name in ("Adam", "AdamW", "RMSprop", "NAdam", "RAdam", "Adamax", "ASGD", "Adadelta", "Rprop"):
    _capturable = partial(getattr(torch.optim, _name), capturable=True)
    STEPS[_name] = trained(partial(nn.Linear, 8, 4), *ROWS, optimizer=_capturable)


@clean
def convolutions(device):
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(72, 5),
    )
    return training(model, labelled(device, (4, 3, 8, 8), 5), F.cross_entropy, device)


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1, groups=2)
        self.norm = nn.GroupNorm(2, width)

    def forward(self, x):
        return x + F.silu(self.norm(self.conv(x)))


@clean
def residual_network(device):
    model = nn.Sequential(
        nn.Conv2d(3, 8, 1), Residual(8), Residual(8), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )
    return training(
        model,
        labelled(device, (4, 3, 8, 8), 8),
        partial(F.cross_entropy, label_smoothing=0.1),
        device,
    )


class UNet(nn.Module):
    """A small diffusion network: predicts the noise, told the time."""

    def __init__(self):
        super().__init__()
        self.time = nn.Linear(16, 8)
        self.enter = nn.Conv2d(3, 8, 3, padding=1)
        self.down = nn.Conv2d(8, 8, 4, 2, 1)
        self.middle = Residual(8)
        self.up = nn.ConvTranspose2d(8, 8, 4, 2, 1)
        self.leave = nn.Conv2d(16, 3, 3, padding=1)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x, t):
        angles = t[:, None] * torch.exp(-math.log(1e4) * torch.arange(8, device=x.device) / 8)
        skip = (
            self.enter(x) + self.time(torch.cat([angles.sin(), angles.cos()], 1))[:, :, None, None]
        )
        low = self.middle(self.down(F.silu(skip)))
        flat = low.flatten(2).transpose(1, 2)
        low = low + self.attention(flat, flat, flat)[0].transpose(1, 2).view_as(low)
        return self.leave(torch.cat([skip, F.interpolate(self.up(low), scale_factor=1.0)], 1))


@clean
def diffusion(device):
    model = UNet().to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    alphas = torch.linspace(0.99, 0.9, 100, device=device).cumprod(0)

    def step(x):
        optimizer.zero_grad()
        t = torch.randint(0, 100, (len(x),), device=x.device)
        noise, kept = torch.randn_like(x), alphas[t][:, None, None, None]
        loss = F.mse_loss(model(kept.sqrt() * x + (1 - kept).sqrt() * noise, t), noise)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, random_of(device, (2, 3, 8, 8))


class Causal(nn.Module):
    """A block like GPT's."""

    def __init__(self):
        super().__init__()
        self.embed, self.place = nn.Embedding(50, 16), nn.Embedding(12, 16)
        self.norm = nn.LayerNorm(16)
        self.qkv = nn.Linear(16, 48)
        self.out = nn.Linear(16, 16)
        self.mlp = nn.Sequential(
            nn.LayerNorm(16), nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16), nn.Dropout(0.1)
        )

    def forward(self, ids):
        x = self.embed(ids) + self.place(torch.arange(ids.shape[1], device=ids.device))
        parts = (
            part.unflatten(-1, (2, 8)).transpose(1, 2)
            for part in self.qkv(self.norm(x)).chunk(3, -1)
        )
        x = x + self.out(
            F.scaled_dot_product_attention(*parts, is_causal=True).transpose(1, 2).flatten(2)
        )
        return (x + self.mlp(x)) @ self.embed.weight.T


@clean
def gpt_block(device):
    return training(Causal(), tokens(device, 2, 12), by_token, device)


class Llama(nn.Module):
    """A block like Llama's: RMS norm, rotary places, grouped queries, a gate."""

    def __init__(self):
        super().__init__()
        self.embed, self.norm = nn.Embedding(50, 16), nn.RMSNorm(16)
        self.q, self.kv, self.out = (nn.Linear(16, n, bias=False) for n in (16, 16, 16))
        self.gate = nn.Linear(16, 32)
        self.up = nn.Linear(16, 32)
        self.down = nn.Linear(32, 16)
        self.register_buffer(
            "angles", torch.outer(torch.arange(12.0), 100.0 ** -torch.linspace(0, 1, 2))
        )

    def turn(self, x):
        angles = self.angles[: x.shape[2]].repeat(1, 2)
        first, second = x.chunk(2, -1)
        return x * angles.cos() + torch.cat([-second, first], -1) * angles.sin()

    def forward(self, ids):
        x = self.embed(ids)
        k, v = (
            part.unflatten(-1, (2, 4)).transpose(1, 2)
            for part in self.kv(self.norm(x)).chunk(2, -1)
        )
        q = self.q(self.norm(x)).unflatten(-1, (4, 4)).transpose(1, 2)
        mixed = F.scaled_dot_product_attention(
            self.turn(q), self.turn(k), v, is_causal=True, enable_gqa=True
        )
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return (x + self.down(F.silu(self.gate(x)) * self.up(x))) @ self.embed.weight.T


@clean
def llama_block(device):
    return training(Llama(), tokens(device, 2, 12), by_token, device)


@clean
def encoder_that_infers(device):
    return torch.no_grad()(encoder(1).to(device).eval()), random_of(device, (3, 5, 8))


@clean
def variational_autoencoder(device):
    enter, leave = nn.Linear(8, 6).to(device), nn.Linear(3, 8).to(device)
    optimizer = torch.optim.SGD([*enter.parameters(), *leave.parameters()], 0.01)

    def step(x):
        optimizer.zero_grad()
        mean, log = enter(x).chunk(2, -1)
        loss = F.mse_loss(leave(mean + torch.randn_like(mean) * (0.5 * log).exp()), x)
        loss = loss - 0.5 * (1 + log - mean.square() - log.exp()).mean()
        loss.backward()
        optimizer.step()

    return step, random_of(device, (4, 8))


@clean
def two_players(device):
    maker, judge = nn.Linear(4, 8).to(device), nn.Linear(8, 1).to(device)
    optimizers = [torch.optim.SGD(model.parameters(), 0.01) for model in (maker, judge)]

    def step(x):
        for optimizer, sign in zip(optimizers, (1, -1), strict=True):
            for each in optimizers:  # the other's gradient of an earlier step would be added to
                each.zero_grad()
            made = maker(torch.randn(len(x), 4, device=x.device))
            (sign * (judge(x) - judge(made)).mean()).backward()
            optimizer.step()

    return step, random_of(device, (5, 8))


@clean
def accumulation_clipping_and_average(device):
    model = nn.Linear(8, 4).to(device)
    average = [torch.zeros_like(parameter) for parameter in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step(x, y):
        optimizer.zero_grad()
        for part, target in zip(x.chunk(2), y.chunk(2), strict=True):
            (F.smooth_l1_loss(model(part), target) / 2).backward()
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        torch._foreach_lerp_(average, [parameter.detach() for parameter in model.parameters()], 0.1)

    return step, random_of(device, (6, 8), (6, 4))


@clean
def checkpointed(device):
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.2), nn.ReLU()).to(device)
    return lambda x: checkpoint(model, x, use_reentrant=False).sum().backward(), random_of(
        device, (5, 8)
    )


@clean
def autocast_inside(device):
    model = nn.Linear(8, 4).to(device)

    def step(x):
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = model(x).square().mean()
        loss.backward()

    return step, random_of(device, (5, 8))


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad * ctx.saved_tensors[0]


@clean
def own_function(device):
    weight = nn.Parameter(torch.ones(8, device=device))
    return lambda x: Doubled.apply(x * weight).sum().backward(), random_of(device, (5, 8))


@clean
def fused_rate_in_a_tensor(device):
    model = nn.Linear(8, 4).to(device)
    optimizer = torch.optim.SGD(model.parameters(), torch.tensor(0.1, device=device), fused=True)

    def step(x):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step, random_of(device, (5, 8))


@clean
def static_cache(device):
    keys, places = torch.zeros(1, 2, 16, 4, device=device), torch.arange(16, device=device)

    def step(key, place):
        keys.index_copy_(2, place, key)
        mask = (places <= place)[None, None, None]
        return F.scaled_dot_product_attention(key, keys, keys, attn_mask=mask)

    return step, lambda: (
        torch.randn(1, 2, 1, 4, device=device),
        torch.randint(16, (1,), device=device),
    )


OPERATORS = {  # a few operators on one input, and on a tensor that is kept
    "filled mask": lambda kept, x: kept.copy_(x).__setitem__(kept < 0, 0.0),
    "masked fill": lambda kept, x: x.masked_fill(x > 0, -math.inf).softmax(-1),
    "sort and gather": lambda kept, x: x.gather(1, x.sort(descending=True).indices[:, :3]),
    "scatter": lambda kept, x: kept.scatter_add_(1, x.argsort(), x),
    "fourier": lambda kept, x: torch.fft.irfft(torch.fft.rfft(x) * 2, n=8),
    "quantiles": lambda kept, x: x.cumsum(1).logsumexp(1) + x.kthvalue(2).values,
    "noise": lambda kept, x: (
        F.dropout(x, 0.3) + torch.randn_like(x) + torch.rand(5, 8, device=x.device)
    ),
    "sampling": lambda kept, x: (x - torch.empty_like(x).exponential_().log()).argmax(-1),
    "made in the step": lambda kept, x: (
        x + torch.zeros(8, device=x.device).fill_(3) + torch.ones_like(x).tril()
    ),
    "vmap": lambda kept, x: torch.vmap(torch.dot)(x, x),
    "functional gradient": lambda kept, x: torch.func.grad(lambda y: y.sin().sum())(x),
    "statistics": lambda kept, x: kept.lerp_((x - x.mean(0)) / x.std(0).clamp(min=1e-3), 0.1),
    "product forward": lambda kept, x: x.prod(1) + x.cumprod(1)[:, -1],
}
for _name, _function in OPERATORS.items():
    STEPS[_name] = lambda device, function=_function: (
        partial(function, torch.zeros(5, 8, device=device)),
        random_of(device, (5, 8)),
    )
