"""Can your training step be captured, and does its graph train the same? Plain PyTorch.

    python -m capturable check examples/check_step.py:make_step    which lines must change
    python examples/check_step.py                                  equal to eager? needs a GPU

Put your step into make_step. Its numbered lines are those that had to change for a graph.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

Batch = tuple[Tensor, Tensor]  # inputs and targets
WARMUP = 3  # steps


def make_step() -> tuple[Callable[[Tensor, Tensor], Tensor], Batch, Batch]:
    """Yours: a step and two batches. Every call begins with the same weights."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 8)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), capturable=True)  # 1. counts on the GPU
    temperature = torch.tensor(2.0, device=device)  # 2. a number that changes

    def step(inputs, targets):
        optimizer.zero_grad()
        loss = mse_loss(model(inputs) / temperature, targets)
        loss = torch.where(loss > 2, loss / 2, loss)  # 3. a branch on a value
        loss.backward()
        temperature.mul_(0.9).clamp_(min=1.0)  # 4. in place, after the backward pass
        optimizer.step()
        return loss.detach()  # 5. read it outside

    inputs = torch.randn(2, 32, 64, device=device)
    targets = torch.randn(2, 32, 8, device=device)
    return step, (inputs[0], targets[0]), (inputs[1], 4 * targets[1])


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


def train_graph(step: Callable[[Tensor, Tensor], Tensor], batches: list[Batch]) -> list[Tensor]:
    """Train eagerly on the first batches, then from a graph. Returns the losses."""
    static_inputs, static_targets = (tensor.clone() for tensor in batches[0])
    side_stream = torch.cuda.Stream()
    side_stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side_stream):
        losses = [step(*batch) for batch in batches[:WARMUP]]
    torch.cuda.current_stream().wait_stream(side_stream)

    graph = torch.cuda.CUDAGraph()
    with capturing(graph):
        static_loss = step(static_inputs, static_targets)
    for inputs, targets in batches[WARMUP:]:
        static_inputs.copy_(inputs)
        static_targets.copy_(targets)
        graph.replay()
        losses.append(static_loss.clone())
    return losses


def main() -> None:
    """Train ten steps with and without a graph, and compare the losses."""
    step, batch, other_batch = make_step()
    batches = [batch, other_batch] * 5
    eager = torch.stack([step(*batch) for batch in batches])
    step, *_ = make_step()
    graph = torch.stack(train_graph(step, batches))
    print(f"{(eager == graph).sum().item()} of {len(batches)} losses are equal")


if __name__ == "__main__":
    main()
