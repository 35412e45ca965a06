"""Do the numbers of traces say what the same steps take without the profiler?

trace_report/AGAINST_TIMINGS.md holds every recorded trace whose lesson also timed the same step:
python -m tests.trace_report.test_against_timings  writes the table; what follows from it is
written by hand.
"""

import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from course.paths import ROOT
from course.recordings.recording import find_recording
from trace_report.trace import read_trace
from trace_report.units import in_words, percent
from trace_report.verdict import CPU_BOUND, SLOWED, bound_of_verdict

TABLE = ROOT / "trace_report/AGAINST_TIMINGS.md"
# a lesson, and the value that holds its times: {trace: variant}
TIMED = {
    ("start_here", "timings"): {"eager": "eager", "whole_step_graph": "whole-step graph"},
    ("profile_eager_training", "workload_times"): {
        "eager": "batch of 640",
        "large_batch": "batch of 32,768",
        "slow_loader": "slow loader",
        "loss_read": "loss read",
    },
    ("capture_training_step", "timings"): {"eager": "eager", "whole_step": "whole-step graph"},
    ("make_graphed_callables", "timings"): {"eager_callables": "eager", "callables": "graphed"},
    ("graph_part_of_model", "fixed_timings"): {
        "eager": "eager",
        "block2_as_published": "as published",
        "block2_fixed": "fixed",
    },
    ("graph_part_of_model", "part_timings"): {
        f"part_{name}": name for name in ("eager", "block2", "whole_model", "whole_step")
    },
    ("reach_floor", "first_timings"): {"first_eager": "eager", "first_graph": "graph of ten steps"},
    ("reach_floor", "timings"): {f"variant{number}": number for number in range(8)},
    ("graph_megatron", "by_width/512"): {"width_512": "eager"},
    ("graph_megatron", "by_width/2048"): {"width_2048": "eager"},
    ("graph_megatron", "by_width/4096"): {"width_4096": "eager"},
    ("let_torch_compile_capture", "rounds"): {name: name for name in ("eager", "reduce-overhead")},
    ("train_language_model", "timings"): {
        name.replace(" ", "_"): name
        for name in ("4x16 eager", "4x16 graph", "1x64 eager", "1x64 graph")
    },
    ("decode_language_model", "timings"): {
        name: name for name in ("graph", "short-cache", "compiled-graph")
    },
}
STEPS = {"reach_floor": 10}  # timed steps in one of the trace


def medians(recording, value):
    """The median times of each variant, from a recorded value, or from one of several in it."""
    name, _, key = value.partition("/")
    rounds = recording.value(name)[key] if key else recording.value(name)
    if "variant" not in rounds:  # nobody has timed the host
        rounds = rounds.assign(variant="the step", host_us=np.nan)
    return rounds.groupby("variant", sort=False)[["host_us", "step_us"]].median()


@cache
def rows():
    """Each trace and its timing: lesson, trace, step and host by trace and by timing, GPU busy,
    GPU-bound or CPU-bound by the timing, the trace's verdict, and timed steps in one of the trace.
    """
    found = []
    for (lesson, value), names in TIMED.items():
        recording, steps = find_recording(lesson), STEPS.get(lesson, 1)
        times = medians(recording, value)
        for name, variant in names.items():
            timed = times.iloc[variant] if variant not in times.index else times.loc[variant]
            trace = read_trace(recording.trace(name))
            s = trace.summary() / steps
            idle = max(0.0, 1 - s.gpu_busy_us / timed.step_us)
            limit = "CPU-bound" if idle >= CPU_BOUND else "GPU-bound"
            found.append((lesson, name, s, timed, idle, limit, trace.verdict(), steps))
    return found


def slowed():
    """By how much the profiler slows each step, by lesson/trace, the largest ratio first."""
    ratios = {
        f"{lesson}/{name}": s.step_us / timed.step_us for lesson, name, s, timed, *_ in rows()
    }
    return dict(sorted(ratios.items(), key=lambda one: -one[1]))


def written():
    """The head and the table of AGAINST_TIMINGS.md; its conclusions stand below."""
    lines = [
        "# Traces against timings",
        "",
        "Each recorded trace (H200) of which the lesson also timed the same step without the "
        "profiler, per step: what the trace says, and what the timing says. The table is written "
        "by `python -m tests.trace_report.test_against_timings`.",
        "",
        "| trace | step, traced | timed | ratio | GPU busy | idle, traced | timed "
        "| host, traced | timed | the trace says | the timing says |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---|---|",
    ]
    for lesson, name, s, timed, idle, limit, verdict, steps in rows():
        ratio = f"{s.step_us / timed.step_us:.2f}"
        step = [in_words(s.step_us), in_words(timed.step_us), ratio, in_words(s.gpu_busy_us)]
        idle_shares = [percent(s.idle_share * steps), percent(idle)]
        host = [in_words(s.host_issue_us), in_words(timed.host_us)]
        limits = [bound_of_verdict(verdict) or "undecided", limit]
        cells = [f"{lesson}/{name}", *step, *idle_shares, *host, *limits]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def test_the_table_is_what_the_traces_say():
    command = "python -m tests.trace_report.test_against_timings"
    assert TABLE.read_text().startswith(written()), f"write it again: {command}"


def test_the_conclusions_are_about_the_undecided_rows_and_the_largest_ratios():
    text = TABLE.read_text().removeprefix(written())
    undecided = [
        f"`{lesson}/{name}`"
        for lesson, name, *_, verdict, _ in rows()
        if not bound_of_verdict(verdict)
    ]
    largest = [f"`{name}`, {ratio:.2f}" for name, ratio in [*slowed().items()][:5]]
    assert re.findall(r"^- (`.*?`(?:, [\d.]+)?):", text, re.MULTILINE) == [*undecided, *largest]


def test_no_trace_says_the_opposite_of_a_timing():
    said = [(bound_of_verdict(verdict), limit) for *_, limit, verdict, _ in rows()]
    assert len(said) == 39
    assert [both for both in said if both[0] not in (None, both[1])] == []
    assert sum(bounded is None for bounded, _ in said) <= 3


def test_the_profiler_slows_few_steps_beyond_the_limit_and_these_idle_far_beyond_it():
    ratios = slowed()
    beyond = {name for name, ratio in ratios.items() if ratio > SLOWED}
    assert len(beyond) <= 3
    for lesson, name, s, _, _, _, verdict, steps in rows():
        holds_up_to = (1 - CPU_BOUND) / (1 - s.idle_share * steps)
        if bound_of_verdict(verdict) == "CPU-bound":
            assert ratios[f"{lesson}/{name}"] < holds_up_to
        if f"{lesson}/{name}" in beyond:
            assert holds_up_to > 2 * SLOWED


def test_the_traced_host_time_is_at_least_the_timed_one():
    """But for the step that reads its loss: its timing counts the wait, which the trace tells."""
    for _, name, s, timed, *_ in rows():
        if name != "loss_read":
            assert s.host_issue_us >= timed.host_us or np.isnan(timed.host_us), name


@pytest.mark.parametrize(
    ("lesson", "name"),
    [
        ("let_torch_compile_capture", "last"),
        ("start_here", "whole_step_graph"),
        ("start_here", "eager"),
        ("reach_floor", "variant7"),
    ],
)
def test_one_step_of_a_trace_does_not_say_the_opposite_of_all(lesson, name):
    """The first step of a graph's trace is cold, and takes the host three times as long."""
    trace = read_trace(find_recording(lesson).trace(name))
    tables = {
        kind: rows[rows.step == 0]
        for kind, rows in vars(trace).items()
        if kind not in ("path", "steps")
    }
    first = replace(trace, steps=trace.steps[:1], **tables)
    assert bound_of_verdict(first.verdict()) in (None, bound_of_verdict(trace.verdict()))


if __name__ == "__main__":
    conclusions = TABLE.read_text().partition("**Undecided**")
    TABLE.write_text("\n".join([written(), "".join(conclusions[1:])]))
