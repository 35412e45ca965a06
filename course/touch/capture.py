"""Eager, capture and replay on one time axis: what the CPU does, what waits in the queue, what the
GPU does.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from IPython.display import HTML

from cpu_graph.svg import drawing, img_tag, rectangle, step_area, text
from helpers.charts import COLOURS
from helpers.trace import Trace
from trace_report.touch import touchable_html
from trace_report.trace_file import outermost

HERE = Path(__file__).parent
WIDTH = 580
LEFT = 74
RIGHT = 572
PANEL = 122
LANE = 26
GREY = "#555555"
LANES = {"CPU": 26, "queue": 58, "GPU": 90}  # where they begin below a panel's top
TITLE = (
    "Eager launches piece by piece, a capture records the launches, a "
    "replay launches them all at once."
)


@dataclass
class TimelinePhase:
    """What happens in a phase. Times are microseconds from its start; none lies outside of the
    window.

    cpu: (start, end, name) of each named range; launches: when each began; queue: (time, how many
    wait from then on), or how many are recorded; gpu: (start, end) of each activity; done: when
    each step's last activity ended.
    """

    name: str
    cpu: list[tuple[float, float, str]]
    launches: list[float]
    queue: list[tuple[float, int]]
    gpu: list[tuple[float, float]]
    done: list[float]


def animate_capture(traces: dict[str, Trace], step: int = 3) -> HTML:
    """One step of the first trace (eager), its capture, and the replays of the second in the same
    time.

    The capture has no trace of its own: it runs the eager step's Python, and
    records a node for each of its launches. Raises IndexError without such a step.
    """
    eager, graph = traces.values()
    start_us, window = eager.start_us(step), eager.steps.dur_us[step]
    stepwise = trace_phase("eager", eager, start_us, window)
    nodes = [(at, number) for number, at in enumerate(sorted(stepwise.launches), 1)]
    captured = TimelinePhase("capture", stepwise.cpu, stepwise.launches, [(0, 0), *nodes], [], [])
    phases = [stepwise, captured, trace_phase("replay", graph, graph.steps.start_us.min(), window)]
    said = [phase_text(one, window) for one in phases]
    told = [f"{one.name.capitalize()}: {words}." for one, words in zip(phases, said, strict=True)]
    top, tall = LANES["CPU"], LANES["GPU"] + LANE - LANES["CPU"]
    data = {"end": round(window, 1), "left": LEFT, "right": RIGHT, "panel": [PANEL, top, tall]}
    still = img_tag(phases_svg(phases, said, window), " ".join([TITLE, *told]))
    data["phases"] = [vars(one) for one in phases]
    return HTML(touchable_html("capture", still, data, HERE))


def trace_phase(name: str, trace: Trace, start: float, window: float) -> TimelinePhase:
    """What a trace shows from start on, for so many microseconds."""

    def times(table: pd.DataFrame, columns: list[str]) -> list[tuple[Any, ...]]:
        inside = (table.end_us > start) & (table.start_us < start + window)
        own = table[inside].sort_values("start_us")
        shown = own[["start_us", "end_us"]].sub(start).clip(0, window).round(1).join(own[["name"]])
        return list(shown[columns].itertuples(index=False, name=None))

    ranges = times(outermost(trace.annotations), ["start_us", "end_us", "name"])
    cpu = [(begin, end, label.strip("# ")) for begin, end, label in ranges]
    cpu += [(begin, end, "waits") for begin, end in times(trace.waits, ["start_us", "end_us"])]
    launches = [begin for (begin,) in times(trace.launches, ["start_us"])]
    ends = trace.gpu[trace.gpu.step >= 0].groupby("step").end_us.max().sub(start).round(1)
    done = [end for end in ends if 0 < end <= window]
    gpu = times(trace.gpu, ["start_us", "end_us"])
    return TimelinePhase(name, cpu, launches, queue_lengths(trace.gpu, start, window), gpu, done)


def queue_lengths(gpu: pd.DataFrame, start: float, window: float) -> list[tuple[float, int]]:
    """(time, count): how many activities are launched and not begun, from each time on at which
    that changes.
    """
    changes = pd.concat([pd.Series(1, gpu.launch_us), pd.Series(-1, gpu.start_us)])
    changes.index = (changes.index - start).to_series().clip(lower=0).round(1)
    counts = changes.groupby(level=0).sum().cumsum()
    return [(0.0, 0), *((at, int(count)) for at, count in counts[counts.index <= window].items())]


def phase_text(one: TimelinePhase, window: float) -> str:
    """What a phase shows, in numbers."""
    if one.name == "capture":
        return f"the same Python; {one.queue[-1][1]} launches become nodes, the GPU idles"
    busy = sum(end - begin for begin, end in one.gpu) / window
    most = max(count for _, count in one.queue)
    steps = f"{len(one.done)} step{'s' * (len(one.done) != 1)} done"
    return f"{steps}, at most {most} waiting, the GPU busy for {busy:.0%} of the time"


def phases_svg(phases: list[TimelinePhase], said: list[str], window: float) -> str:
    """All phases below each other as SVG; what time uncovers is in groups of the class time."""
    rows = enumerate(zip(phases, said, strict=True))
    panels = [phase_panel(one, words, PANEL * row, window) for row, (one, words) in rows]
    bottom = PANEL * len(phases)
    ticks = range(0, int(window), 500)
    places = [(LEFT + (RIGHT - LEFT) * at / window, at) for at in ticks]
    middle = 'text-anchor="middle"'
    axis = [text(min(x, RIGHT - 14), bottom + 14, str(at), 12, GREY, middle) for x, at in places]
    axis.append(text(RIGHT, bottom + 28, "time in the trace, µs", 12, GREY, 'text-anchor="end"'))
    return drawing(WIDTH, bottom + 34, TITLE, *panels, *axis)


def phase_panel(one: TimelinePhase, words: str, top: float, window: float) -> str:
    """One phase: its lanes from the given height on."""

    def x(at: float) -> float:
        return LEFT + (RIGHT - LEFT) * at / window

    cpu, queue, gpu = (top + lane for lane in LANES.values())
    most = max(count for _, count in one.queue) or 1
    stairs = [(x(at), queue + LANE * (1 - count / most)) for at, count in one.queue]
    drawn = []
    for a, b, name in one.cpu:
        colour = COLOURS["waiting" if name == "waits" else "host time"]
        drawn.append(rectangle(x(a), cpu, x(b) - x(a), LANE, colour))
    fitting = [(a, name) for a, b, name in one.cpu if x(b) - x(a) > 8.2 * len(name)]
    drawn += [text(x(a) + 3, cpu + 18, name, 13, "#FFFFFF") for a, name in fitting]
    drawn += [rectangle(x(at), cpu + LANE - 5, 1.2, 5, COLOURS["launch"]) for at in one.launches]
    kind = "graph" if one.name == "capture" else "launch"
    drawn.append(step_area([*stairs, (x(window), stairs[-1][1])], queue + LANE, COLOURS[kind]))
    drawn += [rectangle(x(a), gpu, x(b) - x(a), LANE, COLOURS["GPU busy time"]) for a, b in one.gpu]
    labels = {"CPU": cpu, "graph" if kind == "graph" else "queue": queue, "GPU": gpu}
    rules = [rectangle(LEFT, y + LANE, RIGHT - LEFT, 0.8, "#CCCCCC") for y in labels.values()]
    names = [text(4, y + 18, label, 14, GREY) for label, y in labels.items()]
    head = text(4, top + 18, one.name, 14, more='font-weight="bold"')
    head += text(LEFT, top + 18, words, 14, more='class="said"')
    return f'{head}{"".join(names + rules)}<g class="time">{"".join(drawn)}</g>'
