"""The report as one picture: bars of host, GPU busy and step time, and below them one step."""

import warnings
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from trace_report.lanes import COLOURS, set_time_unit, timelines, titled_axes
from trace_report.step_view import (
    events_of_step,
    last_end_us,
    longest_ranges,
    pale_bars_note,
    shown_step,
    trace_of_one_step,
)
from trace_report.table import BARS, name_with_caveat, summaries
from trace_report.trace import Trace
from trace_report.units import in_words, percent

DPI = 160


def draw_trace_report(traces: dict[str, Trace], path: Path | str, **metadata: str | None) -> None:
    """Draw the report of some traces, a dict of name -> Trace, into a PNG with this metadata."""
    with plt.rc_context({"text.parse_math": False}):  # a $ of a name is no formula
        pictures = [_render_pixels(figure) for figure in _draw_figures(traces)]
    plt.imsave(path, np.vstack(pictures), format="png", dpi=DPI, metadata=metadata)


def _draw_figures(traces):
    sound = {name: trace for name, trace in traces.items() if not trace.fault()}
    figures = [time_bars(sound)] if sound else []
    on_the_host = {name: trace for name, trace in traces.items() if trace.gpu.empty}
    figures += [host_range_bars(*one) for one in on_the_host.items() if len(longest_ranges(one[1]))]
    return [*figures, median_step_timelines(traces)]


def _render_pixels(figure):
    figure.set_dpi(DPI)
    canvas = FigureCanvasAgg(figure)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # a box stands for what the font lacks
        canvas.draw()
    plt.close(figure)
    return np.asarray(canvas.buffer_rgba())


def time_bars(traces: dict[str, Trace]) -> Figure:
    """Bars of the host time, GPU busy time and step time of traces that have no fault."""
    table = summaries(traces).T
    names = _short_names(traces)
    short = {name: name_with_caveat(names[name], trace) for name, trace in traces.items()}
    said = [
        f"{percent(row.idle_share)} of {in_words(row.step_us)} ({short[row.Index]})"
        for row in table.itertuples()
    ]
    several = " busiest" if table.gpus.max() > 1 else ""
    table = table[list(BARS.values())].set_axis(list(BARS), axis=1).rename(short)
    axes = titled_axes(f"The{several} GPU idles for {', '.join(said)}.", 1.5 + 0.28 * table.size)
    colours = [COLOURS[lane] for lane in table]
    table.plot.barh(width=0.8, ax=axes, legend=False, color=colours)
    _label_bars(axes, table.max(axis=None), "per step (host: at most)")
    axes.figure.legend(loc="outside lower left", ncols=3)
    return axes.figure


def host_range_bars(name: str, trace: Trace) -> Figure:
    """Bars of the host's longest ranges and operators, of a trace without a GPU."""
    work, took = longest_ranges(trace), in_words(trace.summary().step_us)
    what = "a step takes" if trace.is_marked() else "the whole trace takes"
    title = f"No GPU in this trace: {what} the host {took} ({_shortened(name)})."
    axes = titled_axes(title, 1.2 + 0.28 * len(work))
    names = [_shortened(name) for name in work.index]
    pd.Series(work.to_numpy(), names).plot.barh(width=0.8, ax=axes, color=COLOURS["host time"])
    _label_bars(axes, work.max(), "outermost operators, per step")
    return axes.figure


def _shortened(name):
    """A name of at most 28 characters: its beginning and its end."""
    return name if len(name) <= 28 else f"{name[:17]}…{name[-10:]}"


def _short_names(names):
    """Each name with a short one, as long as these differ."""
    short = {name: _shortened(name) for name in names}
    return short if len(set(short.values())) == len(short) else {name: name for name in names}


def _label_bars(axes, longest_us, label):
    for container in axes.containers:
        axes.bar_label(container, fmt=in_words, padding=4, fontsize=10)
    axes.invert_yaxis()
    axes.set(ylabel="")
    axes.set_xlim(0, 1.25 * longest_us or 1)
    set_time_unit(axes, longest_us or 1, label)


def median_step_timelines(traces: dict[str, Trace]) -> Figure:
    """The median step of each trace on one time axis; one of many events in bins."""
    short, shown = _short_names(traces), {}
    said = []
    for name, trace in traces.items():
        step = shown_step(trace)
        shown[short[name]], events = trace_of_one_step(trace, step)
        binned = f", {events} events in bins" if events else ""
        said.append(f"{trace.steps.name[step]} ({short[name]}{binned})")
    end_us = max(last_end_us(events_of_step(trace, 0)) for trace in shown.values())
    shown = {name: _blank_unfitting_names(trace, end_us) for name, trace in shown.items()}
    title = f"On one time axis: {', '.join(said)}.{pale_bars_note(shown.values())}"
    return timelines(shown, title=title)[0].figure


def _blank_unfitting_names(trace, end_us):
    """Operators keep their names where these fit into their bars."""
    host = trace.annotations
    fits = host.dur_us > 0.02 * end_us * host.name.str.len()
    named = (host.category == "user_annotation") | fits
    return replace(trace, annotations=host.assign(name=host.name.where(named, "")))
