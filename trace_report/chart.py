"""The report as one picture: bars of host, GPU busy and step time, and below them one step."""

from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from helpers.charts import COLOURS, sheet, timelines
from helpers.trace import Trace
from trace_report.compare import BARS, digits, host_work, one_step, shown_step, summaries

DPI = 160


def draw(traces: dict[str, Trace], path: Path | str, **metadata: str | None) -> None:
    """Draw the report of some traces, a dict of name -> Trace, into a PNG with this metadata."""
    with_gpu = {name: trace for name, trace in traces.items() if not trace.gpu.empty}
    figures = [time_bars(with_gpu)] if with_gpu else []
    figures += [host_bars(name, trace) for name, trace in traces.items() if trace.gpu.empty]
    figures.append(steps(traces))
    pictures = []
    for figure in figures:
        figure.set_dpi(DPI)
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        pictures.append(np.asarray(canvas.buffer_rgba()))
        plt.close(figure)
    plt.imsave(path, np.vstack(pictures), format="png", dpi=DPI, metadata=metadata)


def time_bars(traces: dict[str, Trace]) -> Figure:
    """Bars of each trace's host time, GPU busy time and step time."""
    table = summaries(traces).T
    said = [
        f"{row.idle_share:.0%} of {digits(row.step_us)} µs ({row.Index})"
        for row in table.itertuples()
    ]
    table = table[list(BARS.values())].set_axis(list(BARS), axis=1)
    axes = sheet(f"The GPU idles for {', '.join(said)}.", 1.5 + 0.28 * table.size)
    colours = [COLOURS[lane] for lane in table]
    table.plot.barh(width=0.8, ax=axes, legend=False, color=colours)
    _label(axes, "average per step under the profiler, µs")
    axes.figure.legend(loc="outside lower left", ncols=3, columnspacing=1, handlelength=1.2)
    return axes.figure


def host_bars(name: str, trace: Trace) -> Figure:
    """Bars of the host's longest ranges and operators, of a trace without a GPU."""
    work, step_us = host_work(trace), trace.summary().step_us
    title = f"No GPU in this trace: a step takes the host {digits(step_us)} µs ({name})."
    axes = sheet(title, 1.2 + 0.28 * len(work))
    names = [f"{one[:28]}…" if len(one) > 30 else one for one in work.index]
    pd.Series(work.to_numpy(), names).plot.barh(width=0.8, ax=axes, color=COLOURS["host time"])
    _label(axes, "outermost operators, µs per step")
    return axes.figure


def _label(axes, label):
    for container in axes.containers:
        axes.bar_label(container, fmt=digits, padding=4, fontsize=10)
    axes.invert_yaxis()
    axes.set(xlabel=label, ylabel="")
    axes.margins(x=0.15)
    axes.locator_params("x", nbins=5)  # a long name leaves the numbers less width


def steps(traces: dict[str, Trace]) -> Figure:
    """One step of each trace on one time axis; of a long one, its beginning."""
    alone = {name: one_step(trace, shown_step(trace)) for name, trace in traces.items()}
    cut = [name for name, (_, left_out) in alone.items() if left_out]
    title = f"The beginning of a step ({', '.join(cut)})." if cut else None
    if not title and any(trace.gpu.empty for trace in traces.values()):
        title = "What the host does in one step."
    shown = {name: trace for name, (trace, _) in alone.items()}
    end_us = max(_end_us(trace) for trace in shown.values())
    shown = {name: _without_short_names(trace, end_us) for name, trace in shown.items()}
    return timelines(shown, title=title)[0].figure


def _end_us(trace):
    """When the last event of a trace of one step ends, from the step's start."""
    ends = [rows.end_us.max() for rows in (trace.annotations, trace.launches, trace.gpu)]
    return np.nanmax([*ends, trace.steps.start_us[0]]) - trace.steps.start_us[0]


def _without_short_names(trace, end_us):
    """Operators keep their names where these fit into their bars."""
    host = trace.annotations
    fits = host.dur_us > 0.02 * end_us * host.name.str.len()
    named = (host.category == "user_annotation") | fits
    return replace(trace, annotations=host.assign(name=host.name.where(named, "")))
