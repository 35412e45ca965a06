"""One step of several traces on one time axis: hover over a bar, zoom in, switch; by mouse, finger
or keys.

A page grows by some 40 kB. Weighed first, by what each page would carry: bokeh 1.3 MB, plotly's
basic bundle 1.2, echarts 1.1, vis-timeline 0.5, vega 0.5, d3 0.3; uPlot has 0.05 but draws no bars
from here to there. In none of them do keys go from bar to bar.
"""

import re

import numpy as np
import pandas as pd

from trace_report.lanes import COLOURS
from trace_report.step_view import events_of_step, short_name
from trace_report.touch import touchable_html
from trace_report.trace import Trace
from trace_report.units import in_words

# a lane and its colour
HOST = {"host ranges": "host time", "launches": "launch", "waits": "waiting"}
LONGEST = 120  # characters of a name
NUMBER = re.compile(r"-?\d+")


def timeline(traces: dict[str, Trace], step: int, still: str) -> str:
    """One step of several traces, a dict of name -> Trace, as HTML: a timeline to touch, and still
    (HTML) where no script runs; see timeline_data for the lanes.

    Time counts from the step's start on the host. Raises IndexError if a trace has no such step.
    """
    return touchable_html("timeline", still, timeline_data(traces, step))


def timeline_data(traces: dict[str, Trace], step: int) -> dict:
    """What the script draws: lanes (label, colour), end (µs), and the bars of each trace by its
    name.

    A bar is [lane, start_us, dur_us, name, what to say of it, the bars that it started or was
    started by, whether it is of another step].
    """
    rows = {name: _events_with_lanes(trace, step) for name, trace in traces.items()}
    every = pd.concat(rows.values())
    found = sorted(set(every.lane) - set(HOST), key=lambda lane: [*map(int, NUMBER.findall(lane))])
    lanes = {lane: colour for lane, colour in HOST.items() if lane in set(every.lane)}
    lanes |= dict.fromkeys(found, "GPU busy time")
    variants = [[name, _bars(own, list(lanes))] for name, own in rows.items()]
    end = round(float(max([0, *(every.at_us + every.dur_us)])), 3) or 1.0  # nothing, or no length
    coloured = [[lane, COLOURS[name]] for lane, name in lanes.items()]
    return {"lanes": coloured, "end": end, "variants": variants}


def _events_with_lanes(trace, step):
    """The step's outermost host ranges, launches, waits and GPU activities in one table, each with
    its lane.
    """
    part = events_of_step(trace, step)
    gpu = pd.concat([part["gpu"], part["others"]])
    number = "GPU {:.0f}, " if trace.gpu.device.nunique() > 1 else "GPU "
    lanes = gpu.device.map(number.format) + gpu.stream.map("stream {:.0f}".format)
    host = [part["ranges"], part["launches"], part["waits"].assign(correlation=np.nan)]
    tables = [rows.assign(lane=lane) for lane, rows in zip(HOST, host, strict=True)]
    rows = pd.concat([*tables, gpu.assign(lane=lanes)]).sort_values("at_us")
    return rows.assign(name=rows.name.map(short_name).str.slice(0, LONGEST))


def _bars(rows, lanes):
    """The rows as the script's bars, by lane and time."""
    rows = rows.sort_values(
        "lane", key=lambda lane: lane.map(lanes.index), kind="stable", ignore_index=True
    )
    started = rows[~rows.lane.isin(HOST)].groupby("correlation").groups
    launch = {one.correlation: one for one in rows[rows.lane == "launches"].itertuples()}
    bars = []
    for row in rows.itertuples():
        work = rows.loc[started.get(row.correlation, [])]
        by = launch.get(row.correlation)
        if row.lane == "launches":
            more, partners = _started_work_text(row, work), list(work.index)
        else:
            more = _launch_text(row, by, len(work)) if by else ""
            partners = [by.Index] if by else []
        other = row.step < 0
        more = "; launched outside of this step" if other else more
        where = "on the host" if row.lane in HOST else f"on {row.lane}"
        begin, end = in_words(row.at_us), in_words(row.at_us + row.dur_us)
        said = f"{in_words(row.dur_us)} {where}, from {begin} to {end}{more}."
        times = round(float(row.at_us), 3), round(float(row.dur_us), 3)
        bars.append([lanes.index(row.lane), *times, row.name, said, partners, other])
    return bars


def _started_work_text(launch, work):
    """What a launch has started, and when that began."""
    if work.empty:
        return ""
    first = work.loc[work.at_us.idxmin()]
    what = f"{len(work)} kernels and copies, the first"
    if len(work) == 1:
        what = f"{first['name']} ({in_words(first.dur_us)}),"
    return f"; starts {what} {in_words(first.at_us - launch.at_us)} after it was called"


def _launch_text(row, launch, number):
    """What has launched a GPU activity, and when."""
    others = f", which started {number - 1} more" if number > 1 else ""
    return f"; launched {in_words(row.at_us - launch.at_us)} before, by {launch.name}{others}"
