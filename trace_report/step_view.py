"""The step of a trace that a report shows, in few enough bars to draw."""

import re
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pandas as pd

from trace_report.intervals import busy_time_until
from trace_report.trace import Trace
from trace_report.trace_file import outermost

MOST = 2000  # bars of a step
# in the name of a kernel or range
SAYS_NOTHING = re.compile(
    r"^void |at::native::|\(anonymous namespace\)::|\bat::|^[# ]+|[# ]+$"
    "|^autograd::engine::evaluate_function: "
)


def short_name(name: str) -> str:
    """The name of a kernel or range without what says nothing."""
    return SAYS_NOTHING.sub("", name)


def shown_step(trace: Trace) -> int:
    """The step to show: that of median length, of those in steady state."""
    spans = trace.spans()
    lengths_us = spans.end_us - spans.start_us - (spans.resume_us - spans.pause_us)
    return int(lengths_us.sort_values(kind="stable").index[(len(spans) - 1) // 2])


def trace_of_one_step(trace: Trace, step: int) -> tuple[Trace, int]:
    """A trace of this step alone, as step 0, and how many events it has if these are too many to
    draw, else 0: then they are in bins; see _binned.

    Its GPU work counts wherever it runs. What other steps launched is of step -1, as far as it runs
    meanwhile. Operators outside of any record_function range count as ranges of the host.
    """
    tables = {"launches": trace.launches, "waits": trace.waits, "gpu": trace.gpu}
    tables["annotations"] = outermost(host_ops_and_ranges(trace))
    tables = {name: rows[rows.step == step].assign(step=0) for name, rows in tables.items()}
    start_us = trace.steps.start_us[step]
    ends = [rows.end_us.max() for rows in tables.values() if len(rows)]
    end_us = max(ends, default=trace.steps.end_us[step])
    others = trace.gpu[(trace.gpu.step != step) & (trace.gpu.end_us > start_us)]
    others = others[others.start_us < end_us].assign(step=-1, correlation=np.nan)
    others["start_us"] = others.start_us.clip(lower=start_us)
    others["end_us"] = others.end_us.clip(upper=end_us)
    others["dur_us"] = others.end_us - others.start_us
    tables["gpu"] = pd.concat([tables["gpu"], others], ignore_index=True)
    count = sum(map(len, tables.values()))
    if count > MOST:
        edges = np.linspace(start_us, end_us, MOST // 8)
        lanes = {name: ["step"] for name in tables} | {"gpu": ["device", "stream", "step"]}
        tables = {name: _binned(rows, edges, lanes[name]) for name, rows in tables.items()}
    own = trace.steps.loc[[step]].reset_index(drop=True).assign(step=0)
    return replace(trace, steps=own, **tables), count if count > MOST else 0


def pale_bars_note(alone: Iterable[Trace]) -> str:
    """What the pale bars in a picture of these traces of one step are; "" if it has none."""
    others = any((one.gpu.step < 0).any() for one in alone)
    return " Pale: what other steps launched." if others else ""


def events_of_step(trace: Trace, step: int) -> dict[str, pd.DataFrame]:
    """The step's outermost host ranges, launches, waits and GPU activities, each with at_us, from
    the step's start; and others: GPU activities of no step meanwhile.
    """
    start_us = trace.start_us(step)
    ranges = outermost(trace.annotations[trace.annotations.step == step])
    tables = {"ranges": ranges, "launches": trace.launches, "waits": trace.waits, "gpu": trace.gpu}
    tables = {name: rows[rows.step == step] for name, rows in tables.items()}
    tables["others"] = trace.gpu[trace.gpu.step < 0]
    part = {
        name: rows.assign(at_us=rows.start_us - start_us).sort_values("at_us")
        for name, rows in tables.items()
    }
    others = part.pop("others")
    inside = (others.at_us >= 0) & (others.at_us + others.dur_us <= last_end_us(part))
    return part | {"others": others[inside]}


def last_end_us(part: dict[str, pd.DataFrame]) -> float:
    """When the last event of these tables ends, from the step's start; 0 without any."""
    return max([0, *((rows.at_us + rows.dur_us).max() for rows in part.values() if len(rows))])


def _binned(rows, edges, lane):
    """One bar for each lane and bin of time, as long as something ran in it; a lane of fewer events
    than bins keeps its own.
    """
    bins = []
    for _, events in rows.groupby(lane):
        if len(events) < len(edges):
            bins.append(events)
            continue
        busy_us = np.diff(busy_time_until(events, edges))
        begin = np.searchsorted(edges, events.start_us, side="right") - 1
        counts = np.bincount(np.clip(begin, 0, len(busy_us) - 1), minlength=len(busy_us))
        names = [f"{count} events begin here" for count in counts]
        bars = events.iloc[[0] * len(busy_us)].assign(
            category="bin", name=names, start_us=edges[:-1], dur_us=busy_us, correlation=np.nan
        )
        bars = bars.assign(end_us=bars.start_us + bars.dur_us)
        bins.append(bars.assign(launch_us=np.nan)[busy_us > 0])
    return pd.concat(bins, ignore_index=True) if bins else rows


def host_ops_and_ranges(trace: Trace) -> pd.DataFrame:
    """The operators and the record_function ranges of the steps."""
    host = pd.concat([trace.annotations, trace.cpu_ops])
    return host[host.step >= 0]


def longest_ranges(trace: Trace) -> pd.Series:
    """µs per step in the host's outermost ranges and operators, by name: the ten longest."""
    work = outermost(host_ops_and_ranges(trace))
    totals = work.groupby(work.name.map(short_name)).dur_us.sum()
    return totals.sort_values(ascending=False)[:10] / len(trace.steps)
