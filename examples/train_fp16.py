"""Train in float16 from a DataLoader, one CUDA graph per step:  python examples/train_fp16.py

Needs torch and a CUDA GPU. AdamW, its schedule and the gradient scaler are in the graph or act on
it, and the next batch is copied while the graph runs. The numbered lines are what that needs.
"""

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, TensorDataset

WARMUP = 3  # steps
WORKERS = 2  # processes that build batches
ROWS, WIDTH = 4_000, 512


@contextmanager
def capturing(graph: torch.cuda.CUDAGraph, pool: tuple | None = None) -> Iterator[None]:
    """Capture the block, next to threads that pin memory and without a garbage collection."""
    gc_was_enabled = gc.isenabled()
    gc.disable()  # 8. collecting an older graph would end the capture
    try:
        with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):  # 3
            yield
    finally:
        if gc_was_enabled:
            gc.enable()


class PrefetchedStep:
    """Trains on pinned batches: the first three eagerly, all others by one graph."""

    def __init__(self, step: Callable[..., Tensor], batch: Sequence[Tensor]) -> None:
        """step(*batch) trains and returns a detached loss; batch has the shapes of all others."""
        self.step = step
        self.calls = 0
        self.graph = torch.cuda.CUDAGraph()
        self.static_batch = [tensor.cuda() for tensor in batch]
        self.next_batch = [tensor.cuda() for tensor in batch]
        self.copy_stream = torch.cuda.Stream()
        self.has_been_read = torch.cuda.Event()
        self.has_been_read.record()

    def __call__(self, batch: Sequence[Tensor]) -> Tensor:
        """Train on one batch, and return its loss."""
        self.copy_stream.wait_event(self.has_been_read)  # 1. next_batch may be overwritten
        with torch.cuda.stream(self.copy_stream):
            copy_batch(self.next_batch, batch)  # during the replay of the call before
        torch.cuda.current_stream().wait_stream(self.copy_stream)  # 2. next_batch has arrived
        copy_batch(self.static_batch, self.next_batch)
        self.has_been_read.record()

        self.calls += 1
        if self.calls <= WARMUP:
            return self._warm_up_step()
        if self.calls == WARMUP + 1:
            with capturing(self.graph):
                self.loss = self.step(*self.static_batch)
        self.graph.replay()
        return self.loss.clone()  # 4. the next replay overwrites it

    def _warm_up_step(self):
        side_stream = torch.cuda.Stream()
        side_stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side_stream):
            loss = self.step(*self.static_batch)
        torch.cuda.current_stream().wait_stream(side_stream)
        return loss


def copy_batch(destination: Sequence[Tensor], batch: Sequence[Tensor]) -> None:
    """Copy each tensor of a batch; from pinned memory, the CPU does not wait."""
    for tensor, new in zip(destination, batch, strict=True):
        tensor.copy_(new, non_blocking=True)


def train(graphed: bool, epochs: int = 2) -> list[float]:
    """Train a new model on random rows and return its losses."""
    torch.manual_seed(0)
    dataset = TensorDataset(torch.randn(ROWS, WIDTH), torch.randn(ROWS, 8))
    loader = DataLoader(
        dataset, batch_size=64, shuffle=True, num_workers=WORKERS, pin_memory=True, drop_last=True
    )
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 8)).cuda()
    lr = torch.tensor(1e-3, device="cuda")  # 5. the scheduler writes into it
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=lr,
        capturable=True,  # 6. a capture refuses AdamW without it
        fused=True,  # 7. takes the scaler's overflow flag on the GPU
    )
    steps = epochs * len(loader)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
    scaler = torch.amp.GradScaler()

    def step(inputs: Tensor, targets: Tensor) -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.float16):
            loss = mse_loss(model(inputs), targets)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    prefetched_step = PrefetchedStep(step, dataset[:64])
    losses = []
    for _ in range(epochs):
        for batch in loader:
            if graphed:
                losses.append(prefetched_step(batch))
            else:
                losses.append(step(*(tensor.cuda() for tensor in batch)))
            scheduler.step()
    return torch.stack(losses).tolist()


if __name__ == "__main__":
    eager, graphed = train(graphed=False), train(graphed=True)
    equal = sum(one == other for one, other in zip(eager, graphed, strict=True))
    print("last losses:", *(f"{loss:.4f}" for loss in graphed[-3:]))
    print(f"{equal} of {len(graphed)} losses are equal to the eager ones")
