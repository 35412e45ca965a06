"""The report as one HTML file: verdicts, bars, a step to touch, and the numbers.

It holds its styles and scripts, and its policy forbids the browser to load anything.
"""

import re
from html import escape
from pathlib import Path

import pandas as pd

from trace_report.lanes import COLOURS
from trace_report.step_view import longest_ranges, pale_bars_note, shown_step, trace_of_one_step
from trace_report.table import BARS, name_with_caveat, summaries, summary_rows
from trace_report.timeline import timeline
from trace_report.trace import Trace
from trace_report.units import in_words

HERE = Path(__file__).parent
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<link rel="icon" href="data:,">
<title>Trace report: {names}</title>
<style>{style}</style>
</head>
<body>
<main>
<h1>CPU and GPU time: {names}</h1>
{verdicts}
<h2>Time per step</h2>
{bars}
<p class="note">Averages under the profiler, which slows the host. Host time: the host works on the step and does not wait for the GPU; at most, as not every wait can be told.</p>
<h2>One step, of median length</h2>
{timeline}
<p class="note">{shown}</p>
<h2>Numbers</h2>
<div class="scrolls" tabindex="0" role="region" aria-label="Numbers">
{numbers}
</div>
</main>
</body>
</html>
"""  # noqa: E501
NO_SCRIPT = "Where scripts run, here is a timeline to hover over and to zoom into."


def page(traces: dict[str, Trace]) -> str:
    """The report of some traces, a dict of name -> Trace, as HTML."""
    verdicts = [
        f"<p><b>{escape(name)}</b>: {escape(trace.verdict())}</p>" for name, trace in traces.items()
    ]
    table = summaries(traces)
    chosen = {name: shown_step(trace) for name, trace in traces.items()}
    alone = {name: trace_of_one_step(trace, chosen[name]) for name, trace in traces.items()}
    return PAGE.format(
        policy=POLICY,
        names=escape(", ".join(traces)),
        style=re.sub(r"\n\s*", "\n", (HERE / "page.css").read_text(encoding="utf-8")),
        verdicts="\n".join(verdicts),
        bars=_bar_table(traces, table),
        timeline=timeline({name: trace for name, (trace, _) in alone.items()}, 0, NO_SCRIPT),
        shown=" ".join(
            escape(_shown_step_note(name, traces[name], chosen[name], events))
            for name, (_, events) in alone.items()
        )
        + pale_bars_note(trace for trace, _ in alone.values()),
        numbers=_number_table(summary_rows(table)),
    )


def _bar_table(traces, table):
    """The bars of each trace, on one scale; of one without a GPU, what its host does."""
    groups = {}
    for name, trace in traces.items():
        group = name_with_caveat(name, trace)
        if trace.gpu.empty:
            groups[group] = {"step time": table[name].step_us, **longest_ranges(trace)}
        else:
            groups[group] = table[name][list(BARS.values())].set_axis(list(BARS)).dropna().to_dict()
    longest = max([1, *(us for group in groups.values() for us in group.values())])
    bodies = []
    for name, group in groups.items():
        rows = "".join(
            f'<tr><th scope="row">{escape(lane)}</th><td>'
            f'<span style="width:{65 * us / longest:.1f}%;'
            f'background:{COLOURS[lane if lane in BARS else "host time"]}"></span>'
            f"{in_words(us)}</td></tr>"
            for lane, us in group.items()
        )
        head = f'<tr><th colspan="2" scope="rowgroup">{escape(name)}</th></tr>'
        bodies.append(f"<tbody>{head}{rows}</tbody>")
    return f'<table class="bars"><colgroup><col><col></colgroup>{"".join(bodies)}</table>'


def _shown_step_note(name, trace, step, events):
    """Which step of a trace the timeline shows, and how."""
    text = f"{name}: {trace.steps.name[step]}"
    if not events:
        return f"{text}."
    return f"{text}, its {events} events in bins: a bar is as long as something ran in its bin."


def _number_table(table: pd.DataFrame) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in table)
    rows = "".join(
        f'<tr><th scope="row">{what}</th>{"".join(f"<td>{value}</td>" for value in row)}</tr>'
        for what, row in zip(table.index, table.to_numpy(), strict=True)
    )
    return f"<table><thead><tr><td></td>{head}</tr></thead><tbody>{rows}</tbody></table>"
