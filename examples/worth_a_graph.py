"""Is a CUDA graph worth its capture? Three numbers of a step, and the break-even.

    python examples/worth_a_graph.py

Replace build_step by your own model. It needs a CUDA GPU and nothing but PyTorch.
"""

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

GPU_WORK = {"kernel", "gpu_memcpy", "gpu_memset"}
STEPS = 20


def build_step() -> Callable[[], torch.Tensor]:
    """Yours: a step without arguments, on a batch that is already on the GPU."""
    model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs = torch.randn(64, 512, device="cuda")
    targets = torch.randn(64, 10, device="cuda")

    def step():
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def microseconds(work: Callable[[], object]) -> float:
    """The time of work. A launch returns before its kernel has run, so both ends wait."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return 1e6 * (time.perf_counter() - start)


def run(step: Callable[[], object], times: int) -> None:
    """Run a step several times."""
    for _ in range(times):
        step()


def capture(step: Callable[[], object]) -> torch.cuda.CUDAGraph:
    """Warm up on a side stream, and capture."""
    side_stream = torch.cuda.Stream()
    side_stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side_stream):
        run(step, times=3)
    torch.cuda.current_stream().wait_stream(side_stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph


def trace_events(step: Callable[[], object]) -> list[dict]:
    """The events of a profiler trace of STEPS steps."""
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        run(step, STEPS)
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        return json.loads(path.read_text())["traceEvents"]


def busy_us(events: list[dict], steps: int) -> float:
    """How long the GPU works in each step, if its work runs on one stream."""
    return sum(event["dur"] for event in events if event.get("cat") in GPU_WORK) / steps


def report(step_us: float, busy: float, capture_us: float) -> str:
    """The decision, from three numbers in µs."""
    saved_us = step_us - busy  # <- a replay saves at most the GPU's idle time
    numbers = f"step {step_us:.0f} µs, GPU busy {busy:.0f} µs, capture {capture_us:.0f} µs"
    if saved_us <= 0:
        return f"{numbers}: the GPU never waits, so a graph saves nothing."
    steps = capture_us / saved_us  # <- the break-even
    return f"{numbers}: worth it from about {steps:.0f} steps on."


def main() -> None:
    """Measure the three numbers and print the decision."""
    step = build_step()
    run(step, times=STEPS)  # the first steps are slower
    step_us = microseconds(lambda: run(step, STEPS)) / STEPS
    busy = busy_us(trace_events(step), STEPS)
    capture(step)  # the first capture of a process takes longer
    capture_us = microseconds(lambda: capture(step))
    print(report(step_us, busy, capture_us))


if __name__ == "__main__":
    main()
