"""Read profiler traces: who issued what, and when was the GPU busy?

A GPU activity belongs to the launch with its correlation id, in the runtime or the driver API,
never to one that merely overlaps it: all kernels of a graph replay carry the id of their
cudaGraphLaunch.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from trace_report.trace_file import NO_GPU, WHOLE, TraceError, named, outermost, read_tables

__all__ = ["CPU_BOUND", "LOADER_BOUND"]
__all__ += ["Trace", "TraceError", "busy_time", "busy_until", "outermost", "read_trace"]

CPU_BOUND = 0.2  # a step is CPU-bound if the GPU idles for this share of it or more, else GPU-bound
LOADER_BOUND = (
    0.5  # it waits for data if more than this share of the idle time lies before launches
)
CLOCK_US = 1  # how far the clocks of CPU and GPU may be apart: older traces count whole µs
NCCL = "nccl"  # begins the name of each kernel that communicates


@dataclass
class Trace:
    """A trace as tables. Times are in microseconds from the trace's first event.

    Every table has name, start_us, dur_us, end_us and step: the index of the event's (of its
    launch's) step, or -1.
      steps: one row per ProfilerStep; without such marks, one row for the whole trace
      cpu_ops, annotations: operators and record_function ranges, with thread
      launches: API calls that give the GPU work, with thread, process, correlation and graph
           (a cudaGraphLaunch?); those of other processes than the steps' belong to no step
      waits: API calls in which the host waits for the GPU, with thread
      gpu: kernels, copies and memsets, with kind, device (-1: not known), stream, correlation,
           launch_us (when it was launched), launched_us (when that call returned), graph and orphan
           (launched before the trace began: belongs to no step)

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
        """Host and GPU per step, a row each; microseconds, under the profiler, and counts.

        host_issue_us: the step's span on the host less wait_us, so Python and whatever else the
            thread does count as well
        wait_us: the part of the span inside calls named ...Synchronize on the step's own thread,
            nested ones once; a copy that blocks is no such call
        launch_calls_us: the part of host_issue_us inside launch calls, on any thread
        loader_us: how long no GPU of the steps works before the step's first launch, as when it
            waits for a data loader
        gpu_busy_us: how long the step's busiest GPU works on what the step launched, whenever
        """
        steps = self.steps
        own = self.gpu[self.gpu.step >= 0]
        first_launch_us = self.launches.groupby("step").start_us.min().reindex(steps.index)
        before = [steps.start_us, first_launch_us.fillna(steps.end_us)]

        def total(rows, column=None):
            return np.bincount(rows.step + 1, column and rows[column], len(steps) + 1)[1:]

        waits = self.waits[self.waits.thread.isin(steps.thread)]
        wait_us = total(_merged(waits, ["step"]), "dur_us")
        issue_us = (steps.dur_us - wait_us).clip(lower=0)
        calls = _merged(self.launches, ["step"])  # on several threads: autograd launches as well
        launch_us = total(calls, "dur_us")
        busy = _merged(own, ["step", "device"])
        busy = busy.groupby(["step", "device"], as_index=False).dur_us.sum()
        busy_us = busy.groupby("step").dur_us.max().reindex(steps.index, fill_value=0.0)
        gpus = self.gpu[self.gpu.device.isin(own.device)]
        columns = {
            "host_issue_us": issue_us,
            "launch_calls_us": np.minimum(launch_us, issue_us),
            "wait_us": wait_us,
            "loader_us": np.diff(before - busy_until(gpus, before), axis=0)[0],
            "gpu_busy_us": busy_us,
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

    def spans(self) -> pd.DataFrame:
        """When each step begins, and when it and its GPU work have ended: start_us, end_us.

        A step ends when the next one begins, at the latest. The last one is left out if it launches
        nothing, or if the GPU idles in it for more than twice as long as any other step takes: the
        profiler was stopped late.
        """
        steps = self.steps[["start_us", "end_us"]]
        done_us = self.gpu[self.gpu.step >= 0].groupby("step").end_us.max()
        ends_us = np.fmax(steps.end_us, done_us.reindex(steps.index).cummax().ffill())
        next_us = steps.start_us.shift(-1, fill_value=np.inf)
        spans = steps.assign(end_us=np.minimum(ends_us, next_us))
        if len(spans) > 1 and len(self.launches) and self._stopped_late(spans.iloc[-1]):
            next_us.iloc[-2] = np.inf
            spans = steps.assign(end_us=np.minimum(ends_us, next_us)).iloc[:-1]
        return spans

    def _stopped_late(self, last):
        """Whether the last of several steps, from start_us to end_us, does not count; see spans."""
        idle_us = np.diff(last - busy_until(self.gpu, last))[0]
        longest_us = max(self.steps.dur_us[:-1].max(), self.per_step().gpu_busy_us[:-1].max())
        return not (self.launches.step == last.name).any() or idle_us > 2 * longest_us

    def summary(self) -> pd.Series:
        """Per-step averages over the trace, and what they say together; see spans, per_step.

        step_us is the traced time per step until its own GPU work has ended; pause_us, the time
        between steps, is no part of it. In step_us the busiest of the gpus that the steps use works
        for gpu_busy_us on the steps' own launches, for earlier_us on others, and idles for
        idle_share, an upper bound, since the profiler slows the host. any_busy_us: at least one GPU
        works. collective_us: the busiest one runs nothing but kernels of NCCL, which also run while
        they wait for another rank. loader_us makes up loader_share of the idle time.
        """
        spans = self.spans()
        steps, means = len(spans), self.per_step().loc[spans.index].mean()
        own = self.gpu[self.gpu.step.isin(spans.index)]
        used = self.gpu[self.gpu.device.isin(own.device)]
        gpus = [rows for _, rows in own.groupby("device")]
        own = max(gpus, key=busy_time, default=own)  # of the busiest
        busiest = self.gpu[self.gpu.device.isin(own.device)]
        edges = spans[["start_us", "end_us"]].to_numpy()

        def within(activities):
            return np.diff(busy_until(activities, edges)).sum() / steps

        step_us, work_us = np.diff(edges).sum() / steps, within(busiest)
        computes = busiest[~named(busiest, NCCL)]
        idle_us = max(0.0, step_us - work_us)
        means["gpu_busy_us"] = busy_time(own) / steps  # work of two steps at once counts once
        means["any_busy_us"] = within(used)
        means["collective_us"] = work_us - within(computes)
        means["earlier_us"] = max(0.0, work_us - means.gpu_busy_us)
        means["step_us"] = step_us
        means["pause_us"] = (edges[1:, 0] - edges[:-1, 1]).sum() / steps
        means["idle_share"] = idle_us / step_us if step_us else 0.0
        means["loader_share"] = min(1.0, means.loader_us / idle_us) if idle_us else 0.0
        means["steps"] = steps
        means["gpus"] = len(gpus)
        means["orphans"] = self.gpu.orphan.sum()
        return means

    def fault(self) -> str:
        """A sentence on why the averages of this trace mean nothing; "" for a sound trace."""
        if self.gpu.empty:
            return f"{NO_GPU}."
        marked = self.steps.name[0] != WHOLE
        processes = (self.steps if marked else self.launches).process.nunique()
        if processes > 1:
            return (
                f"the file holds {'steps' if marked else 'launches'} of {processes} processes, "
                "whose step numbers and correlation ids collide: read the "
                "trace of each process by itself."
            )
        ids = self.launches.correlation
        if ids[(ids > 0) & ids.isin(self.gpu.correlation)].duplicated().any():
            return (
                "several launches have the same correlation id, as where traces were merged: "
                "read the trace of each process by itself."
            )
        overlap_us = self.steps.end_us.cummax().shift() - self.steps.start_us
        if overlap_us.max() > CLOCK_US:
            name, threads = self.steps.name[overlap_us.idxmax()], self.steps.thread.nunique()
            where = f" (there are marks on {threads} threads)" if threads > 1 else ""
            return f"the steps overlap: {name} begins before an earlier one has ended{where}."
        devices = self.gpu.device[self.gpu.step >= 0]
        if devices.nunique() > 1 and (devices < 0).any():
            return (
                f"{(devices < 0).sum()} GPU activities do not say on which of "
                f"{devices[devices >= 0].nunique()} GPUs they ran."
            )
        return self._clock()

    def _clock(self):
        """A sentence if GPU work begins before its launch, or ends after a wait for it; or ""."""
        what = "begin before their own launch"
        by_us = self.gpu.launch_us - self.gpu.start_us
        if not by_us.max() > CLOCK_US:
            what = "end after the host has waited for all work of the GPU"
            by_us = self._late_us()
        if not by_us.max() > CLOCK_US:
            return ""
        return (
            f"{(by_us > CLOCK_US).sum()} of {len(self.gpu)} GPU activities {what}, by up to "
            f"{by_us.max():.0f} µs: the GPU's clock is off, so nobody "
            "can tell when the GPU was idle."
        )

    def _late_us(self):
        """By how much each GPU activity ends after a wait for the device that began when it had
        been launched; with several GPUs nothing is known, as the wait may be for another one.
        """
        waits = self.waits[named(self.waits, ".*(?:Device|Ctx|Context)Synchronize")]
        waits = waits[waits.process.isin(self.steps.process)].sort_values("start_us")
        own = self.gpu[self.gpu.step >= 0]
        if waits.empty or own.device.nunique() > 1:
            return pd.Series(dtype=float)
        at = waits.start_us.searchsorted(own.launched_us)
        over_us = np.append(waits.end_us[::-1].cummin()[::-1], np.inf)[at]
        return own.end_us - over_us

    def verdict(self) -> str:
        """What is the limit, GPU or CPU, and what could a graph save at most? See CPU_BOUND."""
        if fault := self.fault():
            return f"No verdict: {fault}"
        s = self.summary()
        if s.gpu_busy_us < 0.001:  # a trace counts whole nanoseconds
            return "No verdict: no GPU activity was launched inside a step."
        if s.step_us < 1:
            return f"No verdict: a step of {s.step_us:.2g} µs is too short to judge."
        if refused := self._undecided(s):
            return f"No verdict: {refused}"
        marked = self.steps.name[0] != WHOLE
        text = "CPU-bound: " if s.idle_share >= CPU_BOUND else "GPU-bound: "
        text += "the GPU" if s.gpus == 1 else f"the busiest of {s.gpus:.0f} GPUs"
        text += f" is idle for {s.idle_share:.0%} of "
        text += f"a traced step of {s.step_us:.0f} µs" if marked else f"{s.step_us:.0f} µs"
        if s.earlier_us > 0.01 * s.step_us:
            share = s.earlier_us / s.step_us
            text += f", and works for {share:.0%} on launches from outside the steps"
        if s.collective_us > 0.01 * s.step_us:
            text += f"; for {s.collective_us / s.step_us:.0%} it runs only NCCL kernels, which may "
            text += "be waiting for another rank"
        if waits := s.loader_share > LOADER_BOUND:  # less may be the step's own Python
            text += f"; {s.loader_share:.0%} of the idle time lies before the step's first launch, "
            text += "as when it waits for data"
        if s.pause_us > 0.1 * s.step_us:
            text += f"; between the steps lie another {s.pause_us:.0f} µs per step, which a graph "
            text += "of the step does not change"
        if s.steps < len(self.steps):
            text += "; the last step does not count, as the profiler was stopped late"
        if not marked:
            return f"{text}. The trace has no steps: call profiler.step() after each one."
        if self.gpu.graph[(self.gpu.kind == "kernel") & (self.gpu.step >= 0)].mean() > 0.9:
            return (
                f"{text}. Its kernels come from graphs already, "
                f"{s.graph_launches:.3g} launched per step."
            )
        saved_us = s.idle_share * s.step_us * (1 - waits * s.loader_share)
        times = s.step_us / max(s.step_us - saved_us, s.gpu_busy_us)
        most = f"{saved_us:.0f} µs ({f'{times:.1f}' if times < 100 else 'over 100'}x)"
        return f"{text}. A graph of the whole step could save at most {most}."

    def _undecided(self, s):
        """Why a sound trace does not say which of CPU and GPU is the limit; "" where it does."""
        anywhere, collective = s.any_busy_us / s.step_us, s.collective_us / s.step_us
        of = f"of a traced step of {s.step_us:.0f} µs"
        if s.gpus > 1 and s.idle_share >= CPU_BOUND > 1 - anywhere:
            return (
                f"{s.gpus:.0f} GPUs work in turns: the busiest one works for "
                f"{1 - s.idle_share:.0%} {of}, but at least one of them for {anywhere:.0%}, so "
                "they may wait for each other rather than for the CPU."
            )
        if s.idle_share < CPU_BOUND <= s.idle_share + collective:
            return (
                f"the GPU is idle for {s.idle_share:.0%} {of}, but runs only NCCL kernels for "
                f"another {collective:.0%}, and these also run while they wait for another rank: "
                "compare the traces of all ranks."
            )
        return ""


def _merged(activities, keys):
    """The activities by start, each with the dur_us that no earlier one of its group covers."""
    rows = activities.sort_values("start_us")
    rows["end_us"] = rows.groupby(keys).end_us.cummax()
    covered_us = rows.groupby(keys).end_us.shift(fill_value=-np.inf)
    rows["start_us"] = rows.start_us.clip(lower=covered_us)
    return rows.assign(dur_us=rows.end_us - rows.start_us)


def busy_until(activities: pd.DataFrame, times: ArrayLike) -> np.ndarray:
    """For how many microseconds before each time did at least one of the activities run?"""
    rows = _merged(activities.assign(one=1), ["one"])
    done_us = rows.dur_us.cumsum()
    edges = np.ravel([rows.start_us, rows.end_us], "F")
    busy_us = np.ravel([done_us - rows.dur_us, done_us], "F")
    times = np.asarray(times, dtype=float)
    return np.interp(times, edges, busy_us) if len(edges) else np.zeros(times.shape)


def busy_time(activities: pd.DataFrame) -> float:
    """For how many microseconds did at least one of the activities run?"""
    return float(busy_until(activities, np.inf))


def read_trace(path: Path | str, limit_mib: int | None = None, needs_gpu: bool = True) -> Trace:
    """Read a Kineto trace of any origin, .json or .json.gz.

    limit_mib: how much a gzip may unpack to. Raises TraceError, one sentence naming file and
    cause, for what is no such trace or, unless needs_gpu is False, holds no GPU activity.
    """
    return Trace(**read_tables(path, limit_mib, needs_gpu), path=Path(path))
