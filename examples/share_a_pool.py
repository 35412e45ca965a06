"""Graphs for several batch sizes in one memory pool.

    python examples/share_a_pool.py

It needs a CUDA GPU and nothing but PyTorch. Numbered lines keep the memory small and the results
right.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

SIZES = (8, 32, 128)  # rows; a batch is padded to the next of them


def build_model() -> nn.Module:
    """Yours, for inference."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10)).cuda().eval()


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


@torch.no_grad()
def capture_all_sizes(model: nn.Module, sample: Tensor) -> Callable[[Tensor], Tensor]:
    """A function that replays the model's graph for up to max(SIZES) rows like those of sample."""
    static_input = torch.zeros(max(SIZES), *sample.shape[1:], device="cuda", dtype=sample.dtype)
    side_stream = torch.cuda.Stream()
    side_stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side_stream):
        for rows in SIZES:
            model(static_input[:rows])  # the warm-up
    torch.cuda.current_stream().wait_stream(side_stream)

    pool = torch.cuda.graph_pool_handle()  # 1. one pool for all
    graphs = {}
    outputs = {}
    for rows in sorted(SIZES, reverse=True):  # 2. the largest first
        graphs[rows] = torch.cuda.CUDAGraph()
        with capturing(graphs[rows], pool=pool):
            outputs[rows] = model(static_input[:rows])

    def predict(batch: Tensor) -> Tensor:  # 3. call it on one stream only
        if len(batch) > max(SIZES):
            raise ValueError(f"{len(batch)} rows are more than {max(SIZES)}: split the batch.")
        rows = min(size for size in SIZES if size >= len(batch))
        static_input[: len(batch)].copy_(batch)
        graphs[rows].replay()
        return outputs[rows][: len(batch)].clone()  # 4. other replays overwrite the output

    return predict


def main() -> None:
    """Predict batches of mixed sizes, and compare with the eager model."""
    model = build_model()
    batches = [torch.randn(rows, 64, device="cuda") for rows in (100, 3, 20, 128, 8)]
    predict = capture_all_sizes(model, batches[0])
    results = [predict(batch) for batch in batches]
    with torch.no_grad():
        expected = [model(batch) for batch in batches]
    close = map(torch.allclose, results, expected)  # padded products may add in another order
    print("as the eager model:", all(close))


if __name__ == "__main__":
    main()
