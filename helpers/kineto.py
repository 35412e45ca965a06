"""Read the file format: any Kineto (torch.profiler) trace, .json or .json.gz, into tables."""

import gc
import gzip
import json
import zlib
from pathlib import Path

import numpy as np
import pandas as pd

HOST = ["cpu_op", "user_annotation", "cuda_runtime", "cuda_driver"]
GPU = {"kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset"}
WANTED = {*HOST, *GPU}
FIELDS = ["category", "name", "start_us", "dur_us", "thread", "correlation", "stream", "device"]
LAUNCH = r"^(?:cuda|cu)(?:Launch(?!HostFunc)|GraphLaunch|Memcpy|Memset)"
WAIT = r"Synchronize"


class TraceError(ValueError):
    """A trace that cannot be read; the message is one sentence naming the file and the cause."""


def read_tables(path):
    """Read a trace file into a dict of DataFrames, as described at helpers.trace.Trace."""
    events = read_events(path)
    host, gpu = events[events.category.isin(HOST)], events[events.category.isin(GPU)]
    if gpu.empty:
        raise TraceError(
            f"{path} has {len(events)} CPU events but no GPU activity: it was recorded without "
            "ProfilerActivity.CUDA, or on a machine without a GPU."
        )
    if host.empty:
        raise TraceError(f"{path} has GPU activity but no event of the host: record ProfilerActivity.CPU as well.")
    annotations = host[host.category == "user_annotation"]
    steps = annotations[annotations.name.str.startswith("ProfilerStep#")].sort_values("start_us")
    if steps.empty:
        steps = _whole_trace(host)
    steps = steps.reset_index(drop=True)
    calls = host[host.category.isin(["cuda_runtime", "cuda_driver"])]
    is_launch = calls.name.str.contains(LAUNCH) | calls.correlation.isin(gpu.correlation.dropna())
    launches = calls[is_launch].assign(graph=lambda table: table.name.str.contains("GraphLaunch"))
    tables = {
        "cpu_ops": host[host.category == "cpu_op"],
        "annotations": annotations,
        "launches": launches,
        "waits": calls[calls.name.str.contains(WAIT)],
    }
    tables = {name: _in_steps(table, table.start_us, steps) for name, table in tables.items()}
    gpu = _join(gpu, launches)
    return {"steps": steps.assign(step=steps.index), **tables, "gpu": _in_steps(gpu, gpu.launch_us, steps)}


def _join(gpu, launches):
    """Give each GPU activity its launch: the one with the same correlation id, in either API."""
    by_id = launches.dropna(subset="correlation").drop_duplicates("correlation").set_index("correlation")
    launch_us = gpu.correlation.map(by_id.start_us)
    return gpu.assign(
        kind=gpu.category.map(GPU),
        launch_us=launch_us,
        graph=gpu.correlation.isin(by_id.index[by_id.graph]),
        orphan=launch_us.isna(),
    )


def _in_steps(table, times, steps):
    """Add the column step: the row of steps in whose span each time falls, or -1."""
    row = steps.start_us.searchsorted(times, side="right") - 1
    inside = (row >= 0) & (times.to_numpy() < steps.end_us.to_numpy()[row])
    return table.assign(step=np.where(inside, row, -1)).reset_index(drop=True)


def _whole_trace(host):
    """Without step marks: a single step that spans the host's events, on its busiest thread."""
    start, end, thread = host.start_us.min(), host.end_us.max(), host.thread.mode().iloc[0]
    row = {"name": "whole trace", "start_us": start, "dur_us": end - start, "end_us": end, "thread": thread}
    return pd.DataFrame([row])


def read_events(path):
    """The wanted events as one DataFrame with the columns FIELDS and end_us, starting at time 0."""
    content = parse(Path(path))
    found = content.get("traceEvents") if isinstance(content, dict) else content
    if not isinstance(found, list):
        raise TraceError(f"{path} is JSON without traceEvents, so it is no profiler trace.")
    rows = [event for event in found if isinstance(event, tuple)]
    if not rows:
        raise TraceError(f"{path} holds no operator, launch or kernel: no profiler step was active.")
    events = pd.DataFrame(dict(zip(FIELDS, zip(*rows, strict=True), strict=True)))
    start_us = events.start_us - events.start_us.min()
    return events.assign(start_us=start_us, end_us=start_us + events.dur_us)


def parse(path):
    """Parse a JSON file, gzipped or not, whatever its name. Raises TraceError."""
    collecting = gc.isenabled()
    gc.disable()  # a million new tuples and no garbage: half the time
    try:
        data = path.read_bytes()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
        return json.loads(data.decode(), object_hook=_slim)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise TraceError(f"{path} is a truncated or damaged gzip file: export or copy it again.") from None
    except OSError as error:
        raise TraceError(f"{path} cannot be read ({error.strerror}): name one trace file.") from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise TraceError(f"{path} is not a profiler trace ({type(error).__name__}: {error}).") from None
    finally:
        if collecting:
            gc.enable()


def _slim(node):
    """Keep of each event, while parsing, only what the tables need: half the memory."""
    if "ph" not in node:
        return node if "traceEvents" in node else tuple(map(node.get, ("correlation", "stream", "device")))
    if node["ph"] != "X" or node.get("cat") not in WANTED:
        return None
    times = (float(node["ts"]), float(node.get("dur", 0)))
    return (node["cat"], node["name"], *times, node["tid"], *node.get("args", (None, None, None)))
