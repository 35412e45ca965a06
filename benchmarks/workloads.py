"""The three workloads of "Choose an API", and what the first ten steps of each cost."""

import gc
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise, starmap
from types import SimpleNamespace

import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

from helpers.model import make_batches, make_model


def convolution_net(
    widths: tuple[int, ...] = (3, 64, 128, 256), classes: int = 10
) -> nn.Sequential:
    """A stage of convolution, batch normalisation and ReLU
    per width; images (batch, 3, height, width) to classes.
    """

    def stage(width, wider):
        convolution = nn.Conv2d(width, wider, 3, stride=2, padding=1, bias=False)
        return nn.Sequential(convolution, nn.BatchNorm2d(wider), nn.ReLU())

    stages = starmap(stage, pairwise(widths))
    return nn.Sequential(
        *stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], classes)
    )


def transformer_block(width: int = 256, heads: int = 4) -> nn.TransformerEncoderLayer:
    """Attention, then a perceptron four times as wide; (batch, length, width) to the same."""
    return nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True)


MODELS = {
    "perceptron": partial(make_model, dropouts=(0, 0, 0), device="cpu"),
    "convolution net": convolution_net,
    "transformer block": transformer_block,
}


def draw_batches() -> dict[str, list[tuple[torch.Tensor, torch.Tensor]]]:
    """Ten pairs of inputs and targets on the GPU for each of MODELS, always the same."""
    torch.manual_seed(0)
    images, sequences = (
        torch.randn(10, 64, 3, 32, 32, device="cuda"),
        torch.randn(10, 16, 64, 256, device="cuda"),
    )
    labels = torch.randint(10, (10, 64), device="cuda")
    return {
        "perceptron": make_batches(10),
        "convolution net": list(zip(images, labels, strict=True)),
        "transformer block": list(zip(sequences, sequences.flip(0), strict=True)),
    }


def set_up(make: Callable, batches: list) -> SimpleNamespace:
    """A training on those batches: model (on the GPU, always
    the same weights), optimizer, loss and batches.
    """
    torch.manual_seed(0)
    model = make().cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, fused=True)
    loss = mse_loss if batches[0][1].is_floating_point() else cross_entropy
    return SimpleNamespace(model=model, optimizer=optimizer, loss=loss, batches=batches)


def weights_of(t: SimpleNamespace) -> torch.Tensor:
    """All weights of a training, copied into one vector."""
    return torch.cat([weight.detach().flatten() for weight in t.model.parameters()])


def in_pools() -> int:
    """Bytes of GPU memory that graphs keep for themselves, in pools of their own."""
    segments = torch.cuda.memory_snapshot()
    return sum(
        segment["total_size"] for segment in segments if segment["segment_pool_id"] != (0, 0)
    )


def first_ten(t: SimpleNamespace, way: Callable) -> tuple[torch.Tensor, dict[str, float]]:
    """The losses of ten steps of t.step = way(t), and what they cost beside the model.

    seconds: until the third step is done, with an empty compiler cache. peak,
    MiB: of the memory in use. in pools, MiB: what stays with its graphs.
    """
    from torch._inductor.utils import fresh_cache  # here, because it imports a compiler

    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    in_use = torch.cuda.memory_allocated()
    pools = in_pools()
    start = time.perf_counter()
    with fresh_cache():
        t.step = way(t)
        losses = [t.step(*batch).clone() for batch in t.batches[:3]]
        torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    losses += [t.step(*batch).clone() for batch in t.batches[3:]]
    peak = (torch.cuda.max_memory_allocated() - in_use) >> 20
    cost = {"seconds": seconds, "peak, MiB": peak, "in pools, MiB": (in_pools() - pools) >> 20}
    return torch.stack(losses), cost
