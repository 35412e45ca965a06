"""Which lines fill the memory pool of a graph?  python examples/fill_a_pool.py

Captures a few steps of 64 MiB tensors, each in a private pool, and prints how large the pool is. It
needs torch and a CUDA GPU. Try it with PYTORCH_ALLOC_CONF=graph_capture_record_stream_reuse:True
(torch 2.9 or newer) and with PYTORCH_ALLOC_CONF=expandable_segments:True, too: by_setting does.
"""

import os
import subprocess
import sys
from collections.abc import Callable

import torch
from torch import Tensor, nn

WIDTH = 4096  # float32: a square matrix takes 64 MiB
COUNT = 8
SETTINGS = ("graph_capture_record_stream_reuse:True", "expandable_segments:True")


def one_at_a_time(x: Tensor, side: torch.cuda.Stream) -> None:
    """Eight temporaries; each is freed before the next."""
    for _ in range(COUNT):
        _ = x * 2


def kept(x: Tensor, side: torch.cuda.Stream) -> list[Tensor]:
    """Eight tensors that the capture returns."""
    return [x * 2 for _ in range(COUNT)]


def growing(x: Tensor, side: torch.cuda.Stream) -> None:
    """Eight temporaries, each larger than the one before: 8, 16, ... 64 MiB."""
    for part in range(1, COUNT + 1):
        _ = x[: part * WIDTH // COUNT] * 2


def recorded_on_a_stream(x: Tensor, side: torch.cuda.Stream) -> None:
    """Eight temporaries that a second stream reads, as record_stream says."""
    for _ in range(COUNT):
        y = x * 2
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            y.sum()
        y.record_stream(side)
        del y
        torch.cuda.current_stream().wait_stream(side)


def waited_for(x: Tensor, side: torch.cuda.Stream) -> None:
    """The same without record_stream: the capturing stream waits before the tensor is freed."""
    for _ in range(COUNT):
        y = x * 2
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            y.sum()
        torch.cuda.current_stream().wait_stream(side)
        del y


class Training:
    """Forward and backward pass of eight layers on 512 rows (8 MiB); the gradients take 64 each."""

    def __init__(self) -> None:
        layers = [nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(COUNT)]
        self.model = nn.Sequential(*layers).cuda()

    def new_gradients(self, x: Tensor, side: torch.cuda.Stream) -> None:
        """Gradients are None at the start, so that the pool holds them."""
        self.model.zero_grad(set_to_none=True)
        self.model(x[:512]).sum().backward()

    def dropped_inside(self, x: Tensor, side: torch.cuda.Stream) -> None:
        """The same; then they are set to None inside of the capture."""
        self.new_gradients(x, side)
        self.model.zero_grad(set_to_none=True)

    def gradients_outside(self, x: Tensor, side: torch.cuda.Stream) -> None:
        """Gradients exist before the capture, and are zeroed in place."""
        self.model.zero_grad(set_to_none=False)
        self.model(x[:512]).sum().backward()

    def on_another_stream(self, x: Tensor, side: torch.cuda.Stream) -> None:
        """New gradients, and every second layer runs on another stream."""
        self.model.zero_grad(set_to_none=True)
        hidden = x[:512]
        main = torch.cuda.current_stream()
        side.wait_stream(main)
        for number, layer in enumerate(self.model):
            stream = side if number % 2 else main
            stream.wait_stream(main if number % 2 else side)
            with torch.cuda.stream(stream):
                hidden = layer(hidden)
        main.wait_stream(side)
        hidden.sum().backward()
        main.wait_stream(side)


def measure_pool_mib(step: Callable, x: Tensor) -> float:
    """The MiB of a private pool in which a step is captured, its results alive."""
    side = torch.cuda.Stream()
    warm_up = torch.cuda.Stream()
    warm_up.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(warm_up):
        step(x, side)
    torch.cuda.current_stream().wait_stream(warm_up)

    pool = torch.cuda.graph_pool_handle()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        results = step(x, side)
    segments = torch.cuda.memory_snapshot(mempool_id=pool)
    del results
    return sum(segment["total_size"] for segment in segments) / 2**20


def measure_pools() -> dict[str, float]:
    """The MiB of the pool, by what was captured in it."""
    x = torch.ones(WIDTH, WIDTH, device="cuda")
    mib = {}
    for step in (one_at_a_time, kept, growing, recorded_on_a_stream, waited_for):
        mib[step.__name__] = measure_pool_mib(step, x)
    for name in ("new_gradients", "dropped_inside", "gradients_outside", "on_another_stream"):
        mib[name] = measure_pool_mib(getattr(Training(), name), x)
    return mib


def by_setting() -> dict[str, dict[str, int]]:
    """The MiB by setting of the allocator; each needs a new process."""
    mib = {}
    for setting in ("", *SETTINGS):
        environment = os.environ | ({"PYTORCH_ALLOC_CONF": setting} if setting else {})
        command = [sys.executable, __file__]
        run = subprocess.run(command, env=environment, capture_output=True, text=True)
        if run.returncode == 0:  # older versions of torch do not know the first setting
            lines = run.stdout.splitlines()
            mib[setting or "default"] = {line[12:]: int(line[:6]) for line in lines}
    return mib


if __name__ == "__main__":
    for name, mib in measure_pools().items():
        print(f"{mib:6.0f} MiB  {name}")
