"""The lanes of a step, on paper: host ranges, launches and streams. Each lane has one colour.

Colours for colour-blind readers, after jfly.uni-koeln.de/color and sronpersonalpages.nl/~pault,
dark enough for white. Dark themes turn charts over (tests/support/contrast.py).
"""

import textwrap
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from trace_report.intervals import busy_time
from trace_report.step_view import events_of_step, last_end_us
from trace_report.trace import Trace
from trace_report.units import in_words, unit

COLOURS = {
    "host time": "#0072B2",
    "GPU busy time": "#009E73",
    "step time": "#888888",
    "launch": "#C87A00",
    "waiting": "#767676",
}
LINES = ("#1F77B4", "#C75B00", "#2CA02C")  # of what has no colour of its own
WIDTH = 6.5  # inches: whole beside JupyterLab's file browser
plt.style.use(
    {
        "font.size": 12,
        "legend.frameon": False,
        "figure.facecolor": "white",
        "axes.formatter.min_exponent": 5,
    }
)


def titled_axes(title: str, height: float = 3.0, *shape: int, **options: Any) -> Any:
    """An empty chart in the course's width, under its title: one sentence that says what to see.

    height: inches. shape and options go to plt.subplots, whose Axes it returns.
    """
    figure, axes = plt.subplots(*shape, figsize=(WIDTH, height), layout="constrained", **options)
    figure.suptitle(textwrap.fill(title, 70), x=0.01, ha="left", fontsize="medium")
    for one in figure.axes:
        one.set_prop_cycle(color=LINES)
    return axes


def set_time_unit(axes: Axes, longest_us: float, label: str) -> None:
    """Write the x axis, in µs, in the unit of the longest time."""
    name, size = unit(longest_us)
    axes.xaxis.set_major_formatter(lambda us, _: f"{us / size:g}")
    axes.set_xlabel(f"{label}, {name}")
    axes.locator_params("x", nbins=5)  # a long name leaves the numbers less width


def timeline(
    trace: Trace, step: int = 0, end_us: float | None = None, title: str | None = None
) -> Axes:
    """Draw one step of a Trace: host ranges, launches and waits, and each GPU stream's activities.

    A thin line ties each launch to the GPU work that it started. Time counts from the step's start
    on the host, up to end_us or all of it. title: the finding; without one, how long the GPU works.
    Raises IndexError without such a step.
    """
    return timelines({"": trace}, step, end_us, title)[0]


def timelines(
    traces: dict[str, Trace], step: int = 0, end_us: float | None = None, title: str | None = None
) -> np.ndarray:
    """Draw the same step of several traces, a dict of name -> Trace, on one time axis."""
    parts = {name: events_of_step(trace, step) for name, trace in traces.items()}
    lanes = [len(_labels(part)) for part in parts.values()]
    end = end_us or max([last_end_us(part) for part in parts.values()]) or 1
    height = 1.1 + 0.5 * sum(lanes) + 0.4 * len(lanes)
    title = title or _gpu_work_sentence(parts)
    column = titled_axes(
        title, height, len(parts), sharex=True, squeeze=False, height_ratios=lanes
    )[:, 0]
    for axes, (name, part) in zip(column, parts.items(), strict=True):
        axes.set_title(name, loc="left", fontsize="medium", fontweight="bold", pad=18)
        _draw(axes, part, end)
    set_time_unit(column[-1], end, "time since the step began on the host")
    column[-1].set(xlim=(0, end * 1.01))
    return column


def _gpu_work_sentence(parts):
    """For how long the GPU works in the step of each trace, and when its work ends."""
    said = []
    for name, part in parts.items():
        busy_us, end_us = np.nan_to_num([busy_time(part["gpu"]), last_end_us({"gpu": part["gpu"]})])
        text = f"{in_words(busy_us)} of {in_words(end_us)}"
        said.append(f"{text} ({name})" if name else text)
    return f"The GPU works for {', '.join(said)}."


def _streams(part):
    """The device and stream of each lane of the GPU."""
    every = pd.concat([part["gpu"], part["others"]])
    return sorted(set(zip(every.device, every.stream, strict=True)))


def _labels(part):
    """The lanes of a step, from above."""
    labels = ["host ranges"]
    if len(part["waits"]):
        labels.append("launches, waits")
    elif len(part["launches"]):
        labels.append("launches")
    streams = _streams(part)
    several = len({device for device, _ in streams}) > 1
    return labels + [
        f"GPU{f' {device:.0f},' if several else ''} stream {stream:.0f}"
        for device, stream in streams
    ]


def _draw(axes, part, end):
    gpu, others = part["gpu"], part["others"]
    labels, streams = _labels(part), _streams(part)
    _draw_ranges(axes, part["ranges"], end)
    _draw_lane(axes, 1, part["launches"], "launch")
    _draw_lane(axes, 1, part["waits"], "waiting")
    ties = []
    for row, (device, stream) in enumerate(streams, len(labels) - len(streams)):
        own = gpu[(gpu.device == device) & (gpu.stream == stream)]
        foreign = others[(others.device == device) & (others.stream == stream)]
        _draw_lane(axes, row, foreign, "GPU busy time", alpha=0.3)
        _draw_lane(axes, row, own, "GPU busy time")
        launched = own.at_us + own.launch_us - own.start_us
        known = zip(launched, own.at_us, strict=True)
        ties += [((x, 1.35), (at, row - 0.35)) for x, at in known if x == x]
    axes.add_collection(LineCollection(ties, colors=COLOURS["launch"], linewidths=0.5, alpha=0.6))
    axes.set(yticks=range(len(labels)), yticklabels=labels, ylim=(len(labels) - 0.5, -0.5))


def _draw_lane(axes, row, events, colour, **style):
    style = {"facecolor": COLOURS[colour], "edgecolor": COLOURS[colour], "linewidth": 0.6} | style
    bars = list(zip(events.at_us, events.dur_us, strict=True))
    axes.broken_barh(bars, (row - 0.35, 0.7), **style)


def _draw_ranges(axes, ranges, end):
    """The host ranges, with names inside where they fit, else above them where there is room."""
    apart = {"edgecolor": "white", "linewidth": 1} if len(ranges) < 200 else {}
    _draw_lane(axes, 0, ranges, "host time", alpha=0.75, **apart)
    tie = {"color": COLOURS["host time"], "linewidth": 0.7, "clip_on": False}
    taken = 0
    for name, at_us, dur_us in ranges[["name", "at_us", "dur_us"]].itertuples(index=False):
        # The profiler calls a range Optimizer.step#SGD.step; the second half says it.
        name = name.strip("# ").removeprefix("Optimizer.zero_grad#").removeprefix("Optimizer.step#")
        shown_us = min(dur_us, end - at_us)
        width = end * 0.018 * len(name)
        left = min(max(at_us, taken), end - width)
        middle = at_us + shown_us / 2
        if shown_us > width:
            axes.text(middle, 0, name, ha="center", va="center", fontsize=10, color="white")
        elif left >= taken and left - at_us < 0.4 * end and shown_us > 0:
            if left > at_us + shown_us:  # a line ties the name to its bar
                axes.plot([middle, left], [-0.37, -0.58], **tie)
            axes.text(left, -0.6, name, va="bottom", fontsize=10, color=COLOURS["host time"])
            taken = left + width
