"""Several traces by their names: which step of each to show, and their numbers side by side."""

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from trace_report.trace import Trace, outermost, read_trace

MOST = 2000  # events of a step that are drawn
# in the name of a kernel or range
SAYS_NOTHING = re.compile(
    r"^void |at::native::|\(anonymous namespace\)::|\bat::|^[# ]+|[# ]+$"
    "|^autograd::engine::evaluate_function: "
)
ON_THE_HOST = ["step_us", "host_issue_us", "pause_us", "steps"]
SUFFIXES = (".gz", ".json", ".pt.trace")
BARS = {"host time": "host_issue_us", "GPU busy time": "gpu_busy_us", "step time": "step_us"}
NUMBERS = {
    "step, µs": "step_us",
    "GPU busy, µs": "gpu_busy_us",
    "GPU idle": "idle_share",
    "host time, µs": "host_issue_us",
    "of it in launch calls, µs": "launch_calls_us",
    "host waits for the GPU, µs": "wait_us",
    "idle before the first launch, µs": "loader_us",
    "only NCCL kernels, µs": "collective_us",
    "pause between steps, µs": "pause_us",
    "launches": "launches",
    "of these, graphs": "graph_launches",
    "kernels": "kernels",
    "copies and memsets": "copies_and_memsets",
    "steps": "steps",
}


def read_named(files: list[str]) -> dict[str, Trace]:
    """Read traces: FILE, which is called like the file, or NAME=FILE. Raises TraceError."""
    named = []
    for file in files:
        name, equals, rest = file.partition("=")
        given = equals and not Path(file).exists()
        named.append((name if given else stem(Path(file)), Path(rest if given else file)))
    counts = Counter(name for name, _ in named)
    traces: dict[str, Trace] = {}
    for called, path in named:
        name = f"{path.absolute().parent.name}/{called}" if counts[called] > 1 else called
        while name in traces:
            name += " again"
        traces[name] = read_trace(path, needs_gpu=False)
    return traces


def stem(path: Path) -> str:
    """A trace's name without what says that it is a trace: eager.pt.trace.json.gz -> eager."""
    name = path.name
    for suffix in SUFFIXES:
        name = name.removesuffix(suffix)
    return name or path.name


def bound(verdict: str) -> str | None:
    """CPU-bound or GPU-bound, as a verdict begins; None if there is no verdict."""
    limit = verdict.partition(":")[0]
    return None if limit == "No verdict" else limit


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


def numbers(table: pd.DataFrame) -> pd.DataFrame:
    """What there is to compare in summaries, as text: a row per number that is not 0 for all."""
    written = {
        what: table.loc[column].map(percent if what == "GPU idle" else digits)
        for what, column in NUMBERS.items()
        if table.loc[column].any()
    }
    return pd.DataFrame(written).T


def digits(value: float) -> str:
    """Three significant digits, or all before the point: 12345, 62.1, 5.93, 7; – for nan."""
    if np.isnan(value):
        return "–"
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def in_words(us: float) -> str:
    """A time with its unit: 2113 µs, 615 ms, 43.4 s; "" for nan."""
    if np.isnan(us):
        return ""
    for unit, size in {"s": 1e6, "ms": 1e3}.items():
        if us >= 10 * size:
            return f"{digits(us / size)} {unit}"
    return f"{digits(us)} µs"


def percent(share: float) -> str:
    """A share in percent; – for nan."""
    return "–" if np.isnan(share) else f"{share:.0%}"


def short(name: str) -> str:
    """The name of a kernel or range without what says nothing."""
    return SAYS_NOTHING.sub("", name)


def shown_step(trace: Trace) -> int:
    """The step to show: of those that begin with an idle GPU, the one of the most usual length."""
    spans, gpu = trace.spans(), trace.gpu.sort_values("start_us")
    done_us = np.append(-np.inf, gpu.end_us.cummax())
    idle = done_us[gpu.start_us.searchsorted(spans.start_us)] <= spans.start_us
    unusual_us = spans.end_us - spans.start_us
    unusual_us = (unusual_us - unusual_us.median()).abs()
    return int((unusual_us[idle] if idle.any() else unusual_us).idxmin())


def one_step(trace: Trace, step: int) -> tuple[Trace, int]:
    """A trace of this step alone, as step 0, and how many of its events are left out: all after
    the first MOST.

    Operators outside of any record_function range count as ranges of the host.
    """
    tables = {
        "annotations": outermost(host_side(trace)),
        "launches": trace.launches,
        "waits": trace.waits,
        "gpu": trace.gpu,
    }
    tables = {name: rows[rows.step == step].assign(step=0) for name, rows in tables.items()}
    starts = np.sort(np.concatenate([rows.start_us for rows in tables.values()]))
    end_us = starts[MOST] if len(starts) > MOST else np.inf
    tables = {name: rows[rows.start_us < end_us] for name, rows in tables.items()}
    left_out = len(starts) - sum(map(len, tables.values()))
    own = trace.steps.loc[[step]].reset_index(drop=True).assign(step=0)
    return replace(trace, steps=own, **tables), left_out


def host_side(trace: Trace) -> pd.DataFrame:
    """The operators and the record_function ranges of the steps."""
    host = pd.concat([trace.annotations, trace.cpu_ops])
    return host[host.step >= 0]


def host_work(trace: Trace) -> pd.Series:
    """µs per step in the host's outermost ranges and operators, by name: the ten longest."""
    work = outermost(host_side(trace))
    totals = work.groupby(work.name.map(short)).dur_us.sum()
    return totals.sort_values(ascending=False)[:10] / len(trace.steps)
