"""Record profiler traces of a few steps."""

import gzip
import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, schedule

BOTH = [ProfilerActivity.CPU, ProfilerActivity.CUDA]


class SavingError(RuntimeError):
    """A trace could not be written; an earlier one is unchanged. Notebooks show one sentence."""

    def _render_traceback_(self):
        return [f"{type(self).__name__}: {self}"]


def record_trace(
    step: Callable[[], object], path: Path | str, steps: int = 7, warmup: int = 3
) -> Path:
    """Profile a few calls of step, a function without arguments, into a gzipped Kineto trace.

    Stacks, shapes and memory stay off: they slow the host. The GPU is idle when the first step
    starts, so nothing of the warm-up leaks in; the wait after the last step is part of it. Returns
    path, as save_trace does.
    """
    phases = schedule(wait=0, warmup=warmup, active=steps, repeat=1)
    with profile(activities=BOTH, schedule=phases, acc_events=True) as profiler:
        for number in range(1, warmup + steps + 1):
            step()
            if number in (warmup, warmup + steps):
                torch.cuda.synchronize()
            profiler.step()
    return save_trace(profiler, path)


def save_trace(profiler: profile, path: Path | str) -> Path:
    """Save what a torch.profiler.profile recorded as gzipped Kineto JSON at path, and return path.

    Python stacks stay out: they are most of a trace's size and full of the machine's own paths. The
    file is written next to path and replaces it once it is whole. Raises SavingError if the disk
    refuses.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".saving-") as folder:
            plain, packed = Path(folder) / "trace.json", Path(folder) / path.name
            profiler.export_chrome_trace(str(plain))
            content = json.loads(plain.read_bytes()) | {"traceName": path.name}
            content["traceEvents"] = [
                one for one in content["traceEvents"] if one.get("cat") != "python_function"
            ]
            # mtime=0: the same trace gives the same bytes
            packed.write_bytes(
                gzip.compress(json.dumps(content, separators=(",", ":")).encode(), mtime=0)
            )
            packed.replace(path)
    except (OSError, ValueError) as error:
        if isinstance(error, FileNotFoundError | ValueError):
            # the profiler's writer says nothing of a full disk: it leaves no file, or half a one
            reason = "its writer stopped short"
        else:
            reason = error.strerror or str(error)
        existing = next(folder for folder in path.absolute().parents if folder.exists())
        free = f"{shutil.disk_usage(existing).free >> 20} MiB free on that disk"
        fix = "make room, or see what is in the way, and run this again"
        raise SavingError(
            f"{path} could not be written ({reason}; {free}): {fix}; an earlier trace is unchanged."
        ) from error
    return path
