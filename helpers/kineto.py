"""Read the file format: any Kineto (torch.profiler) trace, .json or .json.gz, into tables."""

import gzip
import re
import reprlib
import sys
import zlib
from pathlib import Path

import numpy as np
import pandas as pd

from helpers.json_events import read_events

HOST = ["cpu_op", "user_annotation", "cuda_runtime", "cuda_driver"]
GPU = {"kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset"}
WANTED = {*HOST, *GPU}
IDS = ["correlation", "stream", "device"]
FIELDS = ["category", "name", "start_us", "dur_us", "thread", *IDS]
LAUNCH = r"(?:cuda|cu)(?:Launch(?!HostFunc)|GraphLaunch|Memcpy|Memset)"
FAR = 1e17  # microseconds, 3,000 years: no event lasts so long or lies so far off


class TraceError(ValueError):
    """A trace that cannot be read; the message is one sentence naming the file and the cause."""


def read_tables(path: Path | str, limit_mib: int | None = None) -> dict[str, pd.DataFrame]:
    """Read a trace file into the tables of helpers.trace.Trace. Raises TraceError."""
    try:
        return _tables(_event_table(Path(path), limit_mib))
    except (EOFError, zlib.error, gzip.BadGzipFile):
        cause = "the gzip file is truncated or damaged"
    except (OSError, ValueError, TypeError, ArithmeticError, RecursionError, MemoryError) as error:
        cause = getattr(error, "strerror", None) or str(error)[:200] or "it needs more memory than there is"
    raise TraceError(f"{repr(str(path))[1:-1][-200:]} cannot be read as a profiler trace: {cause}.") from None


def outermost(annotations: pd.DataFrame) -> pd.DataFrame:
    """The named host ranges that lie in no other one, by their starts; the profiler's own steps are none."""
    named = annotations[~annotations.name.str.startswith("ProfilerStep#")].sort_values("start_us")
    return named[named.start_us >= named.end_us.cummax().shift(fill_value=0)]


def _tables(events):
    host, gpu = events[events.category.isin(HOST)], events[events.category.isin(GPU)]
    if gpu.empty:
        raise ValueError("it holds no GPU activity, so record ProfilerActivity.CUDA, on a machine with a GPU")
    if host.empty:
        raise ValueError("it holds GPU activity but no event of the host, so record ProfilerActivity.CPU as well")
    annotations = host[host.category == "user_annotation"]
    steps = annotations[annotations.name.str.startswith("ProfilerStep#")].sort_values("start_us")
    steps = (_whole_trace(host) if steps.empty else steps).reset_index(drop=True)
    calls = host[host.category.isin(["cuda_runtime", "cuda_driver"])]
    launches = calls[_named(calls, LAUNCH) | calls.correlation.isin(gpu.correlation.dropna())]
    launches = launches.assign(graph=_named(launches, ".*GraphLaunch"))
    tables = {"cpu_ops": host[host.category == "cpu_op"], "annotations": annotations, "launches": launches}
    tables["waits"] = calls[_named(calls, ".*Synchronize")]
    tables = {name: _in_steps(table, table.start_us, steps) for name, table in tables.items()}
    gpu = _join(gpu, launches)
    return {"steps": steps.assign(step=steps.index), **tables, "gpu": _in_steps(gpu, gpu.launch_us, steps)}


def _named(table, pattern):
    """Whether each row's name matches the pattern, which is tried once per name."""
    return table.name.map({name: re.match(pattern, name) is not None for name in table.name.unique()}).astype(bool)


def _join(gpu, launches):
    """Give each GPU activity its launch: the one with the same correlation id, in either API."""
    by_id = launches.dropna(subset="correlation").drop_duplicates("correlation").set_index("correlation")
    launch_us, graph = gpu.correlation.map(by_id.start_us), gpu.correlation.isin(by_id.index[by_id.graph])
    gpu = gpu.fillna({"stream": -1, "device": -1}).assign(kind=gpu.category.map(GPU))
    return gpu.assign(launch_us=launch_us, graph=graph, orphan=launch_us.isna())


def _in_steps(table, times, steps):
    """Add the column step: the row of steps in whose span each time falls, or -1."""
    row = steps.start_us.searchsorted(times, side="right") - 1
    inside = (row >= 0) & (times.to_numpy() < steps.end_us.to_numpy()[row])
    return table.assign(step=np.where(inside, row, -1)).reset_index(drop=True)


def _whole_trace(host):
    """Without step marks: a single step that spans the host's events, on its busiest thread."""
    whole = {"name": "whole trace", "start_us": host.start_us.min(), "end_us": host.end_us.max()}
    steps = pd.DataFrame([whole | {"thread": host.thread.value_counts(dropna=False).index[0]}])
    return steps.assign(dur_us=steps.end_us - steps.start_us)


def _event_table(path, limit_mib):
    """The wanted events as one DataFrame with the columns FIELDS and end_us, starting at time 0."""
    rows = []
    for number, event in enumerate(read_events(path, limit_mib)):
        try:
            row = _row(event)
        except (LookupError, TypeError, ValueError, OverflowError):
            raise ValueError(f"event {number} has no usable name or time: {reprlib.repr(event)}") from None
        if row:
            rows.append(row)
    if not rows:
        raise ValueError("it holds no operator, launch or kernel, so no profiler step was active")
    columns = dict(zip(FIELDS, zip(*rows, strict=True), strict=True))
    try:
        events = pd.DataFrame(columns | {name: np.array(columns[name], dtype=float) for name in IDS})
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{', '.join(IDS)}: one of them is no number") from None
    start_us = events.start_us - events.start_us.min()
    return events.assign(start_us=start_us, end_us=start_us + events.dur_us)


def _row(event):
    """An event as a tuple in the order of FIELDS; None if no table needs it."""
    if event["ph"] != "X" or event.get("cat") not in WANTED:
        return None
    start, duration, thread, args = float(event["ts"]), float(event.get("dur", 0)), event.get("tid"), event.get("args")
    if not (abs(start) < FAR and 0 <= duration < FAR and hash(thread) is not None):
        raise ValueError
    ids = map(args.get, IDS) if isinstance(args, dict) else [None] * len(IDS)
    return event["cat"], sys.intern(event["name"]), start, duration, thread, *ids  # intern: each name is kept once
