"""The report as one picture: bars of host, GPU busy and step time, and below them one step."""

from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from trace_report.compare import (
    BARS,
    host_work,
    in_words,
    one_step,
    percent,
    shown_step,
    summaries,
)
from trace_report.lanes import COLOURS, sheet, timelines
from trace_report.trace import Trace

DPI = 160


def draw(traces: dict[str, Trace], path: Path | str, **metadata: str | None) -> None:
    """Draw the report of some traces, a dict of name -> Trace, into a PNG with this metadata."""
    sound = {name: trace for name, trace in traces.items() if not trace.fault()}
    figures = [time_bars(sound)] if sound else []
    on_the_host = {name: trace for name, trace in traces.items() if trace.gpu.empty}
    figures += [host_bars(*one) for one in on_the_host.items() if len(host_work(one[1]))]
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
    """Bars of the host time, GPU busy time and step time of traces that have no fault."""
    table = summaries(traces).T
    short = _short_names(traces)
    said = [
        f"{percent(row.idle_share)} of {in_words(row.step_us)} ({short[row.Index]})"
        for row in table.itertuples()
    ]
    several = " busiest" if table.gpus.max() > 1 else ""
    table = table[list(BARS.values())].set_axis(list(BARS), axis=1).rename(short)
    axes = sheet(f"The{several} GPU idles for {', '.join(said)}.", 1.5 + 0.28 * table.size)
    colours = [COLOURS[lane] for lane in table]
    table.plot.barh(width=0.8, ax=axes, legend=False, color=colours)
    _label(axes, table.max(axis=None), "average per step under the profiler")
    axes.figure.legend(loc="outside lower left", ncols=3, columnspacing=1, handlelength=1.2)
    return axes.figure


def host_bars(name: str, trace: Trace) -> Figure:
    """Bars of the host's longest ranges and operators, of a trace without a GPU."""
    work, took = host_work(trace), in_words(trace.summary().step_us)
    title = f"No GPU in this trace: a step takes the host {took} ({_shortened(name)})."
    axes = sheet(title, 1.2 + 0.28 * len(work))
    names = [_shortened(name) for name in work.index]
    pd.Series(work.to_numpy(), names).plot.barh(width=0.8, ax=axes, color=COLOURS["host time"])
    _label(axes, work.max(), "outermost operators, per step")
    return axes.figure


def _shortened(name):
    """A name of at most 28 characters: its beginning and its end."""
    return name if len(name) <= 28 else f"{name[:17]}…{name[-10:]}"


def _short_names(names):
    """Each name with a short one, as long as these differ."""
    short = {name: _shortened(name) for name in names}
    return short if len(set(short.values())) == len(short) else {name: name for name in names}


def _label(axes, longest_us, label):
    for container in axes.containers:
        axes.bar_label(container, fmt=in_words, padding=4, fontsize=10)
    axes.invert_yaxis()
    axes.set(ylabel="")
    axes.margins(x=0.25)
    _in_unit(axes, longest_us, label)


def _in_unit(axes, longest_us, label):
    """Write the x axis in µs, or in ms if it is long."""
    unit, size = ("ms", 1e3) if longest_us >= 1e4 else ("µs", 1)
    axes.xaxis.set_major_formatter(lambda us, _: f"{us / size:g}")
    axes.set_xlabel(f"{label}, {unit}")
    axes.locator_params("x", nbins=5)  # a long name leaves the numbers less width


def steps(traces: dict[str, Trace]) -> Figure:
    """One step of each trace on one time axis; of a long one, its beginning."""
    short, shown = _short_names(traces), {}
    said = []
    for name, trace in traces.items():
        step = shown_step(trace)
        shown[short[name]], left_out = one_step(trace, step)
        what = "the beginning of " if left_out else ""
        said.append(f"{what}{trace.steps.name[step]} ({short[name]})")
    end_us = max(map(_end_us, shown.values()))
    shown = {name: _without_short_names(trace, end_us) for name, trace in shown.items()}
    column = timelines(shown, end_us=end_us, title=f"On one time axis: {', '.join(said)}.")
    _in_unit(column[-1], end_us, "time since the step began on the host")
    return column[0].figure


def _end_us(trace):
    """When the last event of a trace of one step ends, from the step's start; without any, when
    the step ends.
    """
    events = pd.concat([trace.annotations, trace.launches, trace.waits, trace.gpu])
    return (trace.steps if events.empty else events).end_us.max() - trace.steps.start_us[0]


def _without_short_names(trace, end_us):
    """Operators keep their names where these fit into their bars."""
    host = trace.annotations
    fits = host.dur_us > 0.02 * end_us * host.name.str.len()
    named = (host.category == "user_annotation") | fits
    return replace(trace, annotations=host.assign(name=host.name.where(named, "")))
