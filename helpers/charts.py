"""The two charts of the course: CPU against GPU time, and the timeline of one step.

One colour per lane everywhere, from the Okabe-Ito palette, which colour-blind readers can tell
apart (jfly.uni-koeln.de/color). The ground stays white, so that charts read in dark themes too.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.collections import LineCollection

from helpers.timing import quartiles

COLOURS = {
    "host time": "#0072B2",
    "GPU busy time": "#009E73",
    "step time": "#999999",
    "launch": "#E69F00",
    "waiting": "#CCCCCC",
    "your guess": "#D55E00",
}


def cpu_gpu_chart(rounds, busy_us=None, guess=None):
    """Draw host time, GPU busy time and step time of each variant, as medians with quartiles.

    rounds: what measure() returned. busy_us: dict of variant -> GPU busy time per step in us, from
    a trace. guess: (variant, lane, us), such as ("eager", "step time", 900), drawn as a diamond.
    Returns the Axes.
    """
    spreads = {"host time": quartiles(rounds, "host_us"), "step time": quartiles(rounds, "step_us")}
    medians = pd.DataFrame({lane: spread["median"] for lane, spread in spreads.items()})
    reach = [[spread["median"] - spread.q1, spread.q3 - spread["median"]] for spread in spreads.values()]
    if busy_us:
        medians.insert(1, "GPU busy time", pd.Series(busy_us, dtype=float))
        reach.insert(1, np.full((2, len(medians)), np.nan))  # one trace has no spread to show
    axes = medians.plot.barh(
        xerr=np.array(reach),
        color=[COLOURS[lane] for lane in medians],
        width=0.8,
        figsize=(8, 0.8 + 0.25 * medians.size),
        error_kw={"elinewidth": 1, "capsize": 2},
    )
    bars = [container for container in axes.containers if hasattr(container, "patches")]
    for container in bars:
        axes.bar_label(container, fmt=lambda us: f"{us:.3g}" if us < 100 else f"{us:.0f}", padding=4, fontsize=8)
    if guess:
        variant, lane, us = guess
        _mark_guess(axes, bars[medians.columns.get_loc(lane)][medians.index.get_loc(variant)], us)
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set(xlabel="time per step, us (bar: median, whisker: quartiles)", ylabel="")
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    return axes


def _mark_guess(axes, bar, us):
    middle = bar.get_y() + bar.get_height() / 2
    axes.plot(us, middle, "D", color=COLOURS["your guess"], markeredgecolor="white", label="your guess", zorder=5)


def timeline(trace, step=0, end=0):
    """Draw one step of a Trace: host ranges, launches and waits, and each GPU stream's activities.

    A thin line ties every launch to the GPU activities that carry its correlation id. Time counts
    from the step's start on the host; the axis reaches end microseconds at least, so that two charts
    can share one. Returns the Axes. Raises IndexError if there is no such step.
    """
    if step not in trace.steps.index:
        raise IndexError(f"the trace has steps 0 to {len(trace.steps) - 1}, not {step}")
    start = trace.steps.start_us[step]
    ranges, launches, waits, gpu = (
        table[table.step == step].assign(at_us=lambda rows: rows.start_us - start)
        for table in (trace.annotations, trace.launches, trace.waits, trace.gpu)
    )
    streams = {stream: row for row, stream in enumerate(sorted(gpu.stream.unique()), 2)}
    labels = ["host ranges", "launches"] + [f"GPU stream {stream:.0f}" for stream in streams]
    axes = plt.subplots(figsize=(10, 0.8 + 0.55 * len(labels)))[1]
    ends = [(table.at_us + table.dur_us).max() for table in (ranges, launches, waits, gpu) if len(table)]
    end = max(end, 1.01 * max(ends))
    axes.set(xlim=(0, end), ylim=(len(labels) - 0.5, -0.5), xlabel="time since the step began on the host, us")
    axes.set_yticks(range(len(labels)), labels)
    _ranges(axes, _outermost(ranges), end)
    _lane(axes, 1, launches, "launch")
    _lane(axes, 1, waits, "waiting")
    for stream, row in streams.items():
        _lane(axes, row, gpu[gpu.stream == stream], "GPU busy time")
    ends = zip(gpu.launch_us - start, gpu.at_us, gpu.stream.map(streams), strict=True)
    ties = [((launched, 1.35), (begun, row - 0.35)) for launched, begun, row in ends]
    axes.add_collection(LineCollection(ties, colors=COLOURS["launch"], linewidths=0.5, alpha=0.6))
    return axes


def _lane(axes, row, events, colour, **style):
    spans = list(zip(events.at_us, events.dur_us, strict=True))
    style = {"facecolor": COLOURS[colour], "edgecolor": COLOURS[colour], "linewidth": 0.6} | style
    axes.broken_barh(spans, (row - 0.35, 0.7), **style)


def _ranges(axes, ranges, end):
    """The named host ranges: names inside where they fit, else above, one after the other."""
    _lane(axes, 0, ranges, "host time", alpha=0.75, edgecolor="white", linewidth=1)
    taken = 0
    for name, at_us, dur_us in ranges[["name", "at_us", "dur_us"]].itertuples(index=False):
        name = name.strip("# ")
        width = end * 0.011 * len(name)
        if dur_us > width:
            axes.text(at_us + dur_us / 2, 0, name, ha="center", va="center", fontsize=8, color="white")
        else:
            left = min(max(at_us, taken), end - width)
            axes.text(left, -0.6, name, va="bottom", fontsize=8, color=COLOURS["host time"])
            taken = left + width


def _outermost(ranges):
    """Ranges that lie in no other one; the step itself does not count."""
    ranges = ranges[~ranges.name.str.startswith("ProfilerStep#")].sort_values("start_us")
    return ranges[ranges.start_us >= ranges.end_us.cummax().shift(fill_value=0)]
