import gzip
import json
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
from conftest import event, kernel, launch, needs_gpu, step
from hypothesis import given
from hypothesis import strategies as st

from course.notebooks import REFERENCE_GPU, TRACES
from helpers.kineto import TraceError
from helpers.trace import busy_time, main, read_trace


def test_a_kernel_belongs_to_the_launch_with_its_correlation_id_not_to_one_it_overlaps(write_trace):
    trace = read_trace(
        write_trace(step(0, 0, 100), launch(10, 1), launch(20, 2), kernel(30, 5, 2), kernel(36, 5, 1), launch(35, 3))
    )
    assert dict(zip(trace.gpu.correlation, trace.gpu.launch_us, strict=True)) == {2: 20, 1: 10}


def test_driver_launches_count_like_runtime_launches(write_trace):
    trace = read_trace(
        write_trace(
            step(0, 0, 100),
            launch(10, 1),
            launch(20, 2, "cuLaunchKernelEx", "cuda_driver"),
            kernel(30, 5, 1),
            kernel(40, 5, 2),
        )
    )
    assert trace.summary().launches == 2
    assert trace.summary().kernels == 2
    assert trace.summary().orphans == 0


def test_all_kernels_of_a_replay_share_its_launch(write_trace):
    replay = launch(10, 9, "cudaGraphLaunch")
    trace = read_trace(write_trace(step(0, 0, 20), replay, kernel(30, 5, 9), kernel(40, 5, 9), kernel(50, 5, 9)))
    summary = trace.summary()
    assert (summary.launches, summary.graph_launches, summary.kernels, summary.gpu_busy_us) == (1, 1, 3, 15)
    assert trace.gpu.graph.all()


def test_activities_launched_before_the_trace_are_orphans_and_in_no_step(write_trace):
    trace = read_trace(write_trace(step(0, 0, 100), kernel(1, 50, 77), launch(60, 1), kernel(70, 10, 1)))
    assert trace.summary().orphans == 1
    assert trace.summary().gpu_busy_us == 10


def test_a_step_owns_what_it_launched_even_if_it_runs_later(write_trace):
    trace = read_trace(
        write_trace(
            step(0, 0, 10),
            step(1, 10, 10),
            launch(5, 1),
            launch(15, 2),
            kernel(30, 7, 1),
            kernel(40, 9, 2),
            launch(25, 3),
        )
    )
    assert list(trace.per_step().gpu_busy_us) == [7, 9]
    assert list(trace.launches.step) == [0, 1, -1]


def test_waiting_is_not_issuing(write_trace):
    wait = event("cuda_runtime", "cudaDeviceSynchronize", 40, 50)
    trace = read_trace(write_trace(step(0, 0, 100), launch(10, 1), kernel(20, 60, 1), wait))
    assert trace.summary()[["host_issue_us", "wait_us"]].tolist() == [50, 50]


def test_annotations_on_the_gpu_are_no_busy_time(write_trace):
    gap = event("gpu_user_annotation", "forward", 20, 70, stream=7, device=0)
    trace = read_trace(write_trace(step(0, 0, 100), launch(10, 1), kernel(20, 5, 1), gap))
    assert trace.summary().gpu_busy_us == 5


def test_without_step_marks_the_trace_is_one_step(write_trace):
    trace = read_trace(write_trace(event("cpu_op", "aten::add", 0, 50), launch(10, 1), kernel(20, 20, 1)))
    assert trace.summary().steps == 1
    assert trace.summary().step_us == 50


def test_a_synchronising_copy_and_a_host_callback_are_told_from_launches(write_trace):
    callback = launch(30, 5, "cudaLaunchHostFunc")
    trace = read_trace(write_trace(step(0, 0, 100), launch(10, 1), callback, kernel(20, 5, 1)))
    assert list(trace.launches.name) == ["cudaLaunchKernel"]


@pytest.mark.parametrize("idle, bound", [(5, "GPU-bound"), (60, "CPU-bound")])
def test_the_verdict_says_what_limits_and_what_a_graph_could_save(write_trace, idle, bound):
    trace = read_trace(write_trace(step(0, 0, 100), launch(1, 1), kernel(idle, 100 - idle, 1)))
    assert trace.verdict().startswith(bound)
    assert f"at most {idle} us" in trace.verdict()


intervals = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 30)), min_size=1)


@given(intervals)
def test_busy_time_is_the_union_of_the_intervals(spans):
    rows = pd.DataFrame(
        [(float(start), float(start + length), 0) for start, length in spans], columns=["start_us", "end_us", "device"]
    )
    covered = {tick for start, length in spans for tick in range(start, start + length)}
    assert busy_time(rows) == len(covered)


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=30), st.randoms())
def test_every_activity_is_joined_to_its_launch_whatever_the_order(tmp_path_factory, plan, random):
    """plan: per launch how many kernels it started, and whether through the driver API."""
    events, expected = [step(0, 0, 10**6)], {}
    for number, (kernels, driver) in enumerate(plan):
        events.append(
            launch(
                number * 10,
                number,
                "cuLaunchKernel" if driver else "cudaGraphLaunch",
                "cuda_driver" if driver else "cuda_runtime",
            )
        )
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
    trace, content = read_trace(recorded_trace), json.loads(gzip.decompress(recorded_trace.read_bytes()))
    kernels = [e for e in content["traceEvents"] if e.get("cat") == "kernel"]
    summary = trace.summary()
    assert summary.steps == 7
    assert (trace.gpu.kind == "kernel").sum() == len(kernels)
    assert summary.orphans == 0
    assert summary.gpu_busy_us * 7 == pytest.approx(
        sum(e["dur"] for e in content["traceEvents"] if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")),
        rel=1e-3,
    )
    assert summary.graph_launches == ("graph" in recorded_trace.name)


@pytest.mark.parametrize("suffix", ["json", "json.gz"])
def test_gzip_is_told_by_content_not_by_name(write_trace, suffix):
    path = write_trace(step(0, 0, 9), launch(1, 1), kernel(2, 3, 1), name=f"trace.{suffix}")
    renamed = path.rename(path.with_name("renamed"))
    assert read_trace(renamed).summary().gpu_busy_us == 3


def broken(kind, tmp_path, recorded):
    path = tmp_path / f"{kind}.json.gz"
    cpu_only = {"traceEvents": [event("cpu_op", "aten::add", 0, 5)]}
    content = {
        "truncated": recorded.read_bytes()[:5000],
        "text": b"this is no trace\n",
        "half": gzip.decompress(recorded.read_bytes())[:5000],
        "binary": bytes(range(256)),
        "no events": b'{"loss": 1.0}',
        "empty": b'{"traceEvents": []}',
        "odd": b'{"traceEvents": [{"ph": "X", "cat": "kernel"}]}',
        "cpu only": json.dumps(cpu_only).encode(),
    }
    if kind == "directory":
        path.mkdir()
    elif kind != "missing":
        path.write_bytes(content[kind])
    return path


KINDS = ["truncated", "text", "half", "binary", "no events", "empty", "odd", "cpu only", "directory", "missing"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_trace_gets_one_sentence_naming_the_file(kind, tmp_path, recorded_trace, capsys):
    path = broken(kind, tmp_path, recorded_trace)
    with pytest.raises(TraceError):
        read_trace(path)
    assert main([str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1 and str(path) in err and err.endswith(".\n")


def test_the_command_prints_a_summary_and_a_verdict(recorded_trace):
    command = [sys.executable, "-m", "helpers.trace", recorded_trace]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "gpu_busy_us" in answer.stdout
    assert answer.stdout.strip().splitlines()[-1].startswith(("CPU-bound", "GPU-bound"))


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak memory from /proc")
def test_a_200_mb_trace_is_read_in_less_than_1500_mb(tmp_path):
    recorded = TRACES / REFERENCE_GPU / "start_here" / "eager.json.gz"
    events = json.loads(gzip.decompress(recorded.read_bytes()))["traceEvents"]
    text = ",".join(json.dumps(e) for e in events if e.get("cat") != "user_annotation")
    copies = int(200e6 / len(text)) + 1
    path = tmp_path / "big.json"
    path.write_text('{"traceEvents": [' + ",".join([text] * copies) + "]}")
    # not getrusage: its peak is inherited from the process that forked
    peak = "print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])"
    script = f"from helpers.trace import main; assert main(['{path}']) == 0; {peak}"
    start = time.perf_counter()
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    *summary, peak_kib = answer.stdout.splitlines()
    print(f"{path.stat().st_size / 1e6:.0f} MB in {time.perf_counter() - start:.1f} s, {int(peak_kib) / 1e3:.0f} MB")
    kernels = sum(e.get("cat") == "kernel" for e in events) * copies
    assert f"kernels {kernels:.2f}" in [" ".join(line.split()) for line in summary]
    assert int(peak_kib) < 1.5e6


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
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], acc_events=True) as profiler:
        for _ in range(5):
            training_step(model, optimizer, *batch)
        synchronize()
    trace = read_trace(save_trace(profiler, tmp_path / "trace.json.gz"))
    events = [e for e in profiler.key_averages() if e.device_type == DeviceType.CUDA and not e.is_user_annotation]
    assert trace.summary().gpu_busy_us == pytest.approx(sum(e.self_device_time_total for e in events), rel=1e-3)
