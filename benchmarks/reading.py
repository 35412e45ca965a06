"""Reading a trace: helpers.trace beside json alone and beside HolisticTraceAnalysis (HTA).

Each reading runs in a process of its own, so that no memory and no cache is handed on. Imports are
not timed. Of HTA only parse_trace_file is timed: it turns the file into one DataFrame, joins
launches and GPU activities and assigns steps, which is what read_trace does. Ours sums the steps up
as well.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from benchmarks.long_trace import build_trace
from course.paths import ROOT


class Job(NamedTuple):
    """A trace to build, about size bytes of JSON with so
    many steps (see build_trace), and its readings.
    """

    size: float
    steps: int
    rounds: int


JOBS = {
    "2.6 MB, 7 steps": Job(2.6e6, 7, 5),
    "200 MB, 7 large steps": Job(200e6, 7, 3),
    "200 MB, small steps as recorded": Job(200e6, 0, 1),  # HTA takes minutes
    "40 MB, 20,000 steps": Job(40e6, 20_000, 1),  # and here
}
LIMIT = 40  # seconds, after which a reader is stopped

# what a reader's process imports, what it is timed for, and how it counts kernels afterwards
READERS = {
    "read_trace": (
        "from helpers.trace import read_trace",
        "trace = read_trace(path); trace.summary()",
        "(trace.gpu.kind == 'kernel').sum()",
    ),
    "json alone": (
        "import gzip, json",
        "content = json.load(gzip.open(path))",
        "sum(event.get('cat') == 'kernel' for event in content['traceEvents'])",
    ),
    "HTA": (
        "from hta.common.trace import parse_trace_file",
        "_, table, symbols = parse_trace_file(path)",
        "(table.cat == symbols.sym_index['kernel']).sum()",
    ),
}
SCRIPT = """
import json, time
path = {path!r}
{imports}
start = time.perf_counter()
{read}
seconds = time.perf_counter() - start
peak = open("/proc/self/status").read().split("VmHWM:")[1].split()[0]
print(json.dumps({{"seconds": seconds, "peak MB": int(peak) * 1024 / 1e6, "kernels": int({count})}}))
"""


def read_apart(name: str, path: Path, limit: float = LIMIT) -> dict:
    """Read path with the reader name in a new process: variant, seconds, peak MB and kernels.

    A reader that takes longer than limit is stopped, and its variant says so.
    """
    imports, read, count = READERS[name]
    script = SCRIPT.format(path=str(path), imports=imports, read=read, count=count)
    # without it HTA rounds times to whole microseconds
    environment = os.environ | {"HTA_DISABLE_NS_ROUNDING": "1"}
    command = [sys.executable, "-c", script]
    try:
        run = subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=limit,
        )
    except subprocess.TimeoutExpired:
        return {"variant": f"{name}, stopped after {limit} s", "seconds": limit}
    return {"variant": name} | json.loads(run.stdout.splitlines()[-1])


def measure_readers(path: Path, rounds: int, readers: Iterable[str] = READERS) -> pd.DataFrame:
    """Read path with every installed reader in interleaved
    rounds: round, variant, seconds, peak MB, kernels.
    """
    found = [name for name in readers if find_spec("hta") or not name.startswith("HTA")]
    return pd.DataFrame(
        [{"round": number} | read_apart(name, path) for number in range(rounds) for name in found]
    )


def measure_reading(jobs: dict[str, Job] = JOBS) -> dict[str, pd.DataFrame]:
    """Build each job's trace and have it read: the rounds by the job's name."""
    measured = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json.gz"
        for name, job in jobs.items():
            build_trace(path, job.size, job.steps)
            measured[name] = measure_readers(path, job.rounds)
    return measured
