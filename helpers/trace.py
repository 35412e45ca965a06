"""Read profiler traces: who issued what, and when was the GPU busy?

A GPU activity belongs to the launch with its correlation id, in the runtime or the driver API,
never to one that merely overlaps it: all kernels of a graph replay carry the id of their
cudaGraphLaunch. On the command line:  python -m helpers.trace FILE
"""

import argparse
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from helpers.trace_file import LIMIT_MIB, TraceError, outermost, read_tables

__all__ = ["CPU_BOUND", "Trace", "TraceError", "busy_time", "busy_until", "outermost", "read_trace"]

CPU_BOUND = 0.2  # a step is CPU-bound if the GPU idles for this share of it or more, else GPU-bound


@dataclass
class Trace:
    """A trace as tables. Times are in microseconds from the trace's first event.

    Every table has name, start_us, dur_us, end_us and step: the index of the event's (of its
    launch's) step, or -1.
      steps: one row per ProfilerStep; without such marks, one row for the whole trace
      cpu_ops, annotations: operators and record_function ranges, with thread
      launches: API calls that give the GPU work, with thread, process, correlation and graph
           (a cudaGraphLaunch?)
      waits: API calls in which the host waits for the GPU, with thread
      gpu: kernels, copies and memsets, with kind, device, stream, correlation, launch_us (when it
           was launched), graph and orphan (launched before the trace began: belongs to no step)

    Two rows of gpu, launched by one cudaGraphLaunch at 10 µs in step 0:
      name  start_us  dur_us  step    kind  stream  correlation  launch_us  graph  orphan
      gemm      30.0     5.0     0  kernel       7          101       10.0   True   False
      relu      36.0     2.0     0  kernel       7          101       10.0   True   False
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

        host_issue_us is the step's span on the host less its waiting, under the profiler, and
        launch_calls_us the part of it inside launch calls; loader_us is how long the GPU idles
        before the step's first launch, as when the step waits for a data loader.
        """
        steps = self.steps
        own = self.gpu[self.gpu.step >= 0]
        first_launch_us = self.launches.groupby("step").start_us.min().reindex(steps.index)
        before = [steps.start_us, first_launch_us.fillna(steps.end_us)]

        def total(rows, column=None):
            return np.bincount(rows.step + 1, column and rows[column], len(steps) + 1)[1:]

        wait_us = total(self.waits[self.waits.thread.isin(steps.thread)], "dur_us")
        issue_us = (steps.dur_us - wait_us).clip(lower=0)
        calls = _merged(self.launches, ["step"])  # on several threads: autograd launches as well
        launch_us = total(calls, "dur_us")
        gpu_us = total(_merged(own, ["step", "device"]), "dur_us")
        columns = {
            "host_issue_us": issue_us,
            "launch_calls_us": np.minimum(launch_us, issue_us),
            "wait_us": wait_us,
            "loader_us": np.diff(before - busy_until(self.gpu, before), axis=0)[0],
            "gpu_busy_us": gpu_us / max(1, own.device.nunique()),
            "launches": total(self.launches),
            "graph_launches": total(self.launches[self.launches.graph]),
            "kernels": total(own[own.kind == "kernel"]),
            "copies_and_memsets": total(own[own.kind != "kernel"]),
        }
        return pd.DataFrame(columns, steps.index.rename("step"))

    def host_time(self) -> pd.DataFrame:
        """Split the host's time, a row per step, in microseconds under the profiler.

        launch calls: inside the CUDA calls that give the GPU work, on any thread (a full launch
        queue makes them longer); waiting: inside calls that wait for the GPU; everything else:
        Python, PyTorch's dispatcher, autograd.
        """
        steps = self.per_step()
        return pd.DataFrame(
            {
                "launch calls": steps.launch_calls_us,
                "waiting": steps.wait_us,
                "everything else": steps.host_issue_us - steps.launch_calls_us,
            }
        )

    def summary(self) -> pd.Series:
        """Per-step averages over the trace, and what they say together.

        step_us is the traced time per step until the last own GPU activity ended. In it the GPU
        works for gpu_busy_us on the steps' own launches, for earlier_us on others, and idles for
        idle_share, an upper bound, since the profiler slows the host. loader_us makes up
        loader_share of the idle time.
        """
        steps, means = len(self.steps), self.per_step().mean()
        own = self.gpu[self.gpu.step >= 0]
        end_us = max(self.steps.end_us.max(), own.end_us.max())  # nan if there is no own activity
        window = [self.steps.start_us.min(), end_us]
        step_us, work_us = np.diff([window, busy_until(self.gpu, window)])[:, 0] / steps
        means["gpu_busy_us"] = busy_time(own) / steps  # work of two steps at once counts once
        idle_us = max(0.0, step_us - work_us)
        means["earlier_us"] = max(0.0, work_us - means.gpu_busy_us)
        means["step_us"] = step_us
        means["idle_share"] = idle_us / step_us if step_us else 0.0
        means["loader_share"] = min(1.0, means.loader_us / idle_us) if idle_us else 0.0
        means["steps"] = steps
        means["orphans"] = self.gpu.orphan.sum()
        return means

    def fault(self) -> str:
        """A sentence on why the averages of this trace mean nothing; "" for a sound trace."""
        if (processes := self.launches.process.nunique()) > 1:
            return (
                f"the file holds launches of {processes} processes, whose step numbers and "
                "correlation ids collide: read the trace of each process by itself."
            )
        correlation = self.launches.correlation
        if correlation[correlation > 0].duplicated().any():
            return (
                "several launches have the same correlation id, as where traces were merged: "
                "read the trace of each process by itself."
            )
        overlap_us = self.steps.end_us.cummax().shift() - self.steps.start_us
        if overlap_us.max() > 1:  # older traces count whole microseconds
            name, threads = self.steps.name[overlap_us.idxmax()], self.steps.thread.nunique()
            where = f" (there are marks on {threads} threads)" if threads > 1 else ""
            return f"the steps overlap: {name} begins before an earlier one has ended{where}."
        early_us = self.gpu.launch_us - self.gpu.start_us
        if early_us.max() > 1:
            return (
                f"{(early_us > 1).sum()} of {len(early_us)} GPU activities begin before their own "
                f"launch, by up to {early_us.max():.0f} µs: the GPU's clock is off, so nobody can "
                "tell when the GPU was idle."
            )
        return ""

    def verdict(self) -> str:
        """What is the limit, GPU or CPU, and what could a graph save at most? See CPU_BOUND."""
        if fault := self.fault():
            return f"No verdict: {fault}"
        s = self.summary()
        if s.gpu_busy_us < 0.001:  # a trace counts whole nanoseconds
            return "No verdict: no GPU activity was launched inside a step."
        marked = self.steps.name[0] != "whole trace"
        text = "CPU-bound" if s.idle_share >= CPU_BOUND else "GPU-bound"
        text += f": the GPU is idle for {s.idle_share:.0%} of "
        text += f"a traced step of {s.step_us:.0f} µs" if marked else f"{s.step_us:.0f} µs"
        if s.earlier_us > 0.01 * s.step_us:
            share = s.earlier_us / s.step_us
            text += f", and works for {share:.0%} on launches from outside the steps"
        if waits := s.loader_share > 0.3:  # less may be the step's own Python, which a graph saves
            text += f"; {s.loader_share:.0%} of the idle time lies before the step's first launch, "
            text += "as when it waits for data"
        if not marked:
            return f"{text}. The trace has no steps: call profiler.step() after each one."
        if self.gpu.graph[(self.gpu.kind == "kernel") & (self.gpu.step >= 0)].mean() > 0.9:
            return (
                f"{text}. Its kernels come from graphs already, {s.graph_launches:.3g} launched "
                "per step."
            )
        saved_us = s.idle_share * s.step_us * (1 - waits * s.loader_share)
        times = s.step_us / max(s.step_us - saved_us, s.gpu_busy_us)
        most = f"{saved_us:.0f} µs ({times:.1f}x)"
        return f"{text}. A graph of the whole step could save at most {most}."


def _merged(activities, keys):
    """The activities by start, each with the dur_us that no earlier one of its group covers."""
    rows = activities.sort_values("start_us")
    rows["end_us"] = rows.groupby(keys).end_us.cummax()
    covered_us = rows.groupby(keys).end_us.shift(fill_value=-np.inf)
    rows["start_us"] = rows.start_us.clip(lower=covered_us)
    return rows.assign(dur_us=rows.end_us - rows.start_us)


def busy_until(activities: pd.DataFrame, times: ArrayLike) -> np.ndarray:
    """For how many microseconds before each time did any activity run? The mean over devices."""
    times = np.asarray(times, dtype=float)
    total = np.zeros(times.shape)
    for _, rows in _merged(activities, ["device"]).groupby("device"):
        edges = [rows.start_us, rows.end_us]
        done = rows.dur_us.cumsum()
        busy = [done - rows.dur_us, done]
        total += np.interp(np.asarray(times), np.ravel(edges, "F"), np.ravel(busy, "F"))
    return total / max(1, activities.device.nunique())


def busy_time(activities: pd.DataFrame) -> float:
    """For how many microseconds did at least one of the activities run?"""
    return float(busy_until(activities, np.inf))


def read_trace(path: Path | str, limit_mib: int | None = None) -> Trace:
    """Read a Kineto trace of any origin, .json or .json.gz.

    limit_mib: how much a gzip may unpack to. Raises TraceError, one sentence naming file and
    cause, for what is no such trace or holds no GPU activity.
    """
    return Trace(**read_tables(path, limit_mib), path=Path(path))


def main(arguments: list[str] | None = None) -> int:
    """Print the summary and the verdict of one trace; returns the exit status."""
    parser = argparse.ArgumentParser(
        "python -m helpers.trace", description="Sum up a profiler trace."
    )
    parser.add_argument("file", help="a trace of torch.profiler, .json or .json.gz")
    limit = f"how many MiB a gzip may unpack to (default: {LIMIT_MIB}, less for small files)"
    parser.add_argument("mib", nargs="?", type=int, help=limit)
    try:
        try:
            options = parser.parse_args(arguments)
        finally:
            print(end="", flush=True)  # the help
        trace = read_trace(options.file, options.mib)
        print(trace.summary().to_string(float_format="{:.2f}".format), trace.verdict(), sep="\n")
        print(end="", flush=True)
    except TraceError as error:
        print(str(error)[:500], file=sys.stderr)
        return 2
    except OSError:  # nobody reads on, or the disk is full
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
