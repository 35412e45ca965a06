"""The numbers of several traces, side by side."""

import numpy as np
import pandas as pd

from trace_report.trace import Trace
from trace_report.units import format_number, in_words, percent

ON_THE_HOST = ["step_us", "host_issue_us", "pause_us", "steps"]
BARS = {"host time": "host_issue_us", "GPU busy time": "gpu_busy_us", "step time": "step_us"}
NUMBERS = {
    "step": ("step_us", in_words),
    "GPU busy": ("gpu_busy_us", in_words),
    "GPU idle": ("idle_share", percent),
    "host time, at most": ("host_issue_us", in_words),
    "of it in launch calls": ("launch_calls_us", in_words),
    "host waits for the GPU": ("wait_us", in_words),
    "idle before the first launch": ("loader_us", in_words),
    "only NCCL kernels": ("collective_us", in_words),
    "pause between steps": ("pause_us", in_words),
    "launches": ("launches", format_number),
    "of these, graphs": ("graph_launches", format_number),
    "kernels": ("kernels", format_number),
    "copies and memsets": ("copies_and_memsets", format_number),
    "steps": ("steps", format_number),
    "of these, in steady state": ("steady_steps", format_number),
}


def summaries(traces: dict[str, Trace]) -> pd.DataFrame:
    """The summary of each trace, a column for each, with nan for what the trace does not say: one
    without a GPU says nothing of it, one with a fault nothing at all.
    """
    columns = {}
    for name, trace in traces.items():
        summary = trace.summary()
        if trace.gpu.empty:
            summary = summary.where(summary.index.isin(ON_THE_HOST))
        elif trace.fault():
            summary = summary * np.nan
        columns[name] = summary
    return pd.DataFrame(columns)


def summary_rows(table: pd.DataFrame) -> pd.DataFrame:
    """What there is to compare in summaries, as text: a row per number that is not 0 for all."""
    written = {
        what: table.loc[column].map(write).replace("", "–")
        for what, (column, write) in NUMBERS.items()
        if table.loc[column].any()
    }
    return pd.DataFrame(written).T


def name_with_caveat(name: str, trace: Trace) -> str:
    """The name of a trace, and that its numbers are of no step if so."""
    return name if trace.is_marked() else f"{name} (the whole trace)"
