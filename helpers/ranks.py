"""Several ranks: their traces side by side, and their communication."""

import gzip
import json
import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd

from helpers.charts import COLOURS, sheet
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


def communication(gpu: pd.DataFrame) -> pd.Series:
    """Whether each of a Trace's GPU activities is a collective of NCCL, by the kernel's name."""
    return gpu.name.str.startswith("nccl")


def per_rank(runs: dict[str, dict[int, Trace]]) -> pd.DataFrame:
    """A row for each run and rank, per step: launches, and microseconds of the GPU's time.

    busy: anything runs; computes, communicates: this runs; exposed: communication runs alone. What
    overlaps counts once in each.
    """
    rows = {}
    for name, ranks in runs.items():
        for rank, trace in ranks.items():
            own, steps = trace.gpu[trace.gpu.step >= 0], len(trace.steps)
            parts = (own, own[~communication(own)], own[communication(own)])
            busy, computes, communicates = (busy_time(part) / steps for part in parts)
            launches = (trace.launches.step >= 0).sum() / steps
            rows[name, f"rank {rank}"] = (launches, busy, computes, communicates, busy - computes)
    columns = [
        "launches",
        *(f"{name}, µs" for name in ("busy", "computes", "communicates", "exposed")),
    ]
    return pd.DataFrame(rows, index=columns).T


def collective_waits(ranks: dict[int, Trace], step: int = -1) -> pd.DataFrame:
    """Microseconds that each collective of a step waited for another rank: a column per rank.

    The nth collective of one rank is the nth of every other. Its kernel starts with its own rank,
    but data moves only when the last rank has started, so the shortest one did not wait. Raises
    ValueError where the ranks ran different numbers of collectives.
    """
    durations = {}
    for rank, trace in ranks.items():
        own = trace.gpu[trace.gpu.step == step % len(trace.steps)]
        durations[rank] = own[communication(own)].sort_values("start_us").dur_us.to_list()
    table = pd.DataFrame(durations)
    return table.sub(table.min(axis=1), axis=0)


def rank_lanes(runs: dict[str, dict[int, Trace]], title: str, step: int = -1) -> np.ndarray:
    """Draw one step of each run, two lanes per rank, on one time axis; returns the Axes.

    runs: name -> what read_ranks returned. step counts as in a list: by default the last, because
    profiling disturbs the first. Each rank has its own clock. An all-reduce ends on all ranks at
    once, so time counts from the end of the step's first one. A collective is hatched while it
    waits for another rank.
    """
    lanes = max(map(len, runs.values()))
    column = sheet(
        title, 1.4 + len(runs) * (0.5 + 0.6 * lanes), len(runs), sharex=True, squeeze=False
    )[:, 0]
    for axes, (name, ranks) in zip(column, runs.items(), strict=True):
        labels: list[str] = []
        waits = collective_waits(ranks, step)
        for rank, trace in ranks.items():
            own = trace.gpu[trace.gpu.step == step % len(trace.steps)].sort_values("start_us")
            collective = communication(own)
            zero = own[collective].end_us.min()
            _lane(axes, len(labels), own[~collective], zero, COLOURS["GPU busy time"])
            labels.append(f"rank {rank} computes")
            waiting = own[collective].assign(dur_us=waits[rank].to_numpy())
            _lane(axes, len(labels), own[collective], zero, COLOURS["other"])
            _lane(axes, len(labels), waiting, zero, COLOURS["other"], hatched=True)
            labels.append(f"rank {rank} communicates")
        axes.set_title(name, loc="left", fontsize="medium", fontweight="bold")
        axes.set(yticks=range(len(labels)), yticklabels=labels, ylim=(len(labels) - 0.5, -0.5))
    column[-1].set_xlabel(
        "time since the step's first all-reduce ended, µs\n(hatched: waits for another rank)"
    )
    column[-1].locator_params(axis="x", nbins=6)
    return column


def _lane(axes, height, rows, zero, colour, hatched=False):
    """The bars of some GPU activities in one lane; a hatched one is empty but for its lines."""
    axes.broken_barh(
        list(zip(rows.start_us - zero, rows.dur_us, strict=True)),
        (height - 0.35, 0.7),
        facecolor="white" if hatched else colour,
        edgecolor=colour,
        hatch="/////" if hatched else None,
        linewidth=0.6,
    )
