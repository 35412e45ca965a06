"""What the numbers of a trace say: is GPU or CPU the limit, and what could a graph save at most?"""

import pandas as pd

from trace_report.units import format_number, in_words

CPU_BOUND = 0.2  # a step is CPU-bound if the GPU idles for this share of it or more, else GPU-bound
LOADER_BOUND = 0.5  # it waits for data if more of the idle time than this is before launches
SLOWED = 1.7  # so much longer do nearly all steps take under the profiler: AGAINST_TIMINGS.md
COLD_US = 1500  # the first step of a recorded trace takes the host up to 1,300 µs longer
RECORD = 7  # so many steps make a good trace
SHORTEST_US = 0.001  # a trace counts whole nanoseconds


def verdict(s: pd.Series) -> str:
    """The verdict on a sound trace, from its summary."""
    if refused := _unusable_steps_reason(s) or _one_step_reason(s) or _undecided_reason(s):
        return f"No verdict: {refused}"
    return f"{'; '.join([_headline(s), *_remarks(s)])}. {_advice(s)}"


def _unusable_steps_reason(s):
    if not s.marked:
        return (
            "the trace has no steps, so call profiler.step() after each one. For the whole trace, "
            f"{in_words(s.step_us)}, the GPU is idle for {s.idle_share:.0%}."
        )
    if s.gpu_busy_us < SHORTEST_US:
        if s.kernels + s.copies_and_memsets:
            return "the GPU activities of the steps have no length."
        return "no GPU activity was launched inside a step."
    if s.step_us < 1:
        return f"a step of {s.step_us:.2g} µs is too short to judge."
    return ""


def _one_step_reason(s):
    """A single step begins with an idle GPU: what is certain all the same decides."""
    if s.steady_steps or s.idle_share < CPU_BOUND:
        return ""
    python_us = s.host_issue_us - s.launch_calls_us - COLD_US  # no later step is shorter
    if 1 - s.gpu_busy_us / max(python_us, s.gpu_busy_us) >= CPU_BOUND:
        return ""
    return (
        "only one step gave the GPU work, and it begins with an idle GPU: record more, "
        f"{RECORD} or so, with schedule(..., active={RECORD})."
    )


def _undecided_reason(s):
    """Why a sound trace does not say which of CPU and GPU is the limit; "" where it does."""
    anywhere, collective = s.any_busy_us / s.step_us, s.collective_us / s.step_us
    of = f"of a traced step of {in_words(s.step_us)}"
    idle = s.idle_share >= CPU_BOUND
    if s.gpus > 1 and idle and _bound_by_idle_share(1 - anywhere) != "CPU-bound":
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
    outside, orphan = s.outside_us / s.step_us, s.orphan_us / s.step_us
    if _bound_by_idle_share(s.idle_share + outside) != _bound_by_idle_share(s.idle_share):
        return (
            f"for {outside:.0%} {of} the GPU works only on launches from outside the steps: call "
            "profiler.step() after each step, and record nothing else."
        )
    if _bound_by_idle_share(s.idle_share - orphan) != _bound_by_idle_share(s.idle_share):
        return (
            f"for {orphan:.0%} {of} the GPU works only on launches that the trace does not hold: "
            "call torch.cuda.synchronize() before the first recorded step."
        )
    if not _bound_by_idle_share(s.idle_share):
        return (
            f"the GPU is idle for {s.idle_share:.0%} {of}, but the profiler slows the host, and "
            f"without it may be idle for less than {CPU_BOUND:.0%}: time the step without the "
            "profiler."
        )
    return ""


def _bound_by_idle_share(idle_share):
    """CPU-bound or GPU-bound; "" where a step without the profiler may be the other."""
    if idle_share < CPU_BOUND:
        return "GPU-bound"
    return "CPU-bound" if 1 - SLOWED * (1 - idle_share) >= CPU_BOUND else ""


def _headline(s):
    limit = "CPU-bound" if s.idle_share >= CPU_BOUND else "GPU-bound"
    gpu = "the GPU" if s.gpus == 1 else f"the busiest of {s.gpus:.0f} GPUs"
    return (
        f"{limit}: {gpu} is idle for {s.idle_share:.0%} of a traced step of {in_words(s.step_us)}"
    )


def _waits_for_data(s):
    return s.loader_share > LOADER_BOUND  # less may be the step's own Python


def _remarks(s):
    """What one should know of the numbers."""
    if s.outside_us > 0.01 * s.step_us:
        share = s.outside_us / s.step_us
        yield f"for {share:.0%} it works only on launches from outside the steps"
    if s.collective_us > 0.01 * s.step_us:
        share = s.collective_us / s.step_us
        yield f"for {share:.0%} it runs only NCCL kernels, which may be waiting for another rank"
    if _waits_for_data(s):
        share = f"{s.loader_share:.0%} of the idle time"
        yield f"{share} is before the step's first launch, as when it waits for data"
    if s.pause_us > 0.1 * s.step_us:
        pause = f"pauses between the steps take another {in_words(s.pause_us)} per step"
        yield f"{pause}, which a graph of the step does not change"
    if not s.steady_steps:
        yield f"the only step includes the start of an idle GPU, so record {RECORD} for its time"
    else:
        yield f"the first of {s.steps:.0f} steps is left out, because it starts with an idle GPU"


def _advice(s):
    if s.graph_kernels > 0.9:
        graphs = f"{format_number(s.graph_launches)} launched per step"
        return f"Its kernels come from graphs already, {graphs}."
    waits = s.loader_share if _waits_for_data(s) else 0
    saved_us = s.idle_share * s.step_us * (1 - waits)
    times = s.step_us / max(s.step_us - saved_us, SHORTEST_US)
    most = f"{in_words(saved_us)} ({f'{times:.1f}' if times < 100 else 'over 100'}x)"
    graph = "A graph" if s.graph_launches else "No graph was launched in these steps; one"
    return f"{graph} of the whole step could save at most {most}."


def bound_of_verdict(verdict: str) -> str | None:
    """CPU-bound or GPU-bound, as a verdict begins; None if there is no verdict."""
    limit = verdict.partition(":")[0]
    return None if limit == "No verdict" else limit
