import gzip
import json
import math
import os
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course.recordings.recording import find_recording
from tests.support.machine import needs_gpu
from tests.support.processes import run_python
from tests.support.traces import event, kernel, launch, step
from trace_report.__main__ import main
from trace_report.intervals import busy_time, busy_time_until
from trace_report.trace import read_trace
from trace_report.trace_file import MIB, TraceError

NOTHING = "No verdict: no GPU activity was launched inside a step."


def test_a_step_owns_what_it_launched_even_if_it_runs_later(read_events):
    launches = [launch(5, 1), launch(15, 2), launch(25, 3)]
    work = [kernel(30, 7, 1), kernel(40, 9, 2)]
    trace = read_events(step(0, 0, 10), step(1, 10, 10), *launches, *work)
    assert list(trace.per_step().gpu_busy_us) == [7, 9]
    assert list(trace.launches.step) == [0, 1, -1]


def test_waiting_is_not_issuing(read_events):
    wait = event("cuda_runtime", "cudaDeviceSynchronize", 40, 50)
    nested = event("cuda_driver", "cuCtxSynchronize", 42, 40)
    trace = read_events(step(0, 0, 100), launch(10, 1), kernel(20, 60, 1), wait, nested)
    assert trace.summary()[["host_issue_us", "wait_us"]].tolist() == [50, 50]


def test_without_step_marks_the_trace_is_one_step(read_events):
    trace = read_events(event("cpu_op", "aten::add", 0, 50), launch(10, 1), kernel(20, 20, 1))
    assert trace.summary()[["steps", "step_us"]].tolist() == [1, 50]


def test_a_synchronising_copy_and_a_host_callback_are_told_from_launches(read_events):
    callback = launch(30, 5, "cudaLaunchHostFunc")
    trace = read_events(step(0, 0, 100), launch(10, 1), callback, kernel(20, 5, 1))
    assert list(trace.launches.name) == ["cudaLaunchKernel"]


@pytest.mark.parametrize("idle, bound", [(5, "GPU-bound"), (60, "CPU-bound")])
def test_the_verdict_says_what_limits_and_what_a_graph_could_save(read_events, idle, bound):
    events = []
    for n in range(2):
        work = kernel(100 * n + idle, 100 - idle, n)
        events += [step(n, 100 * n, 100), launch(100 * n, n), work]
    trace = read_events(*events)
    assert trace.verdict().startswith(bound)
    assert f"at most {idle} µs" in trace.verdict()


def loading(wait_us, compute_us, host=()):
    """Three steps, in each of which the GPU has nothing to do until the data are there."""
    events, whole = list(host), wait_us + compute_us
    for n in range(3):
        start = n * whole + wait_us
        operator = event("cpu_op", "aten::mm", start, 20)
        work = kernel(start + 100, compute_us - 200, n)
        events += [step(n, n * whole, whole), operator, launch(start + 5, n), work]
    return events


def test_a_wait_for_data_is_not_promised_to_a_graph(read_events):
    # a loader in the main thread has operators too
    collate = event("cpu_op", "aten::stack", 4000, 20)
    trace = read_events(*loading(9000, 1000, host=[collate]))
    assert list(trace.per_step().loader_us) == [9005, 8905 + 100, 9005]
    summary = trace.summary()
    assert summary.loader_us == 9005 and summary.loader_share == pytest.approx(9005 / 9200)
    assert "98% of the idle time is before the step's first launch" in trace.verdict()
    assert "at most 195 µs (1.0x)" in trace.verdict()


def test_the_gpu_at_work_on_the_step_before_is_not_idle_while_data_are_loaded(read_events):
    first = [step(0, 0, 100), launch(1, 1), kernel(5, 150, 1)]
    second = [step(1, 100, 100), launch(180, 2), kernel(185, 10, 2)]
    assert list(read_events(*first, *second).per_step().loader_us) == [1, 180 - 155]


def test_a_step_without_a_launch_is_all_before_its_first(read_events):
    trace = read_events(step(0, 0, 100), launch(0, 1), kernel(0, 100, 1), step(1, 100, 50))
    assert list(trace.per_step().loader_us) == [0, 50]


def two_steps(*others, busy_us=90, name="k"):
    """Of 100 µs each, in which the GPU works for so long and the host waits for 38, and others."""
    events = [*others]
    for n in range(2):
        work = kernel(100 * n + 5, busy_us, n) | {"name": name}
        wait = event("cuda_runtime", "cudaDeviceSynchronize", 100 * n + 60, 38)
        events += [step(n, 100 * n, 100), launch(100 * n + 1, n), work, wait]
    return events


def test_orphans_are_counted_and_kept_out(read_events):
    """Whatever they hide, as here that a kernel waits for another rank."""
    orphan = kernel(105, 90, 77)
    summary = read_events(*two_steps(orphan), name="a.json").summary()
    assert summary[["orphans", "orphan_us", "outside_us"]].tolist() == [1, 0, 0]
    trace = read_events(*two_steps(orphan, name="ncclDevKernel_AllReduce"))
    assert trace.summary().collective_us == 90
    assert "runs only NCCL kernels for another 90%" in trace.verdict()


@pytest.mark.parametrize(
    ("others", "why"),
    [
        ([kernel(10, 85, 77)], "for 85% .* only on launches that the trace does not hold: call"),
        ([launch(-9, 77), kernel(10, 85, 77)], "for 85% .* only on launches from outside the"),
    ],
)
def test_work_of_no_step_decides_nothing(read_events, others, why):
    assert re.search(why, read_events(*two_steps(*others, busy_us=1)).verdict())


def test_copies_alone_come_from_no_graph(read_events):
    copies = [one | {"cat": one["cat"].replace("kernel", "gpu_memcpy")} for one in two_steps()]
    assert "No graph was launched" in read_events(*copies).verdict()


def test_what_is_less_than_a_hundredth_of_a_step_is_not_said(read_events):
    short = [launch(-9, 77), launch(-8, 78), kernel(96, 0.5, 77), kernel(97, 0.5, 78)]
    short[3]["name"] = "ncclDevKernel"
    summary = (trace := read_events(*two_steps(*short))).summary()
    assert (summary.outside_us, summary.collective_us) == (1, 0.5)
    assert trace.verdict().startswith(
        "GPU-bound: the GPU is idle for 9% of a traced step of 100 µs; the"
    )


@pytest.mark.parametrize("device", [-1, -7.5, float("inf"), float("nan")])
def test_a_device_that_cannot_be_is_the_only_one(read_events, device):
    events = two_steps()
    events[2]["args"]["device"] = device
    assert read_events(*events).verdict().startswith("GPU-bound: the GPU is idle for 10%")


def test_a_step_that_is_a_graph_is_not_told_to_use_one(read_events):
    events = []
    for n in range(2):
        replay = launch(100 * n + 10, n, "cudaGraphLaunch")
        kernels = [kernel(100 * n + at, 5, n) for at in (30, 40)]
        events += [step(n, 100 * n, 100), replay, *kernels]
    trace = read_events(*events)
    assert trace.verdict().endswith("kernels come from graphs already, 1 launched per step.")
    assert "could save" not in trace.verdict()


def test_what_runs_in_two_steps_at_once_counts_once(read_events):
    steps = [step(0, 0, 100), step(1, 100, 100)]
    trace = read_events(
        *steps, launch(10, 1), launch(110, 2), kernel(50, 100, 1), kernel(120, 60, 2)
    )
    summary = trace.summary()
    assert list(trace.per_step().gpu_busy_us) == [100, 60]
    assert summary.gpu_busy_us == 30 == summary.step_us * (1 - summary.idle_share)


def test_without_gpu_work_in_a_step_there_is_a_summary_and_nothing_to_judge(read_events):
    trace = read_events(step(0, 0, 10), launch(50, 1), kernel(60, 5, 1))
    assert trace.summary().gpu_busy_us == 0 and np.isfinite(trace.summary()).all()
    assert trace.verdict() == NOTHING


def test_host_time_is_split_into_launch_calls_waiting_and_everything_else(read_events):
    """Autograd's thread launches as well; two calls at once count once."""
    backward = launch(50, 2) | {"tid": 2, "dur": 20}
    nested = launch(55, 3, "cuLaunchKernel", "cuda_driver") | {"tid": 2, "dur": 10}
    wait = event("cuda_runtime", "cudaDeviceSynchronize", 80, 15)
    kernels = [kernel(100 + i, 1, i) for i in (1, 2, 3)]
    trace = read_events(
        step(0, 0, 100), launch(10, 1) | {"dur": 5}, backward, nested, wait, *kernels
    )
    [row] = trace.split_host_time().to_dict("records")
    assert row == {"launch calls": 25, "waiting": 15, "everything else": 60}
    summary = trace.summary()
    assert summary[["launch_calls_us", "wait_us", "host_issue_us"]].tolist() == [25, 15, 85]


def test_the_recorded_eager_step_spends_most_host_time_outside_of_launches():
    trace = read_trace(find_recording("start_here").trace("eager"))
    parts, issue_us = trace.split_host_time(), trace.per_step().host_issue_us
    assert (parts.sum(axis=1) - parts.waiting).to_list() == pytest.approx(issue_us.to_list())
    assert (parts["everything else"] > parts["launch calls"]).all()
    assert (parts["launch calls"] > 0).all()


def sound(process=1, at=0, thread=1, first=0):
    """Two steps of a process, with a launch and a kernel each."""
    events = []
    for n in range(2):
        begin = at + n * 100
        work = kernel(begin + 20, 50, first + n)
        own = [step(n, begin, 100), launch(begin + 10, first + n), work]
        events += [one | {"pid": process, "tid": thread} for one in own]
    return events


def test_a_sound_trace_has_no_fault(read_events, recorded_trace):
    assert read_events(*sound()).fault() == "" == read_trace(recorded_trace).fault()


NO_KERNELS = "have no kernel in the trace, because CUPTI, which records kernels"
FAULTS = {
    "graphs without kernels": (
        [*sound(), launch(120, 9, "cudaGraphLaunch"), launch(130, 10)],
        f"1 of the steps' 1 graph launches {NO_KERNELS}",
    ),
    "launches without kernels": (
        [*sound(), launch(130, 10)],
        f"1 of the steps' 3 kernel launches {NO_KERNELS}",
    ),
    "late, one stream": (
        [*sound(), event("cuda_runtime", "cudaStreamSynchronize", 130, 10)],
        "1 of 2 GPU activities end after the host has waited for them, by up to 30 µs: the GPU's",
    ),
    "two processes": (
        [*sound(), *sound(process=2, at=7)],
        "steps of 2 processes, whose step numbers",
    ),
    "a process twice": (
        [*sound(), *sound(at=500)],
        "the same correlation id, as where traces were merged",
    ),
    "marks on two threads": (
        [*sound(), *(step(n, n * 100 + 3, 100) | {"tid": 2} for n in range(2))],
        r"the steps overlap: ProfilerStep#0 .* \(there are marks on 2 threads\)\.$",
    ),
    "a mark around all": (
        [*sound(at=10), step(9, 0, 300)],
        "the steps overlap: ProfilerStep#0 begins before",
    ),
    "clock": (
        [*sound(), launch(150, 7), kernel(120, 5, 7)],
        "1 of 3 GPU activities begin before their own launch, by up to 30 µs: the GPU's clock",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_trace_that_means_nothing_gets_a_sentence_and_no_verdict(write_trace, name, capsys):
    events, sentence = FAULTS[name]
    path = write_trace(*events)
    verdict = read_trace(path).verdict()
    assert re.search(sentence, verdict) and verdict == f"No verdict: {read_trace(path).fault()}"
    assert not re.search("bound|could save", verdict) and verdict.count(".") == 1
    assert main([str(path)]) == 0 and capsys.readouterr().out == f"trace: {verdict}\n"


def test_clocks_and_marks_may_differ_by_their_resolution(read_events):
    """Older traces count whole microseconds."""
    events = [step(0, 0, 101), step(1, 100, 100), launch(50, 1), kernel(49, 30, 1)]
    assert read_events(*events).fault() == ""


def test_an_unmarked_trace_is_promised_nothing(read_events):
    compiled = event("cpu_op", "compile", 0, 10**7)
    wait = event("cuda_runtime", "cudaDeviceSynchronize", 30, 10**6)
    trace = read_events(compiled, wait, launch(10, 1), kernel(20, 1, 1))
    assert trace.verdict() == (
        "No verdict: the trace has no steps, so call profiler.step() after each one. "
        "For the whole trace, 10 s, the GPU is idle for 100%."
    )


def test_steps_count_from_gpu_end_to_gpu_end(read_events):
    """As in the trace of a graph: the first replay waits 200 µs for the host, no other does."""
    events = []
    for n in range(4):
        begin = 0 if n == 0 else 100 + 50 * n
        end = 150 + 50 * n
        events += [step(n, begin, end - begin), launch(begin + 10, n, "cudaGraphLaunch")]
        events.append(kernel(200 + 100 * n, 90, n))
    trace = read_events(*events)
    assert trace.spans().end_us.tolist() == [390, 490, 590]
    assert trace.summary()[["step_us", "gpu_busy_us", "idle_share"]].tolist() == [100, 90, 0.1]
    said = "GPU-bound: the GPU is idle for 10% of a traced step of 100 µs; the first of 4 steps"
    assert said in trace.verdict()


def one_step(host_us, start_us, busy_us):
    return [step(0, 0, host_us), launch(start_us - 5, 1), kernel(start_us, busy_us, 1)]


@pytest.mark.parametrize(
    ("events", "begins"),
    [
        (one_step(300, 50, 900), "GPU-bound: the GPU is idle for 5%"),
        (one_step(10_000, 50, 3000), "CPU-bound: the GPU is idle for 70%"),
        (one_step(1000, 50, 300), "No verdict: only one step gave the GPU work"),
        (one_step(300, 300, 700), "No verdict: only one step gave the GPU work"),
    ],
)
def test_one_step_is_judged_where_its_start_does_not_matter(read_events, events, begins):
    verdict = read_events(*events).verdict()
    assert verdict.startswith(begins) and "record" in verdict and "7" in verdict


def test_a_launch_call_that_waits_for_room_or_for_its_copy_is_waiting(read_events):
    """The queue is full twice, for 200 µs each, and a copy waits for 150 µs."""
    calls = [launch(10 * n, n) | {"dur": 5} for n in range(1, 9)]
    calls += [launch(at, at) | {"dur": 200} for at in (100, 300)]
    calls.append(launch(510, 9, "cudaMemcpyAsync") | {"dur": 160})
    work = [kernel(20, 600, 1), kernel(620, 30, 2), kernel(650, 10, 9, category="gpu_memcpy")]
    work += [kernel(700 + n, 1, n) for n in (3, 4, 5, 6, 7, 8, 100, 300)]
    (row,) = read_events(step(0, 0, 1000), *calls, *work).split_host_time().to_dict("records")
    assert row == {"launch calls": 8 * 5 + 10, "waiting": 200 + 200 + 150, "everything else": 400}


def test_a_host_calls_own_stream_is_not_read(read_events):
    """As ROCm writes it."""
    call = event("cuda_runtime", "hipLaunchKernel", 10, 2, correlation=1, stream="0x0", device="?")
    operator = event("cpu_op", "aten::mm", 5, 9, correlation="no number")
    trace = read_events(step(0, 0, 100), operator, call, kernel(20, 5, 1))
    found = trace.summary()[["launches", "kernels", "gpu_busy_us", "orphans"]].tolist()
    assert found == [1, 1, 5, 0]


EVENTS = json.dumps([step(0, 0, 100), launch(1, 1), kernel(5, 10, 1)])
WHOLE = f'{{"schemaVersion": 1, "traceEvents": {EVENTS}}}'
READ = {
    "nested before": f'{{"a": {{"traceEvents": []}}, "traceEvents": {EVENTS}}}',
    "an array": f" {EVENTS} ",
}
REFUSED = {
    "nested only": (f'{{"a": {WHOLE}}}', "no JSON with traceEvents"),
    "two documents": (WHOLE + WHOLE, r"Extra data at character \d+"),
    "no list": ('{"traceEvents": 5}', "no JSON with traceEvents"),
    "cut off": (WHOLE[:-1], "cut off"),
    "cut in a string": (WHOLE[:40], r"\(Unterminated string starting at character \d+\)"),
    "no events": ('{"traceEvents": [null]}', "event 0 has no usable name or time: None"),
}


@pytest.mark.parametrize("name", READ)
def test_the_own_trace_events_of_a_file_are_read(tmp_path, name):
    path = tmp_path / "trace.json"
    path.write_text(READ[name])
    assert read_trace(path).summary().gpu_busy_us == 10


@pytest.mark.parametrize("name", REFUSED)
def test_no_trace_events_win_without_a_word(tmp_path, name):
    path, (text, sentence) = tmp_path / "trace.json", REFUSED[name]
    path.write_text(text)
    with pytest.raises(TraceError, match=f"cannot be read as a profiler trace: .*{sentence}"):
        read_trace(path)


intervals = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 30)), min_size=1)


@settings(deadline=None)
@given(intervals, st.integers(0, 240))
def test_busy_time_is_the_union_of_the_intervals(spans, until):
    rows = pd.DataFrame(
        [(float(start), float(start + length), 0) for start, length in spans],
        columns=["start_us", "end_us", "device"],
    )
    covered = {tick for start, length in spans for tick in range(start, start + length)}
    assert busy_time(rows) == len(covered)
    assert busy_time_until(rows, until) == len(covered & set(range(until)))


@settings(deadline=None, max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=30), st.randoms())
def test_every_activity_is_joined_to_its_launch_whatever_the_order(tmp_path_factory, plan, random):
    """plan: per launch how many kernels it started, and whether through the driver API."""
    events, expected = [step(0, 0, 10**6)], {}
    for number, (kernels, driver) in enumerate(plan):
        call = ("cuLaunchKernel", "cuda_driver") if driver else ("cudaGraphLaunch", "cuda_runtime")
        events.append(launch(number * 10, number, *call))
        events += [kernel(number * 3 + i, 1, number) for i in range(kernels)]
        expected[number] = kernels
    events.append(kernel(0, 1, -5))
    random.shuffle(events)
    path = tmp_path_factory.mktemp("joined") / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    trace = read_trace(path)
    own = trace.gpu[~trace.gpu.orphan]
    assert own.groupby("correlation").size().to_dict() == {n: k for n, k in expected.items() if k}
    assert (own.launch_us == own.correlation * 10).all()
    assert trace.gpu.orphan.sum() == 1


def test_the_recorded_traces_are_read_whole(recorded_trace):
    trace = read_trace(recorded_trace)
    content = json.loads(gzip.decompress(recorded_trace.read_bytes()))
    kernels = [e for e in content["traceEvents"] if e.get("cat") == "kernel"]
    summary = trace.summary()
    assert summary.steps == 7
    assert (trace.gpu.kind == "kernel").sum() == len(kernels)
    assert summary.orphans == 0
    on_the_gpu = ("kernel", "gpu_memcpy", "gpu_memset")
    busy_us = sum(e["dur"] for e in content["traceEvents"] if e.get("cat") in on_the_gpu)
    assert trace.per_step().gpu_busy_us.sum() == pytest.approx(busy_us, rel=1e-3)
    assert summary.graph_launches == ("graph" in recorded_trace.name)


@pytest.mark.parametrize("suffix", ["json", "json.gz"])
def test_gzip_is_told_by_content_not_by_name(write_trace, suffix):
    path = write_trace(step(0, 0, 9), launch(1, 1), kernel(2, 3, 1), name=f"trace.{suffix}")
    assert read_trace(path.rename(path.with_name("renamed"))).summary().gpu_busy_us == 3


def broken(kind, tmp_path, recorded):
    path = tmp_path / f"{kind}.json.gz"
    content = {
        "truncated": recorded.read_bytes()[:5000],
        "binary": bytes(range(256)),
        "empty": b'{"traceEvents": []}',
        "odd": b'{"traceEvents": [{"ph": "X", "cat": "kernel"}]}',
        "nothing": b"",
        "damaged": recorded.read_bytes()[:-6] + b"xx" + recorded.read_bytes()[-4:],
        "deep": b'{"traceEvents": ' + b"[" * 10**5,
        "digits": b'{"traceEvents": [{"ph": "X", "ts": ' + b"1" * 10**4 + b"}]}",
        "long name": json.dumps([event("kernel", ["x" * 10**4], 0, 1)]).encode(),
    }
    if kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind != "missing":
        path.write_bytes(content[kind])
    return path


KINDS = "truncated,binary,empty,odd,directory,missing,pipe,nothing,damaged,deep,digits"


@pytest.mark.parametrize("kind", [*KINDS.split(","), "long name"])
def test_what_is_no_trace_gets_one_sentence_naming_the_file(kind, tmp_path, recorded_trace, capsys):
    path = broken(kind, tmp_path, recorded_trace)
    with pytest.raises(TraceError):
        read_trace(path)
    assert main([str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1 and str(path) in err and err.endswith(".\n")
    assert len(err) < len(str(path)) + 300


@pytest.mark.parametrize("path", [None, 5, "", "\0", "a\nb", "/dev/zero", "x" * 5000])
def test_what_is_no_path_to_a_file_gets_one_sentence(path):
    said = r"^.{0,200} cannot be read as a profiler trace: .{5,220}\.$"
    with pytest.raises(TraceError, match=said):
        read_trace(path)


BAD = [("ts", 10**400), ("ts", math.nan), ("dur", math.inf), ("dur", -1), ("dur", 1e300)]
BAD += [("name", 5), ("tid", [1]), ("cat", ["kernel"]), ("args", {"correlation": [1]})]
BAD += [("args", {"correlation": 1, "stream": "seven"})]


@pytest.mark.parametrize("key, value", BAD)
def test_a_value_that_cannot_be_is_one_sentence(write_trace, key, value):
    path = write_trace(step(0, 0, 100), launch(1, 1), kernel(5, 10, 1) | {key: value})
    said = r"as a profiler trace: (event 2|the (correlation|stream) of an event)"
    with pytest.raises(TraceError, match=said):
        read_trace(path)


@pytest.mark.parametrize("args", [[1], "text", None, {"a": {"b": [1]}}, {"ph": "X", "name": {}}])
def test_arguments_of_any_form_are_read(read_events, args):
    trace = read_events(
        step(0, 0, 100), launch(1, 1), kernel(5, 10, 1), kernel(20, 3, 9) | {"args": args}
    )
    assert trace.summary().gpu_busy_us == 10 and trace.summary().orphans == 1


@pytest.mark.parametrize("duration", [0, 1e-300])
def test_activities_of_no_length_are_nothing_to_judge(read_events, duration):
    trace = read_events(step(0, 0, 1e15), launch(1, 1), kernel(5, duration, 1))
    assert np.isfinite(trace.summary()).all()
    assert trace.verdict() == "No verdict: the GPU activities of the steps have no length."


def test_lessons_command_prints_the_numbers_and_a_verdict(recorded_trace):
    done = run_python("-m", "helpers.trace", recorded_trace)
    *numbers, verdict = done.stdout.splitlines()
    assert done.returncode == 0 and any(line.startswith("GPU busy  ") for line in numbers)
    assert re.match(r"\w+: (CPU|GPU)-bound: the GPU is idle for", verdict)


def test_the_limit_can_be_raised(write_trace, capsys):
    path = write_trace(
        step(0, 0, 9), launch(1, 1), *[kernel(2, 3, 1)] * 20_000, name="alike.json.gz"
    )
    size = len(gzip.decompress(path.read_bytes())) // MIB
    with pytest.raises(TraceError, match="unpacks to more than 1 MiB"):
        read_trace(path, limit_mib=1)
    assert main([str(path), "--limit-mib", str(size)]) == 2
    assert main([str(path), "--limit-mib", str(size + 1)]) == 0
    assert read_trace(path, size + 1).summary().kernels == 20_000


@needs_gpu
def test_busy_time_agrees_with_torchs_own_total(tmp_path):
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    from helpers.model import make_batches, make_model, make_optimizer, training_step
    from helpers.profiling import save_trace
    from helpers.timing import synchronize

    model = make_model()
    optimizer, batch = make_optimizer(model), make_batches(1)[0]
    training_step(model, optimizer, *batch)
    synchronize()
    with profile(
        activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], acc_events=True
    ) as profiler:
        for _ in range(5):
            training_step(model, optimizer, *batch)
        synchronize()
    trace = read_trace(save_trace(profiler, tmp_path / "trace.json.gz"))
    events = [
        e
        for e in profiler.key_averages()
        if e.device_type == DeviceType.CUDA and not e.is_user_annotation
    ]
    assert trace.summary().gpu_busy_us == pytest.approx(
        sum(e.self_device_time_total for e in events), rel=1e-3
    )
