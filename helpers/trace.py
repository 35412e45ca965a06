"""Read profiler traces: who issued what, and when was the GPU busy?

A GPU activity belongs to the launch with its correlation id, never to one that merely overlaps it:
all kernels of a graph replay carry the id of their cudaGraphLaunch. Launches are looked for in the
runtime and the driver API. gpu_user_annotation spans gaps, so it is no busy time.

    python -m helpers.trace FILE        per-step summary and a verdict
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from helpers.kineto import TraceError, read_tables


@dataclass
class Trace:
    """A trace as tables. Times are in microseconds from the trace's first event.

    Every table has name, start_us, dur_us, end_us and step, the index of the step that the event
    (for gpu: its launch) belongs to, or -1.
      steps: one row per ProfilerStep; without such marks, one row for the whole trace
      cpu_ops, annotations: operators and record_function ranges, with process and thread
      launches: API calls that give the GPU work, with correlation and graph (a cudaGraphLaunch?)
      waits: API calls in which the host waits for the GPU, such as cudaDeviceSynchronize
      gpu: kernels, copies and memsets, with kind, device, stream, correlation, launch_us (when it
           was launched), graph and orphan (launched before the trace began: belongs to no step)
    """

    path: Path
    steps: pd.DataFrame
    cpu_ops: pd.DataFrame
    annotations: pd.DataFrame
    launches: pd.DataFrame
    waits: pd.DataFrame
    gpu: pd.DataFrame

    def per_step(self):
        """Host and GPU per step, a row each; microseconds and counts.

        host_issue_us is the step's span on the host less its waiting, under the profiler.
        """
        count, own = self.steps.index.rename("step"), self.gpu[self.gpu.step >= 0]
        main = self.waits[self.waits.thread.isin(self.steps.thread)]
        wait_us = main.groupby("step").dur_us.sum().reindex(count, fill_value=0.0)

        def counted(table):
            return table.groupby("step").size().reindex(count, fill_value=0)

        return pd.DataFrame(
            {
                "host_issue_us": self.steps.dur_us - wait_us,
                "wait_us": wait_us,
                "gpu_busy_us": own.groupby("step").apply(busy_time).reindex(count, fill_value=0.0),
                "launches": counted(self.launches),
                "graph_launches": counted(self.launches[self.launches.graph]),
                "kernels": counted(own[own.kind == "kernel"]),
                "copies_and_memsets": counted(own[own.kind != "kernel"]),
            }
        )

    def summary(self):
        """Per-step averages over the trace, and what they say together, as a Series.

        step_us is the traced time per step until the last own GPU activity ended. The profiler
        slows the host, so idle_share is an upper bound; measure() times steps without it.
        """
        own = self.gpu[self.gpu.step >= 0]
        means = self.per_step().mean()
        end = max(self.steps.end_us.max(), own.end_us.max())
        step_us = (end - self.steps.start_us.min()) / len(self.steps)
        extra = {"step_us": step_us, "idle_share": 1 - busy_time(own) / len(self.steps) / step_us}
        counts = {"steps": len(self.steps), "orphans": self.gpu.orphan.sum()}
        return pd.concat([means, pd.Series(extra), pd.Series(counts)])

    def verdict(self):
        """One sentence: is the CPU or the GPU the limit, and what could a graph save at most?

        GPU-bound means idle for less than 20% under the profiler, which slows only the CPU.
        """
        if not (self.gpu.step >= 0).any():
            return "No GPU activity was launched inside a step: nothing to judge."
        s = self.summary()
        limit = "GPU-bound" if s.idle_share < 0.2 else "CPU-bound"
        idle = f"the GPU is idle for {s.idle_share:.0%} of a traced step of {s.step_us:.0f} us"
        saved = f"{s.step_us * s.idle_share:.0f} us ({1 / (1 - s.idle_share):.1f}x)"
        return f"{limit}: {idle}, so a graph of the whole step could save at most {saved}."


def busy_time(activities):
    """Microseconds in which at least one of the activities (start_us, end_us, device) ran.

    The union of the intervals on each device, averaged over the devices.
    """
    total = 0.0
    for _, rows in activities.sort_values("start_us").groupby("device", dropna=False):
        covered = rows.end_us.cummax().shift(fill_value=float("-inf"))
        total += (rows.end_us - rows.start_us.clip(lower=covered)).clip(lower=0).sum()
    return total / max(1, activities.device.nunique(dropna=False))


def read_trace(path):
    """Read a Kineto trace, .json or .json.gz, of any origin into a Trace.

    Raises TraceError, one sentence, for what is no such trace or holds no GPU activity.
    """
    return Trace(Path(path), **read_tables(path))


def main(arguments):
    """Print the summary of one trace; returns the exit status."""
    if len(arguments) != 1:
        print("usage: python -m helpers.trace FILE", file=sys.stderr)
        return 2
    try:
        trace = read_trace(arguments[0])
    except TraceError as error:
        print(error, file=sys.stderr)
        return 2
    print(trace.summary().to_string(float_format="{:.2f}".format))
    print(trace.verdict())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
