"""How long does a call take when the CPU is busy with something else?"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch


@contextmanager
def busy_host(processes_per_core: int = 2) -> Iterator[None]:
    """Within this block every core of the host has so many processes that do nothing but run."""
    command = [sys.executable, "-c", "while True: pass"]
    count = processes_per_core * (os.cpu_count() or 1)
    processes = [subprocess.Popen(command) for _ in range(count)]
    try:
        time.sleep(2)  # until all of them run
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def times_with_wait(call: Callable[[], object], times: int) -> list[float]:
    """Milliseconds of each of so many calls, if the host waits for the GPU after each."""
    milliseconds = []
    for _ in range(times):
        start = time.perf_counter()
        call()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        milliseconds.append((time.perf_counter() - start) * 1e3)
    return milliseconds
