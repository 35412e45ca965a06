"""Read profiler traces: who issued what, and when was the GPU busy?

A GPU activity belongs to the launch with its correlation id, in the runtime or the driver API,
never to one that merely overlaps it: all kernels of a graph replay carry the id of their
cudaGraphLaunch.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from trace_report import faults, verdict
from trace_report.intervals import busy_time_until, clip_overlaps
from trace_report.trace_file import WHOLE, name_matches, read_tables

NCCL = "nccl"  # begins the name of each kernel that communicates
LONG = 10  # a launch call that takes so many times its usual time waits for room in the queue


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
            thread does count as well. An upper bound: not every wait can be told
        wait_us: the part of the span inside calls named ...Synchronize on the step's own thread,
            nested ones once, and inside launch calls that wait for the GPU; see
            _blocked_in_launches_us
        launch_calls_us: the part of host_issue_us inside launch calls, on any thread
        loader_us: how long no GPU of the steps works before the step's first launch, as when it
            waits for a data loader
        gpu_busy_us: how long the step's busiest GPU works on what the step launched, whenever
        """
        steps, own = self.steps, self._gpu_work_of_steps()

        def total(rows, column=None):
            return np.bincount(rows.step + 1, column and rows[column], len(steps) + 1)[1:]

        waits = clip_overlaps(self.waits[self.waits.thread.isin(steps.thread)], ["step"])
        blocked_us = self._blocked_in_launches_us()
        wait_us = np.minimum(total(waits, "dur_us") + blocked_us, steps.dur_us)
        issue_us = steps.dur_us - wait_us
        # on several threads: autograd launches as well
        calls = clip_overlaps(self.launches, ["step"])
        launch_us = (total(calls, "dur_us") - blocked_us).clip(min=0)
        busy = clip_overlaps(own, ["step", "device"])
        busy = busy.groupby(["step", "device"], as_index=False).dur_us.sum()
        busy_us = busy.groupby("step").dur_us.max().reindex(steps.index, fill_value=0.0)
        columns = {
            "host_issue_us": issue_us,
            "launch_calls_us": np.minimum(launch_us, issue_us),
            "wait_us": wait_us,
            "loader_us": self._idle_before_launch_us(steps.start_us),
            "gpu_busy_us": busy_us,
            "launches": total(self.launches),
            "graph_launches": total(self.launches[self.launches.graph]),
            "kernels": total(own[own.kind == "kernel"]),
            "copies_and_memsets": total(own[own.kind != "kernel"]),
        }
        return pd.DataFrame(columns, steps.index.rename("step"))

    def _gpu_work_of_steps(self):
        """The GPU activities that the steps launched."""
        return self.gpu[self.gpu.step >= 0]

    def _on(self, devices):
        """What these devices do on launches of the trace, of a step or not."""
        return self.gpu[self.gpu.device.isin(devices) & ~self.gpu.orphan]

    def _blocked_in_launches_us(self):
        """For how long per step launch calls wait for the GPU: while it works, a copy that returns
        only when it has ended, and a call that takes LONG times as long as others of its name.
        """
        calls = self.launches[self.launches.step >= 0]
        ends = self.gpu.drop_duplicates("correlation").set_index("correlation").end_us
        ended_us = calls.correlation.map(ends.drop(np.nan, errors="ignore"))
        blocks = name_matches(calls, ".*Memcpy") & (ended_us <= calls.end_us)
        blocks |= calls.dur_us > LONG * calls.groupby("name").dur_us.transform("median")
        rows = clip_overlaps(calls[blocks], ["step"])
        busy_us = busy_time_until(self.gpu, rows.end_us) - busy_time_until(self.gpu, rows.start_us)
        return np.bincount(rows.step, busy_us, len(self.steps))

    def _idle_before_launch_us(self, begin_us):
        """How long no GPU of the steps works from these times until each step's first launch."""
        first_us = self.launches.groupby("step").start_us.min().reindex(self.steps.index)
        until_us = np.fmax(first_us.fillna(self.steps.end_us), begin_us)
        gpus = self._on(self._gpu_work_of_steps().device)
        edges = [begin_us, until_us]
        return np.diff(edges - busy_time_until(gpus, edges), axis=0)[0]

    def split_host_time(self) -> pd.DataFrame:
        """Split the host's time, a row per step, in microseconds under the profiler.

        launch calls: inside the CUDA calls that give the GPU work, on any thread; waiting: inside
        calls that wait for the GPU; everything else: Python, PyTorch's dispatcher, autograd.
        """
        steps = self.per_step()
        times = {"launch calls": steps.launch_calls_us, "waiting": steps.wait_us}
        others_us = steps.host_issue_us - steps.launch_calls_us
        return pd.DataFrame(times | {"everything else": others_us})

    def start_us(self, step: int) -> float:
        """When a step begins on the host. Raises IndexError without such a step."""
        if step not in self.steps.index:
            raise IndexError(f"the trace has steps 0 to {len(self.steps) - 1}, not {step}")
        return self.steps.start_us[step]

    def is_marked(self) -> bool:
        """Whether the trace has steps."""
        return self.steps.name[0] != WHOLE

    def spans(self) -> pd.DataFrame:
        """The steps in steady state, a row each: start_us, end_us, pause_us, resume_us.

        Each lasts from the GPU's end of the step before to its own, less a pause between the two
        marks in which neither host nor GPU works on a step. The first step with GPU work is left
        out, because it starts with an idle GPU; so are those around that launch nothing. With one
        such step, or without marks, there is one row: from its start until its GPU work has ended.
        """
        done_us = self._gpu_work_of_steps().groupby("step").end_us.max().cummax()
        if not self.is_marked() or len(done_us) < 2:
            step = self.steps.loc[done_us.index[:1] if len(done_us) else self.steps.index]
            end_us = np.fmax(step.end_us.max(), done_us.max())
            columns = {"start_us": step.start_us[:1], "end_us": end_us}
            return pd.DataFrame(columns | {"pause_us": end_us, "resume_us": end_us})
        steps = self.steps.loc[done_us.index[0] : done_us.index[-1]]
        done_us = done_us.reindex(steps.index).ffill()
        spans = pd.DataFrame({"start_us": done_us.shift(), "end_us": done_us})
        spans["pause_us"] = np.fmax(done_us, steps.end_us).shift()
        spans["resume_us"] = np.fmax(spans.pause_us, steps.start_us)
        return spans.iloc[1:]

    def summary(self) -> pd.Series:
        """Per-step averages over the trace, and what they say together; see spans, per_step.

        Counts are of all steps from the first to the last that launch something. Times are of the
        steady_steps: step_us is the traced time per step, from GPU end to GPU end; pause_us, the
        time between steps, is no part of it. In step_us the busiest of the gpus that the steps use
        works for gpu_busy_us on the steps' own launches, for outside_us on others only, and idles
        for idle_share, an upper bound, since the profiler slows the host. Orphans are no work:
        orphan_us is the part of the idle time in which one runs. any_busy_us: at least one GPU
        works. collective_us: the busiest one runs nothing but kernels of NCCL, which also run while
        they wait for another rank. loader_us makes up loader_share of the idle time. Host times are
        of the steady steps but the last, whose mark holds the profiler's stop.
        """
        spans, own = self.spans(), self._gpu_work_of_steps()
        edges = spans[["start_us", "end_us", "pause_us", "resume_us"]].to_numpy()
        used = self._on(own.device)
        gpus = [rows for _, rows in own.groupby("device")]

        def per_step(times):
            start, end, pause, resume = np.asarray(times).T
            return (end - start - (resume - pause)).mean()

        def within(activities):
            return per_step(busy_time_until(activities, edges))

        own = max(gpus, key=within, default=own)  # of the busiest
        busiest = self._on(own.device)
        every = self.gpu[self.gpu.device.isin(own.device)]
        means, launching = self._means(spans)
        step_us, work_us = per_step(edges), within(busiest)
        idle_us = max(0.0, step_us - work_us)
        kernels = own[own.kind == "kernel"]
        means["gpu_busy_us"] = within(own)  # work of two steps at once counts once
        means["any_busy_us"] = within(used)
        means["collective_us"] = work_us - within(busiest[~name_matches(busiest, NCCL)])
        means["outside_us"] = work_us - within(own)
        means["orphan_us"] = within(every) - work_us
        means["step_us"] = step_us
        means["pause_us"] = (spans.resume_us - spans.pause_us).mean()
        means["idle_share"] = idle_us / step_us if step_us else 0.0
        means["loader_share"] = min(1.0, means.loader_us / idle_us) if idle_us else 0.0
        means["graph_kernels"] = kernels.graph.mean() if len(kernels) else 0.0
        means["marked"] = float(self.is_marked())
        means["steps"] = len(launching)
        means["steady_steps"] = len(spans) if len(launching) > 1 else 0
        means["gpus"] = len(gpus)
        means["orphans"] = self.gpu.orphan.sum()
        return means

    def _means(self, spans):
        """The means of per_step, and the steps of which the counts are."""
        each = self.per_step()
        launching = each.index[each.launches > 0]
        launching = each.loc[launching[0] : launching[-1]] if len(launching) else each
        means = launching.mean()
        host = ["host_issue_us", "launch_calls_us", "wait_us"]
        means[host] = each.loc[spans.index[:-1] if len(spans) > 1 else spans.index, host].mean()
        begin_us = np.fmax(self.steps.start_us, spans.start_us.iloc[0])
        means["loader_us"] = self._idle_before_launch_us(begin_us)[spans.index].mean()
        return means, launching

    def fault(self) -> str:
        """A sentence on why the averages of this trace mean nothing; "" for a sound trace."""
        return faults.find_fault(self.steps, self.launches, self.waits, self.gpu, self.is_marked())

    def verdict(self) -> str:
        """What is the limit, GPU or CPU, and what could a graph save at most? See CPU_BOUND."""
        if fault := self.fault():
            return f"No verdict: {fault}"
        return verdict.verdict(self.summary())


def read_trace(path: Path | str, limit_mib: int | None = None, needs_gpu: bool = True) -> Trace:
    """Read a Kineto trace of any origin, .json or .json.gz.

    limit_mib: how much a gzip may unpack to. Raises TraceError, one sentence naming file and
    cause, for what is no such trace or, unless needs_gpu is False, holds no GPU activity.
    """
    return Trace(**read_tables(path, limit_mib, needs_gpu), path=Path(path))
