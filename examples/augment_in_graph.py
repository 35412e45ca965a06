"""Train with augmentation inside a CUDA graph:  python examples/augment_in_graph.py

Needs torch and a CUDA GPU. Crops and mirror images are drawn on the GPU, in each replay
anew; the share of mixup is drawn by Python. The numbered lines are what random numbers need.
"""

import gc
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

BATCH_SIZE = 128
SIZE, CROP = 32, 28  # pixels
CLASSES = 10


def augment(images: Tensor) -> Tensor:
    """Crop each image of (B, C, SIZE, SIZE) somewhere else, and mirror half of them."""
    shape = (len(images), 1, 1)
    top = torch.randint(0, SIZE - CROP + 1, shape, device=images.device)  # 1. drawn on the GPU
    left = torch.randint(0, SIZE - CROP + 1, shape, device=images.device)
    mirror = torch.rand(shape, device=images.device) < 0.5
    offsets = torch.arange(CROP, device=images.device)
    rows = top + offsets[:, None]  # (B, CROP, 1)
    columns = left + torch.where(mirror, offsets.flip(0), offsets)  # 2. where, not if
    number = torch.arange(len(images), device=images.device)[:, None, None]
    return images[number, :, rows, columns].permute(0, 3, 1, 2)  # (B, C, CROP, CROP)


@contextmanager
def capturing(graph: torch.cuda.CUDAGraph, pool: tuple | None = None) -> Iterator[None]:
    """Capture the block, next to threads that pin memory and without a garbage collection."""
    gc_was_enabled = gc.isenabled()
    gc.disable()  # collecting an older graph would end the capture
    try:
        with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
            yield
    finally:
        if gc_was_enabled:
            gc.enable()


def capture(step: Callable[[], Tensor], model: nn.Module) -> tuple[torch.cuda.CUDAGraph, Tensor]:
    """Capture a training step; return its graph and static loss. Model and numbers stay as now."""
    weights = [weight.detach().clone() for weight in model.parameters()]
    rng_state = torch.cuda.get_rng_state()

    side_stream = torch.cuda.Stream()
    side_stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side_stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side_stream)
    graph = torch.cuda.CUDAGraph()
    with capturing(graph):
        static_loss = step()

    torch.cuda.set_rng_state(rng_state)  # 3. the warm-up has drawn numbers
    with torch.no_grad():
        for weight, old in zip(model.parameters(), weights, strict=True):
            weight.copy_(old)  # and has trained
    return graph, static_loss


def train(graphed: bool, steps: int = 20) -> list[float]:
    """Train a new linear classifier on random images and return its losses."""
    torch.manual_seed(0)
    random.seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * CROP * CROP, CLASSES)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    images = torch.rand(BATCH_SIZE, 3, SIZE, SIZE, device="cuda")
    labels = torch.randint(0, CLASSES, (BATCH_SIZE,), device="cuda")
    lam = torch.ones((), device="cuda")  # 4. static: the CPU writes its number here

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        crops = augment(images)
        output = model(lam * crops + (1 - lam) * crops.flip(0))
        loss = lam * cross_entropy(output, labels)
        loss = loss + (1 - lam) * cross_entropy(output, labels.flip(0))
        loss.backward()
        optimizer.step()
        return loss.detach()

    if graphed:
        graph, static_loss = capture(step, model)
    losses = []
    for _ in range(steps):
        images.uniform_()  # a data loader would copy its next images here, and their labels
        lam.fill_(random.betavariate(1.0, 1.0))  # 5. before each replay
        if graphed:
            graph.replay()
            losses.append(static_loss.item())
        else:
            losses.append(step().item())
    return losses


if __name__ == "__main__":
    eager, graphed = train(graphed=False), train(graphed=True)
    print("eager losses ", *(f"{loss:.4f}" for loss in eager[::5]))
    print("with a graph ", *(f"{loss:.4f}" for loss in graphed[::5]))
    print("bitwise equal" if graphed == eager else "not bitwise equal")
