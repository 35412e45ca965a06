"""The charts of the course: CPU and GPU time with its spread, and the lanes of a step."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from helpers.spread import quartiles
from trace_report import lanes
from trace_report.lanes import LINES, WIDTH, set_time_unit, timeline, timelines, titled_axes
from trace_report.units import format_number, in_words, unit

__all__ = ["LINES", "WIDTH", "timeline", "timelines", "titled_axes"]

COLOURS = lanes.COLOURS | {
    "eager": "#CC79A7",
    "graph": "#2A8FD0",
    "other": "#332288",
    "number kept": "#117733",
    "number dropped": "#DDCC77",
}


def cpu_gpu_chart(
    rounds: pd.DataFrame,
    busy_us: dict[str, float] | None = None,
    title: str | None = None,
) -> Axes:
    """Draw host time, GPU busy time and step time of each variant, as medians with quartiles.

    rounds: what measure() returned. busy_us: variant -> GPU busy time per step in µs, from a trace.
    title: the finding; without one, the fastest variant's times.
    """
    spreads = {"host time": quartiles(rounds, "host_us"), "step time": quartiles(rounds, "step_us")}
    medians = pd.DataFrame({lane: spread["median"] for lane, spread in spreads.items()})
    medians = medians.rename_axis(None)
    reach: list[Any] = [
        [spread["median"] - spread.q1, spread.q3 - spread["median"]] for spread in spreads.values()
    ]
    if busy_us:
        medians.insert(1, "GPU busy time", pd.Series(busy_us, dtype=float))
        reach.insert(1, np.full((2, len(medians)), np.nan))  # one trace has no spread to show
    axes = titled_axes(title or _finding(medians), 1.6 + 0.28 * medians.size)
    colours = [COLOURS[lane] for lane in medians]
    whiskers = {"elinewidth": 1, "capsize": 2}
    medians.plot.barh(
        xerr=np.array(reach), width=0.8, ax=axes, legend=False, color=colours, error_kw=whiskers
    )
    size = unit(medians.max(axis=None))[1]
    for bars in [one for one in axes.containers if hasattr(one, "patches")]:
        axes.bar_label(bars, fmt=lambda us: format_number(us / size), padding=4, fontsize=10)
    axes.invert_yaxis()
    longest = max(map(len, medians.index))
    set_time_unit(axes, medians.max(axis=None), "time per step (bar: median, whisker: quartiles)")
    axes.set(xmargin=0.13 + longest / 200)
    axes.figure.legend(loc="outside lower left", ncols=3, columnspacing=1, handlelength=1.2)
    return axes


def _finding(medians):
    """What the medians of a chart say of the variant with the shortest step."""
    name = medians["step time"].idxmin()
    row = medians.loc[name]
    text = f"A step takes {in_words(row['step time'])} ({name.replace(chr(10), ', ')})"
    if "GPU busy time" in row and row["GPU busy time"] > 0:
        return f"{text}; the GPU works for {in_words(row['GPU busy time'])}."
    return f"{text}; the CPU issues it in {in_words(row['host time'])}."
