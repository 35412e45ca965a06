"""The report: tables with ratios and spread, and where
and with what they were measured, as Markdown.
"""

import hashlib
import os
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pandas as pd

from course.commands.record import provenance
from course.paths import ROOT

TITLE = """# What the graphs bring, and what the course costs

Written by `make bench`, never by hand.
"""
STEPS = """## Training steps

The four loops of the examples that the course grew from ("original", written anew from their description,
the defect of the last one included) and the rungs of the course's ladder, measured together in interleaved
rounds. Times are microseconds per training step, median [quartiles]; a ratio is taken round by round. Host
time is the CPU's time to issue a step; step time is what a loop pays; GPU busy time and the counts are of a
profiler trace. Products of float32 matrices run in TF32; the rungs with bf16 compute something else.
"""
READING = """## Reading a trace

A recorded trace, its events repeated with later times and ids of their own, gzipped. Each reading is a process
of its own, readers take turns, imports are not timed. Seconds are median [lowest, highest]. HTA is
HolisticTraceAnalysis' `parse_trace_file`, which makes one DataFrame with launches joined and steps assigned, the
work of `read_trace`. It compares every event with every step, so how many steps share the 200 MB decides its
time: both ends are measured, seven large steps and, in a single round, the recorded small ones, over two
thousand. A reader that takes too long is stopped; its ratio is then a lower bound.
"""
STARTING = """## Opening and running a lesson

From asking for a kernel until the imports have run in it; and every lesson run from top to bottom through
nbmake with the GPU hidden, so on its recording. Seconds are median [lowest, highest].
"""


def table(frame: pd.DataFrame, corner: str = "variant") -> str:
    """A DataFrame as a Markdown table, its index as the first column."""
    rows = [[corner, *frame.columns], ["---"] * (len(frame.columns) + 1)]
    rows += [
        [label, *row] for label, row in zip(frame.index, frame.to_numpy(dtype=object), strict=True)
    ]
    return "\n".join(f"| {' | '.join(_cell(value) for value in row)} |" for row in rows) + "\n"


def _cell(value):
    if pd.isna(value):
        return ""
    return f"{value:g}" if isinstance(value, float) else str(value)


def spread(values: pd.Series) -> str:
    """median [lowest, highest] of a Series; of a single value only that."""
    low, middle, high = (f"{value:.3g}" for value in values.quantile([0, 0.5, 1]))
    return middle if values.count() == 1 else f"{middle} [{low}, {high}]"


def seconds_table(rounds: pd.DataFrame) -> pd.DataFrame:
    """Seconds per variant with their range, how many times
    the first variant's, and further columns' medians.
    """
    by_round = rounds.pivot(index="round", columns="variant", values="seconds")
    first = rounds.variant.iloc[0]
    groups = rounds.groupby("variant", sort=False)
    result = groups.median().drop(columns=["round", "seconds"]).round(0).astype("Int64")
    result.insert(0, "seconds", groups.seconds.apply(spread))
    result.insert(
        1, f"variant / {first}", [spread(by_round[name] / by_round[first]) for name in result.index]
    )
    return result


def steps_section(beside_eager: pd.DataFrame, beside_whole: pd.DataFrame) -> str:
    """The two tables of benchmarks.steps, under their heading."""
    again = "The same rounds beside the original's graph of the whole step:"
    return "\n".join([STEPS, table(beside_eager), again, "", table(beside_whole)])


def reading_section(measured: dict[str, pd.DataFrame]) -> str:
    """A table for each job of benchmarks.reading."""
    parts = [
        f"### {name}\n\n{table(seconds_table(rounds), 'reader')}"
        for name, rounds in measured.items()
    ]
    return "\n".join([READING, *parts])


def starting_section(kernels: pd.DataFrame, lessons: pd.DataFrame) -> str:
    """Kernels' seconds, and how many lessons passed."""
    failed = (
        f" (failed: {', '.join(lessons.lesson[~lessons.passed])})"
        if not lessons.passed.all()
        else ""
    )
    passed = f"{lessons.passed.sum()} of {len(lessons)} lessons passed{failed}"
    total = f"{lessons.seconds.sum():.0f} s together, {spread(lessons.seconds)} s a lesson"
    return f"{STARTING}\n{table(seconds_table(kernels), 'start')}\nnbmake: {passed}, {total}.\n"


def provenance_section() -> str:
    """GPU, driver, host and versions."""
    about = provenance()
    paths = [*sorted(ROOT.glob("helpers/[a-z]*.py")), ROOT / "benchmarks" / "ladder.py"]
    sources = {path.stem: path.read_bytes() for path in paths}
    modules = " ".join(
        f"{name} {hashlib.sha256(source).hexdigest()[:12]}" for name, source in sources.items()
    )
    versions = about.pop("versions") | {"HolisticTraceAnalysis": hta_version()}
    host = {"host CPU": cpu_name(), "host cores": os.cpu_count()}
    lines = {key: value for key, value in (about | host | versions).items() if value} | {
        "helpers": modules
    }
    return "## Measured on\n\n" + "".join(f"- {key}: {value}\n" for key, value in lines.items())


def hta_version() -> str:
    """HolisticTraceAnalysis' version, or that there is none."""
    try:
        return version("HolisticTraceAnalysis")
    except PackageNotFoundError:
        return "not installed"


def cpu_name() -> str | None:
    """The processor's name, where /proc/cpuinfo tells it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next(
        (line.split(":")[1].strip() for line in lines if line.startswith("model name")), None
    )
