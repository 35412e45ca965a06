"""Several ranks: their traces side by side, and their communication."""

import gzip
import json
import re
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from helpers.trace import Trace, busy_time, read_trace
from trace_report.trace_file import TraceError

INFO = re.compile(r'"distributedInfo"\s*:\s*')


def distributed_info(path: Path | str) -> dict:
    """What a Kineto trace says of its rank: backend, rank, world_size and, from NCCL, nccl_version.

    Raises TraceError where it says nothing: no process group was there when the profiler started.
    """
    with (gzip.open if str(path).endswith(".gz") else open)(path, "rt", encoding="utf-8") as file:
        head = file.read(1 << 20)  # it stands before the events
    if not (found := INFO.search(head)):
        raise TraceError(
            f"{str(path)!r} names no rank: start the profiler after init_process_group."
        )
    return json.JSONDecoder().raw_decode(head, found.end())[0]


def read_ranks(paths: Iterable[Path | str]) -> dict[int, Trace]:
    """Read the traces of one run, a file per rank in any order: rank -> Trace, by rank.

    Raises TraceError where two files are of the same rank, and as read_trace does.
    """
    traces: dict[int, Trace] = {}
    for path in paths:
        rank = distributed_info(path)["rank"]
        if rank in traces:
            raise TraceError(
                f"{str(path)!r} and {str(traces[rank].path)!r} are both of rank {rank}."
            )
        traces[rank] = read_trace(path)
    return dict(sorted(traces.items()))


def is_communication(gpu: pd.DataFrame) -> pd.Series:
    """Whether each of a Trace's GPU activities is a collective of NCCL, by the kernel's name."""
    return gpu.name.str.startswith("nccl")


def gpu_times_per_rank(runs: dict[str, dict[int, Trace]]) -> pd.DataFrame:
    """A row for each run and rank, per step: launches, and microseconds of the GPU's time.

    busy: anything runs; computes, communicates: this runs; exposed: communication runs alone. What
    overlaps counts once in each.
    """
    rows = {}
    for name, ranks in runs.items():
        for rank, trace in ranks.items():
            own, steps = trace.gpu[trace.gpu.step >= 0], len(trace.steps)
            parts = (own, own[~is_communication(own)], own[is_communication(own)])
            busy, computes, communicates = (busy_time(part) / steps for part in parts)
            launches = (trace.launches.step >= 0).sum() / steps
            rows[name, f"rank {rank}"] = (launches, busy, computes, communicates, busy - computes)
    columns = [
        "launches",
        *(f"{name}, µs" for name in ("busy", "computes", "communicates", "exposed")),
    ]
    return pd.DataFrame(rows, index=columns).T
