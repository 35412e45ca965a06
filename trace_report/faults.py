"""Why the averages of a trace would mean nothing: what is missing, and clocks that are off."""

import numpy as np
import pandas as pd

from trace_report.trace_file import GIVES_WORK, explain_no_gpu, name_matches

CLOCK_US = 1  # how far the clocks of CPU and GPU may be apart: older traces count whole µs
DEVICE_WAITS = ".*(?:Device|Ctx|Context)Synchronize"


def find_fault(
    steps: pd.DataFrame,
    launches: pd.DataFrame,
    waits: pd.DataFrame,
    gpu: pd.DataFrame,
    marked: bool,
) -> str:
    """A sentence on why a trace with these tables says nothing; "" for a sound one."""
    if gpu.empty:
        return f"{explain_no_gpu(launches)}."
    return (
        _process_fault(steps if marked else launches, "steps" if marked else "launches")
        or _merge_fault(launches, gpu)
        or _overlap_fault(steps)
        or _lost_kernel_fault(launches, gpu)
        or _unknown_device_fault(gpu)
        or _clock_fault(steps, waits, gpu)
    )


def _process_fault(rows, what):
    processes = rows.process.nunique()
    if processes < 2:
        return ""
    return (
        f"the file holds {what} of {processes} processes, whose step numbers and correlation ids "
        "collide: read the trace of each process by itself."
    )


def _merge_fault(launches, gpu):
    ids = launches.correlation
    if not ids[(ids > 0) & ids.isin(gpu.correlation)].duplicated().any():
        return ""
    return (
        "several launches have the same correlation id, as where traces were merged: "
        "read the trace of each process by itself."
    )


def _overlap_fault(steps):
    overlap_us = steps.end_us.cummax().shift() - steps.start_us
    if not overlap_us.max() > CLOCK_US:
        return ""
    name, threads = steps.name[overlap_us.idxmax()], steps.thread.nunique()
    where = f" (there are marks on {threads} threads)" if threads > 1 else ""
    return f"the steps overlap: {name} begins before an earlier one has ended{where}."


def _lost_kernel_fault(launches, gpu):
    """Launches of the steps without any activity: each graph has one, and each kernel."""
    calls = launches[(launches.step >= 0) & name_matches(launches, GIVES_WORK)]
    lost = calls[~calls.correlation.isin(gpu.correlation)]
    if lost.empty:
        return ""
    what, of = "kernel launches", len(calls)
    if lost.graph.any():
        what, of = "graph launches", calls.graph.sum()
        lost = lost[lost.graph]
    return (
        f"{len(lost)} of the steps' {of} {what} have no kernel in the trace, because CUPTI, which "
        "records kernels, has lost or not seen them: record fewer steps, with no other profiler "
        "running."
    )


def _unknown_device_fault(gpu):
    devices = gpu.device[gpu.step >= 0]
    if devices.nunique() < 2 or not (devices < 0).any():
        return ""
    return (
        f"{(devices < 0).sum()} GPU activities do not say on which of "
        f"{devices[devices >= 0].nunique()} GPUs they ran."
    )


def _clock_fault(steps, waits, gpu):
    """A sentence if GPU work begins before its launch, or ends after a wait for it."""
    what = "begin before their own launch"
    by_us = gpu.launch_us - gpu.start_us
    if not by_us.max() > CLOCK_US:
        what = "end after the host has waited for them"
        by_us = _end_after_wait_us(steps, waits, gpu)
    if not by_us.max() > CLOCK_US:
        return ""
    return (
        f"{(by_us > CLOCK_US).sum()} of {len(gpu)} GPU activities {what}, by up to "
        f"{by_us.max():.0f} µs: the GPU's clock is off, so nobody can tell when the GPU was idle."
    )


def _end_after_wait_us(steps, waits, gpu):
    """By how much each GPU activity ends after a wait that began when it had been launched.

    Where all run on one stream, a wait for a stream is one for them. With several GPUs nothing is
    known, as a wait may be for another one.
    """
    own = gpu[gpu.step >= 0]
    one_stream = len(own[["device", "stream"]].drop_duplicates()) == 1
    pattern = ".*(?:Stream|Device|Ctx|Context)Synchronize" if one_stream else DEVICE_WAITS
    waits = waits[name_matches(waits, pattern) & waits.process.isin(steps.process)]
    waits = waits.sort_values("start_us")
    if waits.empty or own.device.nunique() > 1:
        return pd.Series(dtype=float)
    at = waits.start_us.searchsorted(own.launched_us)
    over_us = np.append(waits.end_us[::-1].cummin()[::-1], np.inf)[at]
    return own.end_us - over_us
