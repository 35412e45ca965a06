"""The charts of the course: CPU against GPU time, and the timeline of a step; one colour per lane everywhere.

The colours are those of Okabe and Ito, with a few of Paul Tol's: colour-blind readers can tell them
apart (jfly.uni-koeln.de/color, personal.sron.nl/~pault). The ground stays white, also in dark themes.
"""

import textwrap

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.collections import LineCollection

from helpers.timing import quartiles

COLOURS = {
    "host time": "#0072B2",
    "GPU busy time": "#009E73",
    "step time": "#888888",
    "launch": "#E69F00",
    "waiting": "#CCCCCC",
    "your guess": "#D55E00",
    "graph": "#56B4E9",
    "eager": "#CC79A7",
    "other": "#332288",
    "memory in use": "#882255",
    "memory free": "#DDDDDD",
    "number kept": "#117733",
    "number dropped": "#DDCC77",
}
MARKERS = {"host time": "o", "GPU busy time": "s", "step time": "^", "graph": "o", "eager": "s", "other": "^"}
GUESSES = "DPX*"  # a marker for each guess of a chart
WIDTH = 6.5  # inches: whole beside JupyterLab's file browser
plt.rcParams.update({"font.size": 12, "legend.frameon": False, "figure.facecolor": "white"})


def sheet(title, height=3.0, *shape, **options):
    """An empty chart in the course's width, its title above: one sentence that says what to see.

    height: inches. shape and options go to plt.subplots. Returns its Axes.
    """
    figure, axes = plt.subplots(*shape, figsize=(WIDTH, height), layout="constrained", **options)
    figure.suptitle(textwrap.fill(title, 70), x=0.01, ha="left", fontsize="medium")
    return axes


def cpu_gpu_chart(
    rounds, busy_us=None, guess=None, title="Where GPU busy time is shorter than step time, the GPU idles."
):
    """Draw host time, GPU busy time and step time of each variant, as medians with quartiles.

    rounds: what measure() returned. busy_us: dict of variant -> GPU busy time per step in us, from
    a trace. guess: (variant, lane, us), such as ("eager", "step time", 900), or a list of them; one
    whose us is None is not drawn. Returns the Axes.
    """
    spreads = {"host time": quartiles(rounds, "host_us"), "step time": quartiles(rounds, "step_us")}
    medians = pd.DataFrame({lane: spread["median"] for lane, spread in spreads.items()})
    reach = [[spread["median"] - spread.q1, spread.q3 - spread["median"]] for spread in spreads.values()]
    if busy_us:
        medians.insert(1, "GPU busy time", pd.Series(busy_us, dtype=float))
        reach.insert(1, np.full((2, len(medians)), np.nan))  # one trace has no spread to show
    axes = sheet(title, 1.6 + 0.28 * medians.size)
    look = {"color": [COLOURS[lane] for lane in medians], "error_kw": {"elinewidth": 1, "capsize": 2}}
    medians.plot.barh(xerr=np.array(reach), width=0.8, ax=axes, legend=False, **look)
    bars = [container for container in axes.containers if hasattr(container, "patches")]
    for container in bars:
        axes.bar_label(container, fmt=lambda us: f"{us:.3g}" if us < 100 else f"{us:.0f}", padding=4, fontsize=10)
    guesses = [guess] if isinstance(guess, tuple) else guess or []
    _mark(axes, [one for one in guesses if one[2] is not None], dict(zip(medians, bars, strict=True)), medians)
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set(xlabel="time per step, us (bar: median, whisker: quartiles)", ylabel="")
    axes.figure.legend(loc="outside lower left", ncols=4 if len(guesses) < 2 else 3, columnspacing=1, handlelength=1.2)
    return axes


def _mark(axes, guesses, bars, medians):
    """A marker per guess on its bar; at the edge if the guess lies far off."""
    edge = 1.3 * medians.max(axis=None)
    for marker, (variant, lane, us) in zip(GUESSES, guesses, strict=False):
        bar = bars[lane][medians.index.get_loc(variant)]
        label = f"your guess, {lane}" if len(guesses) > 1 else "your guess"
        label += " (off the chart)" if us > edge else ""
        look = {"color": COLOURS["your guess"], "markeredgecolor": "white", "markersize": 10}
        axes.plot(min(us, edge), bar.get_y() + bar.get_height() / 2, marker, label=label, zorder=5, ls="", **look)


TIES = "A thin line ties each launch to the GPU work that it started."


def timeline(trace, step=0, end_us=None, title=TIES):
    """Draw one step of a Trace: host ranges, launches and waits, and each GPU stream's activities.

    Time counts from the step's start on the host, to end_us or to the step's end. Returns the Axes.
    Raises IndexError if there is no such step.
    """
    return timelines({"": trace}, step, end_us, title)[0]


def timelines(traces, step=0, end_us=None, title=TIES):
    """Draw the same step of several traces, a dict of name -> Trace, on one time axis; see timeline."""
    parts = {name: _of_step(trace, step) for name, trace in traces.items()}
    lanes = [2 + len(part[-1].groupby(["device", "stream"])) for part in parts.values()]
    end = end_us or max((rows.at_us + rows.dur_us).max() for part in parts.values() for rows in part if len(rows))
    height = 1.1 + 0.5 * sum(lanes) + 0.4 * len(lanes)
    axes = sheet(title, height, len(parts), 1, sharex=True, squeeze=False, height_ratios=lanes)[:, 0]
    for one, (name, part) in zip(axes, parts.items(), strict=True):
        _draw(one, *part, end)
        one.set_title(name, loc="left", fontsize="medium", fontweight="bold", pad=18)
    axes[-1].set(xlim=(0, end * 1.01), xlabel="time since the step began on the host, us")
    return axes


def _of_step(trace, step):
    """Host ranges, launches, waits and GPU activities of a step, timed from its start."""
    if step not in trace.steps.index:
        raise IndexError(f"the trace has steps 0 to {len(trace.steps) - 1}, not {step}")
    tables = (_outermost(trace.annotations), trace.launches, trace.waits, trace.gpu)
    start = trace.steps.start_us[step]
    gpu = trace.gpu.assign(launched_us=trace.gpu.launch_us - start)
    return [table[table.step == step].assign(at_us=lambda rows: rows.start_us - start) for table in (*tables[:3], gpu)]


def _draw(axes, ranges, launches, waits, gpu, end):
    _ranges(axes, ranges, end)
    _lane(axes, 1, launches, "launch")
    _lane(axes, 1, waits, "waiting")
    labels, ties = ["host ranges", "launches, waits" if len(waits) else "launches"], []
    for row, ((device, stream), own) in enumerate(gpu.groupby(["device", "stream"]), 2):
        labels.append(f"GPU stream {stream:.0f}" if gpu.device.nunique() == 1 else f"GPU {device:.0f}, {stream:.0f}")
        _lane(axes, row, own, "GPU busy time")
        ties += [((x, 1.35), (at, row - 0.35)) for x, at in zip(own.launched_us, own.at_us, strict=True)]
    axes.add_collection(LineCollection(ties, colors=COLOURS["launch"], linewidths=0.5, alpha=0.6))
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.5, -0.5)


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
        width = end * 0.018 * len(name)
        if dur_us > width:
            axes.text(at_us + dur_us / 2, 0, name, ha="center", va="center", fontsize=10, color="white")
        else:
            left = min(max(at_us, taken), end - width)
            axes.text(left, -0.6, name, va="bottom", fontsize=10, color=COLOURS["host time"])
            taken = left + width


def _outermost(ranges):
    """Ranges that lie in no other one; the step itself does not count."""
    ranges = ranges[~ranges.name.str.startswith("ProfilerStep#")].sort_values("start_us")
    return ranges[ranges.start_us >= ranges.end_us.cummax().shift(fill_value=0)]
