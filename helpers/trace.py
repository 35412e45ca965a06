"""Read profiler traces: who issued what, and when was the GPU busy?

A GPU activity belongs to the launch with its correlation id, in the runtime or the driver API, never to one that
merely overlaps it: all kernels of a graph replay carry the id of their cudaGraphLaunch.

    python -m helpers.trace FILE [MIB]      summary and verdict; a gzip may unpack to MIB (1,024)
"""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from helpers.kineto import read_tables


@dataclass
class Trace:
    """A trace as tables. Times are in microseconds from the trace's first event.

    Every table has name, start_us, dur_us, end_us and step: the index of the event's (of its launch's) step, or -1.
      steps: one row per ProfilerStep; without such marks, one row for the whole trace
      cpu_ops, annotations: operators and record_function ranges, with thread
      launches: API calls that give the GPU work, with correlation and graph (a cudaGraphLaunch?)
      waits: API calls in which the host waits for the GPU
      gpu: kernels, copies and memsets, with kind, device, stream, correlation, launch_us (when it was launched),
           graph and orphan (launched before the trace began: belongs to no step)
    """

    path: Path
    steps: pd.DataFrame
    cpu_ops: pd.DataFrame
    annotations: pd.DataFrame
    launches: pd.DataFrame
    waits: pd.DataFrame
    gpu: pd.DataFrame

    def per_step(self) -> pd.DataFrame:
        """Host and GPU per step, a row each; microseconds and counts.

        host_issue_us is the step's span on the host less its waiting, under the profiler; loader_us is how long
        the GPU idles before the step's first launch, as when a data loader is waited for.
        """
        steps, launches, own = self.steps, self.launches, self.gpu[self.gpu.step >= 0]
        before = [steps.start_us, launches.groupby("step").start_us.min().reindex(steps.index).fillna(steps.end_us)]

        def total(rows, column=None):
            return np.bincount(rows.step + 1, column and rows[column], len(steps) + 1)[1:]

        wait_us = total(self.waits[self.waits.thread.isin(steps.thread)], "dur_us")
        columns = {
            "host_issue_us": (steps.dur_us - wait_us).clip(lower=0),
            "wait_us": wait_us,
            "loader_us": np.diff(before - busy_until(self.gpu, before), axis=0)[0],
            "gpu_busy_us": total(_merged(own, ["step", "device"]), "dur_us") / max(1, own.device.nunique()),
            "launches": total(launches),
            "graph_launches": total(launches[launches.graph]),
            "kernels": total(own[own.kind == "kernel"]),
            "copies_and_memsets": total(own[own.kind != "kernel"]),
        }
        return pd.DataFrame(columns, steps.index.rename("step"))

    def summary(self) -> pd.Series:
        """Per-step averages over the trace, and what they say together.

        step_us is the traced time per step until the last own GPU activity ended. In it the GPU works for
        gpu_busy_us on the steps' own launches, for earlier_us on others, and idles for idle_share, an upper
        bound, since the profiler slows the host. loader_us makes up loader_share of the idle time.
        """
        steps, own, means = len(self.steps), self.gpu[self.gpu.step >= 0], self.per_step().mean()
        window = [self.steps.start_us.min(), max(self.steps.end_us.max(), own.end_us.max())]  # nan if it has none
        step_us, work_us = np.diff([window, busy_until(self.gpu, window)])[:, 0] / steps
        means["gpu_busy_us"] = busy_time(own) / steps  # work of two steps at once counts once
        idle_us = max(0.0, step_us - work_us)
        means["earlier_us"], means["step_us"] = max(0.0, work_us - means.gpu_busy_us), step_us
        means["idle_share"] = idle_us / step_us if step_us else 0.0
        means["loader_share"] = min(1.0, means.loader_us / idle_us) if idle_us else 0.0
        means["steps"], means["orphans"] = steps, self.gpu.orphan.sum()
        return means

    def verdict(self) -> str:
        """What is the limit (GPU-bound: the GPU idles for less than 20%), and what could a graph save at most?"""
        s = self.summary()
        if s.gpu_busy_us < 0.001:  # a trace counts whole nanoseconds
            return "No GPU activity was launched inside a step: nothing to judge."
        text = "GPU-bound" if s.idle_share < 0.2 else "CPU-bound"
        text += f": the GPU is idle for {s.idle_share:.0%} of a traced step of {s.step_us:.0f} us"
        if s.earlier_us > 0.01 * s.step_us:
            text += f", at work for {s.earlier_us / s.step_us:.0%} on what was launched outside the steps"
        if waits := s.loader_share > 0.3:  # less may be the step's own Python, which a graph does save
            text += f", {s.loader_share:.0%} of that before its first launch, as when it waits for data"
        if self.gpu.graph[(self.gpu.kind == "kernel") & (self.gpu.step >= 0)].mean() > 0.9:
            return f"{text}; its kernels come from graphs already, {s.graph_launches:.3g} launched per step."
        saved_us = s.idle_share * s.step_us * (1 - waits * s.loader_share)
        times = s.step_us / max(s.step_us - saved_us, s.gpu_busy_us)
        return f"{text}, so a graph of the whole step could save at most {saved_us:.0f} us ({times:.1f}x)."


def _merged(activities, keys):
    """The activities in order of time, each with the dur_us that no earlier one of its group covers."""
    rows = activities.sort_values("start_us")
    rows["end_us"] = rows.groupby(keys).end_us.cummax()
    rows["start_us"] = rows.start_us.clip(lower=rows.groupby(keys).end_us.shift(fill_value=-np.inf))
    return rows.assign(dur_us=rows.end_us - rows.start_us)


def busy_until(activities: pd.DataFrame, times: ArrayLike) -> np.ndarray:
    """For how many microseconds before each time did at least one activity run? The mean over the devices."""
    total = np.zeros(np.shape(times))
    for _, rows in _merged(activities, ["device"]).groupby("device"):
        edges, done = [rows.start_us, rows.end_us], rows.dur_us.cumsum()
        total += np.interp(times, np.ravel(edges, "F"), np.ravel([done - rows.dur_us, done], "F"))
    return total / max(1, activities.device.nunique())


def busy_time(activities: pd.DataFrame) -> float:
    """For how many microseconds did at least one of the activities run?"""
    return float(busy_until(activities, np.inf))


def read_trace(path: Path | str, limit_mib: int | None = None) -> Trace:
    """Read a Kineto trace of any origin, .json or .json.gz; limit_mib: how much a gzip may unpack to.

    Raises TraceError, one sentence naming file and cause, for what is no such trace or holds no GPU activity.
    """
    return Trace(**read_tables(path, limit_mib), path=Path(path))


def main(arguments: list[str]) -> int:
    """Print the summary of one trace; returns the exit status."""
    try:
        if (asked := arguments[:1] in (["-h"], ["--help"])) or len(arguments) not in (1, 2):
            return print(__doc__, file=None if asked else sys.stderr, flush=True) or 2 * (not asked)
        trace = read_trace(arguments[0], *map(int, arguments[1:]))
        print(trace.summary().to_string(float_format="{:.2f}".format), trace.verdict(), sep="\n", flush=True)
    except ValueError as error:  # a TraceError, or MIB is no number
        print(str(error)[:500], file=sys.stderr)
        return 2
    except OSError:  # nobody reads on, or the disk is full
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
