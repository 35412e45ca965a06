"""Is a CUDA graph worth it for your training step? Time the step, then profile it. Plain torch.

    python examples/profile_step.py

Put your step into the lines marked "yours". trace.json.gz opens in https://ui.perfetto.dev.
"""

import gzip
import json
import time

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule

WARMUP, STEPS = 3, 7

model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512)).cuda()  # yours
optimizer = torch.optim.AdamW(model.parameters())  # yours
inputs, targets = torch.randn(2, 64, 512, device="cuda")  # yours: a batch on the GPU


def step() -> None:
    """Train on one batch: yours, without .item() and print."""
    optimizer.zero_grad(set_to_none=True)
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()


# Time the step without the profiler, which slows the CPU.
for count in (20, 100):  # the first round warms up
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(count):
        step()
    host_us = (time.perf_counter() - start) / count * 1e6  # the CPU has issued the steps
    torch.cuda.synchronize()
    step_us = (time.perf_counter() - start) / count * 1e6  # the GPU has finished them

# Profile a few steps.
with profile(
    activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
    schedule=schedule(wait=0, warmup=WARMUP, active=STEPS, repeat=1),
    on_trace_ready=lambda profiler: profiler.export_chrome_trace("trace.json.gz"),
) as profiler:
    for number in range(1, WARMUP + STEPS + 1):
        step()
        if number in (WARMUP, WARMUP + STEPS):
            torch.cuda.synchronize()  # so that exactly the kernels of STEPS steps are recorded
        profiler.step()  # after every step

# Add up when the GPU worked. Kernels that overlap count once.
with gzip.open("trace.json.gz") as file:
    events = json.load(file)["traceEvents"]
work = [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
busy_us = end = 0.0
for event in sorted(work, key=lambda event: event["ts"]):
    begin, stop = max(event["ts"], end), event["ts"] + event["dur"]
    busy_us += max(0.0, stop - begin) / STEPS
    end = max(end, stop)

idle = 1 - busy_us / step_us
print(f"step {step_us:.0f} µs, host {host_us:.0f} µs, GPU busy {busy_us:.0f} µs: idle {idle:.0%}")
print("A graph of this step runs the same kernels, so it cannot take less than the busy time.")
