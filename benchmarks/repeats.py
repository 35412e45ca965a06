"""Does a step repeat its bits? And if not, which operator does not? And how long is a call on a busy host?"""

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from helpers.capture import capture_step
from helpers.timing import synchronize


class Keep(TorchDispatchMode):
    """Keeps what every operator of a capture gives in memory of its own, and the operator's name, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = []

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        output = operator(*args, **(kwargs or {}))
        own = not operator.is_view and not operator._schema.is_mutable
        if own and torch.cuda.is_current_stream_capturing():
            self.kept.append((str(operator), output[0] if isinstance(output, tuple) else output))
        return output


def first_to_differ(step: Callable[[], object], times: int = 50) -> dict[str, int]:
    """The operators whose output differs first between two replays of step, and in how many of so many pairs.

    The step must leave its inputs as they are.
    """
    with Keep() as keep:
        replay = capture_step(step)
    found = Counter()
    for _ in range(times):
        replay()
        before = [output.clone() for _, output in keep.kept]
        replay()
        apart = [name for (name, now), was in zip(keep.kept, before, strict=True) if not torch.equal(now, was)]
        found.update(apart[:1])
    return dict(found)


def differing(step: Callable[[], Tensor], times: int = 100) -> int:
    """How many of so many runs of a step, from the same state, do not give the first run's bits."""
    first = step().clone()
    return int(sum((step() != first).any() for _ in range(times)))


@contextmanager
def busy_host(per_core: int = 2) -> Iterator[None]:
    """A host whose every core has so many processes that do nothing but run."""
    command = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(command) for _ in range(per_core * os.cpu_count())]
    try:
        time.sleep(2)  # until all of them run
        yield
    finally:
        for process in others:
            process.kill()
            process.wait()


def waited(call: Callable[[], object], times: int) -> list[float]:
    """Milliseconds of each of so many calls, when the host waits for each."""
    spent = []
    for _ in range(times):
        start = time.perf_counter()
        call()
        synchronize()
        spent.append((time.perf_counter() - start) * 1e3)
    return spent
