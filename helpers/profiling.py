"""Record profiler traces of a few steps."""

import gzip
import json
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from course.files import replacing


def record_trace(step, path, steps=7, warmup=3):
    """Profile a few own steps of step, a function without arguments, into a gzipped Kineto trace.

    Stacks, shapes and memory stay off, for they slow the host. The GPU is idle when the first step
    starts, so nothing of the warm-up leaks in; the wait after the last step lies inside it.
    Returns the path; an existing file is replaced. Needs a CUDA GPU.
    """
    both = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    phases = schedule(wait=0, warmup=warmup, active=steps, repeat=1)
    with profile(activities=both, schedule=phases, acc_events=True) as profiler:
        for number in range(1, warmup + steps + 1):
            step()
            if number in (warmup, warmup + steps):
                torch.cuda.synchronize()
            profiler.step()
    return save_trace(profiler, path)


def save_trace(profiler, path):
    """Save what a torch.profiler.profile recorded as gzipped Kineto JSON at path, and return path.

    Python stacks stay out: they are most of a trace's size and full of the machine's own paths.
    An earlier file stays as it was until the new one is whole; SavingError if the disk refuses it.
    """
    path = Path(path)
    with replacing(path) as packed:
        plain = packed.with_suffix("")  # ends in .json, so Kineto does not pack it
        profiler.export_chrome_trace(str(plain))
        content = json.loads(plain.read_bytes()) | {"traceName": path.name}
        content["traceEvents"] = [event for event in content["traceEvents"] if event.get("cat") != "python_function"]
        # mtime=0: the same trace gives the same bytes
        packed.write_bytes(gzip.compress(json.dumps(content, separators=(",", ":")).encode(), mtime=0))
    return path
