"""Opening a lesson: a kernel with its helpers, and the recorded lessons from top to bottom."""

import os
import time
from pathlib import Path

import pandas as pd
from jupyter_client.manager import start_new_kernel

from course.commands.works_on import through_nbmake
from course.paths import NOTEBOOKS, ROOT

KERNELS = {
    "kernel and helpers": "import helpers.model, helpers.timing, helpers.trace, helpers.charts",
    "kernel and torch alone": "import torch",
    "kernel alone": "pass",
}


def measure_kernels(rounds: int = 3) -> pd.DataFrame:
    """Start a kernel and run its imports, in interleaved rounds: round, variant, seconds."""
    rows = [
        {"round": number, "variant": name, "seconds": start_kernel(code)}
        for number in range(-1, rounds)
        for name, code in KERNELS.items()
    ]
    table = pd.DataFrame(rows)
    return table[table["round"] >= 0]  # the first round brings the files into memory


def start_kernel(code: str) -> float:
    """Seconds from asking for a kernel until code has
    run in it. Raises RuntimeError if it fails.
    """
    start = time.perf_counter()
    manager, client = start_new_kernel(cwd=str(ROOT))
    try:
        reply = client.execute_interactive(code, timeout=120)["content"]
        seconds = time.perf_counter() - start
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    if reply["status"] != "ok":
        raise RuntimeError(f"{code!r} failed in a kernel: {reply['evalue']}")
    return seconds


def run_lessons(paths: list[Path] | None = None) -> pd.DataFrame:
    """Run the lessons as on a machine without a GPU, through nbmake: lesson, seconds, passed."""
    paths = paths or sorted(NOTEBOOKS.glob("*.ipynb"))
    hidden = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    _, cases = through_nbmake(paths, "--nbmake-timeout=300", env=hidden)
    rows = [(path.stem, *case) for path, case in zip(paths, cases, strict=True)]
    return pd.DataFrame(rows, columns=["lesson", "seconds", "passed"])
