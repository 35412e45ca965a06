"""Read a Kineto (torch.profiler) trace, .json or .json.gz, into tables.

Events are read one after the other, so a file needs memory for its largest event and for the
tables, not for its whole text.
"""

import codecs
import gzip
import json
import re
import reprlib
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

HOST = ["cpu_op", "user_annotation", "cuda_runtime", "cuda_driver"]
GPU = {"kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset"}
CATEGORIES = {name: name for name in [*HOST, *GPU]} | {  # and as torch 1.8 to 1.11 called them
    "Operator": "cpu_op",
    "Runtime": "cuda_runtime",
    "Kernel": "kernel",
    "Memcpy": "gpu_memcpy",
    "Memset": "gpu_memset",
}
IDS = ["correlation", "stream", "device"]
FIELDS = ["category", "name", "start_us", "dur_us", "thread", "process", *IDS]
STEP = "ProfilerStep#"
LAUNCH = r"(?:cuda|cu)(?:Launch(?!HostFunc)|GraphLaunch|Memcpy|Memset)"
FAR = 1e17  # microseconds, 3,000 years: no event lasts so long or lies so far off

MIB = 1 << 20
PIECE = MIB  # how much is read at once
LARGEST = 16 * MIB  # how long the text of one value may be
LIMIT_MIB = 1024  # a gzip may unpack to this much
RATIO = 200  # and to so many times its size; a trace packs to a tenth or a thirtieth
decode = json.JSONDecoder().raw_decode
BLANK = re.compile(r"\s*")
DELIMITERS = set(" \t\r\n,:]}")
SEPARATOR = re.compile(r"\s*([,\]])\s*")


class TraceError(ValueError):
    """A trace that cannot be read; the message is one sentence naming the file and the cause."""


def read_tables(path: Path | str, limit_mib: int | None = None) -> dict[str, pd.DataFrame]:
    """Read a trace file into the tables of helpers.trace.Trace. Raises TraceError."""
    try:
        return _tables(_event_table(Path(path), limit_mib))
    except (EOFError, zlib.error, gzip.BadGzipFile):
        cause = "the gzip file is truncated or damaged"
    except (OSError, ValueError, TypeError, ArithmeticError, RecursionError, MemoryError) as error:
        cause = getattr(error, "strerror", None) or str(error)[:200] or "it needs too much memory"
    name = repr(str(path))[1:-1][-200:]
    raise TraceError(f"{name} cannot be read as a profiler trace: {cause}.") from None


def outermost(annotations: pd.DataFrame) -> pd.DataFrame:
    """The host ranges that no other one encloses, by start, without the profiler's own steps."""
    named = annotations[~annotations.name.str.startswith(STEP)].sort_values("start_us")
    return named[named.start_us >= named.end_us.cummax().shift(fill_value=0)]


# From events to tables.


def _tables(events):
    host = events[events.category.isin(HOST)]
    gpu = events[events.category.isin(GPU)]
    if gpu.empty:
        raise ValueError(
            "it holds no GPU activity, so record ProfilerActivity.CUDA, on a machine with a GPU"
        )
    if host.empty:
        raise ValueError(
            "it holds GPU activity but no event of the host, so record ProfilerActivity.CPU as well"
        )
    annotations = host[host.category == "user_annotation"]
    steps = annotations[annotations.name.str.startswith(STEP)].sort_values("start_us")
    if steps.empty:
        steps = _whole_trace(host)
    steps = steps.reset_index(drop=True)
    calls = host[host.category.isin(["cuda_runtime", "cuda_driver"])]
    launches = calls[_named(calls, LAUNCH) | calls.correlation.isin(gpu.correlation.dropna())]
    launches = launches.assign(graph=_named(launches, ".*GraphLaunch"))
    gpu = _join(gpu, launches)
    tables = {
        "cpu_ops": host[host.category == "cpu_op"],
        "annotations": annotations,
        "launches": launches,
        "waits": calls[_named(calls, ".*Synchronize")],
    }
    tables = {name: _in_steps(table, table.start_us, steps) for name, table in tables.items()}
    tables["gpu"] = _in_steps(gpu, gpu.launch_us, steps)
    return {"steps": steps.assign(step=steps.index), **tables}


def _whole_trace(host):
    """Without step marks: a single step that spans the host's events, on its busiest thread."""
    start_us, end_us = host.start_us.min(), host.end_us.max()
    thread = host.thread.value_counts(dropna=False).index[0]
    row = {"name": "whole trace", "start_us": start_us, "end_us": end_us, "thread": thread}
    return pd.DataFrame([row]).assign(dur_us=end_us - start_us)


def _named(table, pattern):
    """Whether each row's name matches the pattern, which is tried once per name."""
    matches = {name: re.match(pattern, name) is not None for name in table.name.unique()}
    return table.name.map(matches).astype(bool)


def _join(gpu, launches):
    """Give each GPU activity its launch: the one with the same correlation id, in either API."""
    by_id = launches.dropna(subset="correlation").drop_duplicates("correlation")
    by_id = by_id.set_index("correlation")
    launch_us = gpu.correlation.map(by_id.start_us)
    graph = gpu.correlation.isin(by_id.index[by_id.graph])
    gpu = gpu.fillna({"stream": -1, "device": -1}).assign(kind=gpu.category.map(GPU))
    return gpu.assign(launch_us=launch_us, graph=graph, orphan=launch_us.isna())


def _in_steps(table, times, steps):
    """Add the column step: the row of steps in whose span each time falls, or -1."""
    row = steps.start_us.searchsorted(times, side="right") - 1
    inside = (row >= 0) & (times.to_numpy() < steps.end_us.to_numpy()[row])
    return table.assign(step=np.where(inside, row, -1)).reset_index(drop=True)


def _event_table(path, limit_mib):
    """The wanted events as one DataFrame with the columns FIELDS and end_us, starting at time 0."""
    rows = []
    for number, event in enumerate(read_events(path, limit_mib)):
        try:
            row = _row(event)
        except (LookupError, TypeError, ValueError, OverflowError):
            shown = reprlib.repr(event)
            raise ValueError(f"event {number} has no usable name or time: {shown}") from None
        if row:
            rows.append(row)
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


def _row(event):
    """An event as a tuple in the order of FIELDS; None if no table needs it."""
    if event["ph"] != "X" or (category := CATEGORIES.get(event.get("cat"))) is None:
        return None
    name = sys.intern(event["name"])  # keep each name once
    start, duration = float(event["ts"]), float(event.get("dur", 0))
    thread, process = event.get("tid"), event.get("pid")
    hash((thread, process))  # a TypeError here rather than in a table
    if not (abs(start) < FAR and 0 <= duration < FAR):
        raise ValueError
    if category == "cpu_op" and name.startswith(STEP):  # up to torch 1.11
        category = "user_annotation"
    return category, name, start, duration, thread, process, *_ids(category, event.get("args"))


def _ids(category, args):
    """Correlation, stream and device, where they say something: a host call's stream does not."""
    if not isinstance(args, dict) or category in ("cpu_op", "user_annotation"):
        return None, None, None
    if category in GPU:
        return args.get("correlation"), args.get("stream"), args.get("device")
    return args.get("correlation"), None, None


# From text to events.


def read_events(path: Path, limit_mib: int | None = None) -> Iterator[Any]:
    """Iterate over the elements of traceEvents, or of the array that is the whole file.

    limit_mib: how much a gzip may unpack to; without it, LIMIT_MIB and RATIO times its size.
    Raises ValueError, or what gzip and the file system raise, also after the last event: what
    follows the events is read as well.
    """
    reader = _Reader(_pieces(path, limit_mib))
    if reader.next() == "[":
        yield from reader.elements()
    else:
        yield from _trace_events(reader)
    if reader.next():
        raise ValueError("something follows its JSON, such as a second trace")


def _trace_events(reader):
    """Yield the elements of the object's own traceEvents, which it must have once."""
    found = False
    reader.take("{")
    while reader.next() != "}":
        key = reader.value()
        reader.take(":")
        if key != "traceEvents":
            reader.value()
        elif found:
            raise ValueError("it has traceEvents twice")
        else:
            found = True
            yield from reader.elements()
        if reader.next() != "}":
            reader.take(",")
    reader.take("}")
    if not found:
        raise ValueError("it is no JSON with traceEvents")


class _Reader:
    """A JSON text, read on as far as it is needed."""

    def __init__(self, pieces):
        self.pieces = pieces
        self.text = ""
        self.at = 0

    def more(self):
        """Read on, to twice the text ahead; False at the end, or if that is longer than LARGEST."""
        ahead = self.text[self.at :]
        parts, added = [ahead], 0
        if len(ahead) < LARGEST:
            for piece in self.pieces:
                parts.append(piece)
                added += len(piece)
                if added > len(ahead):
                    break
        self.text, self.at = "".join(parts), 0
        return added > 0

    def next(self):
        """Skip white space; return the character that follows, "" at the end of the text."""
        while True:
            self.at = BLANK.match(self.text, self.at).end()
            if self.at < len(self.text):
                return self.text[self.at]
            if not self.more():
                return ""

    def take(self, character):
        """Go past this character."""
        if (found := self.next()) != character:
            raise ValueError("it is no JSON with traceEvents" if found else "it is cut off")
        self.at += 1

    def value(self):
        """Go past a value and return it."""
        self.next()
        while True:
            try:
                value, end = decode(self.text, self.at)
                if self.text[end : end + 1] in DELIMITERS:  # else a number might go on
                    self.at = end
                    return value
            except ValueError:
                pass  # damaged, or not yet read to its end
            if not self.more():
                raise ValueError("it is no JSON with traceEvents, or it is cut off")

    def elements(self):
        """Go past an array and yield its elements."""
        self.take("[")
        if self.next() == "]":
            self.at += 1
            return
        number = 0
        while True:
            cause = "nothing follows it"
            try:
                element, end = decode(self.text, self.at)
                found = SEPARATOR.match(self.text, end)
            except ValueError as error:
                found, cause = None, getattr(error, "msg", "a number in it is too long")
            if found:
                self.at = found.end()
                yield element
                number += 1
                if found[1] == "]":
                    return
            elif not self.more():
                raise ValueError(f"event {number} is damaged ({cause})")
            else:
                self.next()


def _pieces(path, limit_mib):
    """The file's text, unpacked, in pieces."""
    if path.exists() and not path.is_file():  # a pipe or a device might never end
        raise ValueError("it is no regular file")
    with path.open("rb") as file:
        packed, size = file.read(2) == b"\x1f\x8b", file.seek(0, 2)
        limit = (limit_mib or min(LIMIT_MIB, max(64, RATIO * size // MIB))) * MIB
        file.seek(max(0, size - 4))
        if packed and int.from_bytes(file.read(), "little") > limit:
            for _ in _unpacked(file, limit):  # the file claims to be larger: look before parsing
                pass
        file.seek(0)
        binary = _unpacked(file, limit) if packed else iter(lambda: file.read(PIECE), b"")
        yield from map(codecs.getincrementaldecoder("utf-8-sig")("replace").decode, binary)


def _unpacked(file, limit):
    file.seek(0)
    with gzip.open(file) as unpacked:
        while piece := unpacked.read(PIECE):
            if unpacked.tell() > limit:
                size = f"it unpacks to more than {limit // MIB} MiB"
                raise ValueError(f"{size}: raise limit_mib (MIB) if you trust it")
            yield piece
