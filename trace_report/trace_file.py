"""Read a Kineto (torch.profiler) trace, .json or .json.gz, into tables.

An event becomes a row as soon as it is parsed, so memory holds the file's text and the rows: for
200 MB 460 MiB and 2.9 s of CPU time. A plain json.load needs 900 MiB and 5.7 s, ijson 330 and 3.5.
"""

import gzip
import json
import re
import reprlib
import sys
import zlib
from pathlib import Path

import numpy as np
import pandas as pd

HOST = ["cpu_op", "user_annotation", "cuda_runtime", "cuda_driver"]
GPU = {"kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset"}
CATEGORIES = {*HOST, *GPU}
IDS = ["correlation", "stream", "device"]
FIELDS = ["category", "name", "start_us", "dur_us", "thread", "process", *IDS]
STEP = "ProfilerStep#"
LAUNCH = r"(?:cuda|cu)(?:Launch(?!HostFunc)|GraphLaunch|Memcpy|Memset)"
GIVES_WORK = r"(?:cuda|cu)(?:LaunchKernel|LaunchCooperative|GraphLaunch)"  # always a GPU activity
WHOLE = "whole trace"  # the name of the only step of a trace without marks
NO_GPU = "it holds no GPU activity, so record ProfilerActivity.CUDA, on a machine with a GPU"
FAR = 1e17  # microseconds, 3,000 years: no event lasts so long or lies so far off

MIB = 1 << 20
LIMIT_MIB = 1024  # a gzip may unpack to this much
RATIO = 200  # and to so many times its size; a trace packs to a tenth or a thirtieth


class TraceError(ValueError):
    """A trace that cannot be read; the message is one sentence naming the file and the cause."""


def read_tables(
    path: Path | str, limit_mib: int | None = None, needs_gpu: bool = True
) -> dict[str, pd.DataFrame]:
    """Read a trace file into the tables of trace_report.trace.Trace. Raises TraceError."""
    try:
        return _tables(_event_table(_events(Path(path), limit_mib)), needs_gpu)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        cause = "the gzip file is truncated or damaged"
    except json.JSONDecodeError as error:
        what = error.msg.removesuffix(" at")
        cause = f"it is no JSON, or it is cut off ({what} at character {error.pos})"
    except (OSError, ValueError, TypeError, ArithmeticError, RecursionError, MemoryError) as error:
        cause = getattr(error, "strerror", None) or str(error)[:200] or "it needs too much memory"
    name = repr(str(path))[1:-1][-200:]
    raise TraceError(f"{name} cannot be read as a profiler trace: {cause}.") from None


def outermost(annotations: pd.DataFrame) -> pd.DataFrame:
    """The host ranges that no other one encloses, by start, without the profiler's own steps."""
    named = annotations[~annotations.name.str.startswith(STEP)].sort_values("start_us")
    return named[named.start_us >= named.end_us.cummax().shift(fill_value=0)]


def explain_no_gpu(calls: pd.DataFrame) -> str:
    """Why a trace with these calls of the host holds no GPU activity."""
    if not (launched := name_matches(calls, GIVES_WORK)).any():
        return NO_GPU
    return (
        f"it holds no GPU activity, although it holds {launched.sum()} launches such as "
        f"{calls.name[launched].iloc[0]}: CUPTI, by which the profiler sees the GPU, recorded "
        "nothing, as where another profiler uses it or the driver reserves it for administrators"
    )


# From a file to events.


def _events(path, limit_mib):
    """The elements of traceEvents, or of the array that is the whole file, as rows; see _row."""
    content = json.loads(_text(path, limit_mib), object_hook=_row)
    events = content.get("traceEvents") if isinstance(content, dict) else content
    if not isinstance(events, list):
        raise ValueError("it is no JSON with traceEvents")
    return events


def _text(path, limit_mib):
    """The file's text, unpacked."""
    if path.exists() and not path.is_file():  # a pipe or a device might never end
        raise ValueError("it is no regular file")
    with path.open("rb") as file:
        packed, size = file.read(2) == b"\x1f\x8b", file.seek(0, 2)
        file.seek(0)
        limit = (limit_mib or min(LIMIT_MIB, max(64, RATIO * size // MIB))) * MIB
        content = gzip.GzipFile(fileobj=file).read(limit + 1) if packed else file.read()
    if packed and len(content) > limit:
        raise ValueError(
            f"it unpacks to more than {limit // MIB} MiB: raise limit_mib (--limit-mib) if you "
            "trust it"
        )
    return content.decode("utf-8-sig", "replace")


# From events to tables.


def _tables(events, needs_gpu):
    host = events[events.category.isin(HOST)]
    gpu = events[events.category.isin(GPU)]
    if gpu.empty and needs_gpu:
        raise ValueError(explain_no_gpu(host))
    if host.empty:
        raise ValueError(
            "it holds GPU activity but no event of the host, so record ProfilerActivity.CPU as well"
        )
    annotations = host[host.category == "user_annotation"]
    steps = annotations[annotations.name.str.startswith(STEP)].sort_values("start_us")
    if steps.empty:
        steps = _single_step(host)
    steps = steps.reset_index(drop=True)
    calls = host[host.category.isin(["cuda_runtime", "cuda_driver"])]
    launches = calls[name_matches(calls, LAUNCH) | calls.correlation.isin(gpu.correlation.dropna())]
    launches = launches.assign(graph=name_matches(launches, ".*GraphLaunch"))
    tables = {"cpu_ops": host[host.category == "cpu_op"], "annotations": annotations}
    tables |= {"launches": launches, "waits": calls[name_matches(calls, ".*Synchronize")]}
    tables = {name: _with_step_column(table, steps) for name, table in tables.items()}
    gpu = _join(gpu, tables["launches"])
    return {"steps": steps.assign(step=steps.index), "gpu": gpu, **tables}


def _single_step(host):
    """Without step marks: a single step that spans the host's events, on its busiest thread."""
    start_us, end_us = host.start_us.min(), host.end_us.max()
    process, thread = host.groupby(["process", "thread"], dropna=False).size().idxmax()
    row = {"name": WHOLE, "start_us": start_us, "end_us": end_us, "dur_us": end_us - start_us}
    return pd.DataFrame([row | {"thread": thread, "process": process}])


def name_matches(table: pd.DataFrame, pattern: str) -> pd.Series:
    """Whether each row's name matches the pattern from its start on; it is tried once per name."""
    matches = {name: re.match(pattern, name) is not None for name in table.name.unique()}
    return table.name.map(matches).astype(bool)


def _join(gpu, launches):
    """Give each GPU activity its launch: the one with the same correlation id, in either API.

    An activity without a device (a number from 0 on) is on the only one of the steps, or on -1.
    """
    by_id = launches.dropna(subset="correlation").drop_duplicates("correlation")
    by_id = by_id.set_index("correlation")
    launch_us = gpu.correlation.map(by_id.start_us)
    gpu = gpu.assign(
        device=gpu.device.where(gpu.device.between(0, np.inf, inclusive="left")),
        kind=gpu.category.map(GPU),
        launch_us=launch_us,
        launched_us=gpu.correlation.map(by_id.end_us),
        graph=gpu.correlation.isin(by_id.index[by_id.graph]),
        orphan=launch_us.isna(),
        step=gpu.correlation.map(by_id.step).fillna(-1).astype(int),
    )
    devices = gpu.device[gpu.step >= 0].dropna().unique()
    only = devices[0] if len(devices) == 1 else -1
    return gpu.fillna({"stream": -1, "device": only}).reset_index(drop=True)


def _with_step_column(table, steps):
    """Add the column step: the row of steps in whose span each row starts, or -1.

    Other processes than that of the steps have no step.
    """
    row = steps.start_us.searchsorted(table.start_us, side="right") - 1
    inside = (row >= 0) & (table.start_us.to_numpy() < steps.end_us.to_numpy()[row])
    own = inside & table.process.isin(steps.process).to_numpy()
    return table.assign(step=np.where(own, row, -1)).reset_index(drop=True)


def _event_table(events):
    """The wanted events as one DataFrame with the columns FIELDS and end_us, starting at time 0."""
    for number, event in enumerate(events):
        if not isinstance(event, tuple):
            shown = reprlib.repr(event)
            raise ValueError(f"event {number} has no usable name or time: {shown}")
    rows = [row for row in events if row]
    if not rows:
        raise ValueError("it holds no operator, launch or kernel, so no profiler step was active")
    columns = dict(zip(FIELDS, zip(*rows, strict=True), strict=True))
    for name in IDS:
        try:
            columns[name] = np.array(columns[name], dtype=float)
        except (TypeError, ValueError, OverflowError):
            raise ValueError(f"the {name} of an event is no number") from None
    events = pd.DataFrame(columns)
    start_us = events.start_us - events.start_us.min()
    return events.assign(start_us=start_us, end_us=start_us + events.dur_us)


def _row(found):
    """An event as a tuple in the order of FIELDS, an empty one if no table needs it. Whatever else
    the file holds stays as it is, an unusable event as well.
    """
    if "ph" not in found:
        return found
    try:
        category = found.get("cat")
        if found["ph"] != "X" or category not in CATEGORIES:
            return ()
        name = sys.intern(found["name"])  # keep each name once
        start, duration = float(found["ts"]), float(found.get("dur", 0))
        thread, process = found.get("tid"), found.get("pid")
        hash((thread, process))  # a TypeError here rather than in a table
    except (LookupError, TypeError, ValueError, OverflowError):
        return found
    if not (abs(start) < FAR and 0 <= duration < FAR):
        return found
    return category, name, start, duration, thread, process, *_ids(category, found.get("args"))


def _ids(category, args):
    """Correlation, stream and device, where they say something: a host call's stream does not."""
    if not isinstance(args, dict) or category in ("cpu_op", "user_annotation"):
        return None, None, None
    if category in GPU:
        return args.get("correlation"), args.get("stream"), args.get("device")
    return args.get("correlation"), None, None
