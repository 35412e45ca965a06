"""Train a small diffusion model and sample it; both run as CUDA graphs.

    python examples/sample_diffusion_model.py             # replays graphs
    python examples/sample_diffusion_model.py --eager     # the same without graphs
    python examples/sample_diffusion_model.py --compile   # compiled blocks in the graphs

The model is a diffusion transformer (Peebles and Xie, 2023) that learns by flow matching (Lipman et
al., 2023) to draw disks, rings, squares and crosses, which the training itself makes. The numbered
lines are those that a graph needs; without them this is an ordinary script.
"""

import argparse
import gc
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

CLASSES = ("disk", "ring", "square", "cross")
NO_CLASS = len(CLASSES)
UNLABELLED = 0.1  # of the pictures of a training, for classifier-free guidance
GUIDED_ABOVE = 0.1  # noise level
WARMUP = 3


def draw_pictures(labels: Tensor, size: int) -> Tensor:
    """A picture of each class, (batch, 1, size, size), from -1 to 1, at a random place and size."""
    batch_size = len(labels)
    grid = torch.linspace(-1, 1, size, device="cuda")
    centre = torch.empty(batch_size, 2, device="cuda").uniform_(-0.3, 0.3)
    radius = torch.empty(batch_size, 1, 1, device="cuda").uniform_(0.35, 0.6)
    across = (grid - centre[:, :1])[:, None, :].abs()
    down = (grid - centre[:, 1:])[:, :, None].abs()
    from_centre = (across.square() + down.square()).sqrt()
    farther = torch.maximum(across, down)

    inside = torch.stack(  # above zero inside of each shape
        [
            radius - from_centre,
            0.12 - (from_centre - radius).abs(),
            0.9 * radius - farther,
            torch.minimum(0.12 - torch.minimum(across, down), radius - farther),
        ]
    )
    chosen = inside[labels, torch.arange(batch_size, device="cuda")]
    return (size / 2 * chosen).clamp(-1, 1)[:, None]


class Attention(nn.Module):
    """Every patch looks at every other."""

    def __init__(self, n_embd: int, n_head: int) -> None:
        super().__init__()
        self.n_head = n_head
        self.qkv = nn.Linear(n_embd, 3 * n_embd)
        self.proj = nn.Linear(n_embd, n_embd)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, n_embd) -> (B, T, n_embd)."""
        qkv = self.qkv(x).unflatten(-1, (3, self.n_head, -1))
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each (B, n_head, T, head_dim)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.proj(y.transpose(1, 2).flatten(2))


class ModulatedResidual(nn.Module):
    """A residual layer whose input and output the condition shifts, scales and gates (adaLN)."""

    def __init__(self, layer: nn.Module, n_embd: int) -> None:
        super().__init__()
        self.layer = layer
        self.norm = nn.LayerNorm(n_embd, elementwise_affine=False)
        self.modulation = nn.Linear(n_embd, 3 * n_embd)
        nn.init.zeros_(self.modulation.weight)
        nn.init.zeros_(self.modulation.bias)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        """(B, T, n_embd), (B, n_embd) -> (B, T, n_embd)."""
        shift, scale, gate = self.modulation(condition)[:, None].chunk(3, -1)
        return x + gate * self.layer(self.norm(x) * (1 + scale) + shift)


class Block(nn.Module):
    """Attention and an MLP."""

    def __init__(self, n_embd: int, n_head: int) -> None:
        super().__init__()
        mlp = nn.Sequential(nn.Linear(n_embd, 4 * n_embd), nn.GELU(), nn.Linear(4 * n_embd, n_embd))
        self.attention = ModulatedResidual(Attention(n_embd, n_head), n_embd)
        self.mlp = ModulatedResidual(mlp, n_embd)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        """(B, T, n_embd), (B, n_embd) -> (B, T, n_embd)."""
        return self.mlp(self.attention(x, condition), condition)


class DiT(nn.Module):
    """Predicts the velocity, noise minus picture, of noisy pictures."""

    def __init__(
        self, size: int, patch: int = 4, n_layer: int = 4, n_head: int = 4, n_embd: int = 256
    ) -> None:
        super().__init__()
        self.size = size
        self.patch = patch
        self.patch_embedding = nn.Linear(patch**2, n_embd)
        self.position = nn.Parameter(0.02 * torch.randn((size // patch) ** 2, n_embd))
        self.register_buffer("frequencies", torch.logspace(0, 3, n_embd // 2))
        self.level_mlp = nn.Sequential(
            nn.Linear(n_embd, n_embd), nn.SiLU(), nn.Linear(n_embd, n_embd)
        )
        self.label_embedding = nn.Embedding(NO_CLASS + 1, n_embd)
        self.blocks = nn.ModuleList(Block(n_embd, n_head) for _ in range(n_layer))
        self.norm = nn.LayerNorm(n_embd)
        self.head = nn.Linear(n_embd, patch**2)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, x: Tensor, sigma: Tensor, labels: Tensor) -> Tensor:
        """x (B, 1, size, size); sigma, the noise level, (B, 1) or one for all; labels (B,)."""
        angles = sigma * self.frequencies
        level = self.level_mlp(torch.cat([angles.cos(), angles.sin()], -1))
        condition = F.silu(level + self.label_embedding(labels))  # (B, n_embd)

        patches = F.pixel_unshuffle(x, self.patch)  # (B, patch**2, size / patch, size / patch)
        x = self.patch_embedding(patches.flatten(2).transpose(1, 2)) + self.position
        for block in self.blocks:
            x = block(x, condition)
        pixels = self.head(self.norm(x)).transpose(1, 2)  # (B, patch**2, T)
        return F.pixel_shuffle(pixels.unflatten(2, patches.shape[2:]), self.patch)


class Training:
    """A model and its optimizer; step() trains once."""

    def __init__(self, model: DiT, batch_size: int = 128) -> None:
        self.model = model
        self.batch_size = batch_size
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, capturable=True)

    def step(self) -> Tensor:
        """Draw classes, pictures, noise levels and noise, train on them, and return the loss."""
        labels = torch.randint(NO_CLASS, (self.batch_size,), device="cuda")
        pictures = draw_pictures(labels, self.model.size)
        sigma = torch.rand(self.batch_size, 1, device="cuda")  # 1. drawn on the GPU
        noise = torch.randn_like(pictures)
        noisy = pictures.lerp(noise, sigma[:, :, None, None])
        unlabelled = torch.rand(self.batch_size, device="cuda") < UNLABELLED
        labels = labels.masked_fill(unlabelled, NO_CLASS)

        self.optimizer.zero_grad(set_to_none=True)
        loss = F.mse_loss(self.model(noisy, sigma, labels), noise - pictures)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


class Sampler:
    """Turns noise into pictures of given classes; what changes is written into its tensors."""

    def __init__(self, model: DiT, batch_size: int) -> None:
        self.model = model
        self.x = torch.zeros(batch_size, 1, model.size, model.size, device="cuda")
        self.labels = torch.zeros(batch_size, dtype=torch.long, device="cuda")
        self.guidance = torch.zeros((), device="cuda")
        self.sigmas = torch.zeros(2, device="cuda")  # the noise levels before and after a step

    @torch.no_grad()
    def step(self) -> None:
        """One Euler step of x, with classifier-free guidance."""
        sigma, next_sigma = self.sigmas
        labels = torch.cat([self.labels, torch.full_like(self.labels, NO_CLASS)])
        both = self.model(self.x.repeat(2, 1, 1, 1), sigma, labels)
        velocity, without_class = both.chunk(2)
        guidance = 1 + (self.guidance - 1) * (sigma > GUIDED_ABOVE)  # 2. no `if`
        velocity = without_class + guidance * (velocity - without_class)
        self.x.add_((next_sigma - sigma) * velocity)

    def denoise(self, sigmas: Tensor) -> None:
        """All steps; sigmas: the noise levels from 1 to 0."""
        for i in range(len(sigmas) - 1):
            levels = sigmas[i : i + 2]
            self.sigmas.copy_(levels)  # 3. not a Python number
            self.step()

    def sample(
        self, labels: Tensor, seeds: Sequence[int], guidance: float, sigmas: Tensor
    ) -> Tensor:
        """Pictures of the classes, (batch,), each from the noise of its own seed."""
        for picture, seed in zip(self.x, seeds, strict=True):
            picture.normal_(generator=torch.Generator("cuda").manual_seed(seed))
        self.labels.copy_(labels)  # 4. static input
        self.guidance.fill_(guidance)  # 5. not a Python number either
        self.denoise(sigmas)
        return self.x.clone()  # 6. the next pictures overwrite it


class Graphed:
    """Calls work eagerly three times, then captures it, and from then on replays the graph.

    Arguments must be the same tensors in every call. A replay overwrites the last results.
    """

    def __init__(self, work: Callable) -> None:
        self.work = work
        self.calls = 0
        self.graph = torch.cuda.CUDAGraph()

    def __call__(self, *tensors: Tensor) -> Any:
        """Work, or replay it; returns what work returns."""
        self.calls += 1
        if self.calls <= WARMUP:
            return self.work(*tensors)
        if self.calls == WARMUP + 1:
            gc.collect()  # an old graph that is freed during a capture would end it
            with torch.cuda.graph(self.graph, stream=torch.cuda.current_stream()):
                self.results = self.work(*tensors)
        self.graph.replay()
        return self.results


def noise_levels(num_steps: int) -> Tensor:
    """The levels from 1 to 0 of num_steps steps, (num_steps + 1,)."""
    return torch.linspace(1, 0, num_steps + 1, device="cuda")  # 7. on the GPU


def save(pictures: Tensor, path: str) -> None:
    """Write pictures, (batch, 1, size, size), side by side as a PGM file, which viewers open."""
    row = torch.cat(list(pictures[:, 0]), 1).clamp(-1, 1)
    grey = ((1 + row) * 127.5).byte().cpu()
    header = f"P5 {grey.shape[1]} {grey.shape[0]} 255\n".encode()
    Path(path).write_bytes(header + bytes(grey.flatten().tolist()))


def main(line: Sequence[str] | None = None) -> list[Tensor]:
    """Train, then sample three requests, log each, and return the pictures of each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--train-steps", type=int, default=2000)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--save", help="a .pgm file for the pictures")
    parser.add_argument("--eager", action="store_true")
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args(line)

    torch.set_float32_matmul_precision("high")
    with torch.cuda.stream(torch.cuda.Stream()):  # 8. everything on one side stream
        model = train(options)
        results = sample_requests(model, options)
    if options.save:
        save(torch.cat(results), options.save)
    return results


def train(options: argparse.Namespace) -> DiT:
    """Train a model with the options of main."""
    torch.manual_seed(0)
    model = DiT(options.size).cuda()
    if options.compile:
        for block in model.blocks:
            block.compile(dynamic=False)
    training = Training(model, options.batch_size)
    step = training.step if options.eager else Graphed(training.step)

    start = time.perf_counter()
    for number in range(1, options.train_steps + 1):
        loss = step()
        if number % 500 == 0 or number == options.train_steps:
            print(f"step {number}: loss {loss:.4f}")
    print(f"trained in {time.perf_counter() - start:.1f} s")
    return model


def sample_requests(model: DiT, options: argparse.Namespace) -> list[Tensor]:
    """Sample requests of different classes, guidance and numbers of steps."""
    labels = torch.arange(len(CLASSES), device="cuda")
    requests = [
        (labels, 1.0, options.steps),
        (labels.flip(0), 3.0, options.steps),
        (labels, 3.0, options.steps // 2),
    ]
    sampler = Sampler(model, len(labels))
    if not options.eager:
        sampler.step = Graphed(sampler.step)  # type: ignore[method-assign]

    results = []
    for labels, guidance, num_steps in requests:
        pictures = sampler.sample(labels, [0, 1, 2, 3], guidance, noise_levels(num_steps))
        results.append(pictures)
    for (_, guidance, num_steps), pictures in zip(requests, results, strict=True):
        means = " ".join(f"{mean:.5f}" for mean in pictures.mean((1, 2, 3)).tolist())
        print(f"guidance {guidance}, {num_steps} steps: means {means}")
    return results


if __name__ == "__main__":
    main()
