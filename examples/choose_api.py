"""Which CUDA graph API fits a training step? Five numbers of a profiler trace decide.

    python examples/choose_api.py

Replace make_step_and_batches by your own. It needs a CUDA GPU and nothing but PyTorch.
"""

import json
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import quantiles

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

MARK = "one step"
GPU_WORK = {"kernel", "gpu_memcpy", "gpu_memset"}
CUDA_CALLS = {"cuda_runtime", "cuda_driver"}
RANGES = {"user_annotation"}
NUMBERS = ("busy_us", "gradients_us", "other_us", "optimizer_us", "before", "waits")
PRODUCTS = re.compile("gemm|gemv|nvjet|xmma|cutlass|conv|cudnn|flash|fmha|attention", re.IGNORECASE)
WARM_UP, TIMED = 2, 5  # times through all batches
ROUNDS = 5  # of TIMED times each


def make_step_and_batches() -> tuple[Callable[[torch.Tensor], torch.Tensor], list[torch.Tensor]]:
    """Yours: a training step, and batches of all the shapes that it meets, on the GPU."""
    model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())

    def step(batch):
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, list(torch.randn(5, 64, 512, device="cuda"))


def ask_trace(step: Callable, batches: Sequence) -> dict[str, float]:
    """Run a step on each batch, to time it and for the trace: five numbers, and the step time.

    The step time is the median of ROUNDS, in µs, with its quartiles q1 and q3. A batch is a tensor,
    or a tuple of the step's arguments. Training goes on in the meantime.
    """
    calls = [batch if isinstance(batch, tuple) else (batch,) for batch in batches]
    for _ in range(WARM_UP):
        run_marked_steps(step, calls)
    rounds_us = [time_step(step, calls) for _ in range(ROUNDS)]
    q1, median, q3 = quantiles(rounds_us, n=4, method="inclusive")
    found = trace_numbers(trace_events(step, calls), median)
    return found | {"step_us": round(median), "q1": round(q1), "q3": round(q3)}


def time_step(step: Callable, calls: Sequence[tuple]) -> float:
    """µs per step of a round, which waits for the GPU once, at its end."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(TIMED):
        run_marked_steps(step, calls)
    torch.cuda.synchronize()
    return 1e6 * (time.perf_counter() - start) / TIMED / len(calls)


def run_marked_steps(step: Callable, calls: Sequence[tuple]) -> None:
    """Take a step on each batch, marked for the trace."""
    for call in calls:
        with record_function(MARK):
            step(*call)


def trace_events(step: Callable, calls: Sequence[tuple]) -> list[dict]:
    """The events of a profiler trace of a step on each batch."""
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        step(*calls[0])  # not marked: the profiler's first step is slower
        run_marked_steps(step, calls)
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        return json.loads(path.read_text())["traceEvents"]


def trace_numbers(events: list[dict], step_us: float) -> dict[str, float]:
    """Five numbers, averaged over the marked steps. step_us: a step without the profiler.

    The GPU works on one stream, and no step is a graph yet. The profiler slows the CPU, so the
    fourth number is an upper bound. No number shows a value that a capture would freeze: `python -m
    capturable check` does. Raises ValueError if a step launched no GPU work.
    """
    marks = [event for event in events if event.get("cat") in RANGES and event["name"] == MARK]
    steps = [summarize_step(events, mark) for mark in marks]
    if not steps or not all(step["gradients_us"] for step in steps):
        raise ValueError("A marked step launched no GPU work: profile on a CUDA GPU.")
    mean = {name: sum(step[name] for step in steps) / len(steps) for name in NUMBERS}
    return {
        "idle": max(0.0, 1 - mean["busy_us"] / step_us - mean["before"]),  # <- 1
        "waits": mean["waits"],  # <- 2
        "kinds": len({step["launched"] for step in steps}),  # <- 3
        "optimizer": mean["optimizer_us"] / mean["gradients_us"],  # <- 4
        "other": mean["other_us"] / mean["busy_us"],  # <- 5
    }


def summarize_step(events: list[dict], mark: dict) -> dict:
    """What happened in one marked step: times in µs, the share of it before the first launch, the
    number of waits after that launch, the last one of the step included, and what was launched.
    """
    inside = [event for event in events if _begins_in(event, mark)]
    calls = [event for event in inside if event.get("cat") in CUDA_CALLS]
    ranges = [event for event in inside if event.get("cat") in RANGES]
    updates = [event for event in ranges if event["name"].startswith("Optimizer.step")]
    launches = {_id(event): event for event in calls if _id(event) is not None}
    work = [event for event in events if event.get("cat") in GPU_WORK and _id(event) in launches]
    begins = sorted(launches[_id(event)]["ts"] for event in work) or [mark["ts"]]
    update = [event for event in work if any(_begins_in(launches[_id(event)], u) for u in updates)]
    other = [event for event in work if not PRODUCTS.search(event["name"])]
    waits = [event for event in calls if "Synchronize" in event["name"]]
    return {
        "busy_us": _total(work),
        "gradients_us": _total(work) - _total(update),
        "other_us": _total(other),
        "optimizer_us": _total(updates),
        "before": (begins[0] - mark["ts"]) / mark["dur"],
        "waits": sum(wait["ts"] > begins[0] for wait in waits),
        "launched": tuple(sorted(map(_launch_signature, work))),
    }


def advise(found: dict[str, float]) -> str:
    """The decision tree: the method that fits the answers."""
    if found["idle"] < 0.2:
        return "compile"
    if found["waits"] > 0:
        return "graphed parts"
    if found["kinds"] > 1:
        return "a graph for each shape"
    whole = found["optimizer"] > 1
    graph = "whole-step graph" if whole else "graph of forward and backward"
    return f"{graph}, compiled" if found["other"] >= 0.2 else graph


def _begins_in(event, outer):
    return outer["ts"] <= event.get("ts", -1) < outer["ts"] + outer["dur"]


def _id(event):
    return event.get("args", {}).get("correlation")


def _total(events):
    return sum(event["dur"] for event in events)


def _launch_signature(event):
    args = event["args"]
    return f"{event['name']} {args.get('grid')} {args.get('bytes')}"


def main() -> None:
    """Ask the trace and print the advice."""
    found = ask_trace(*make_step_and_batches())
    print({name: round(number, 2) for name, number in found.items()})
    print(advise(found))


if __name__ == "__main__":
    main()
