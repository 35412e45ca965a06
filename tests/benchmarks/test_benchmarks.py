"""The benchmarks' own logic, and that the originals are what their labels say."""

import gc
import gzip
import json
import os
import shutil
import subprocess
from importlib.util import find_spec

import pandas as pd
import pytest
import torch

from benchmarks import __main__ as command
from benchmarks import report, steps
from benchmarks.long_trace import build_trace, eager_trace
from benchmarks.originals import DEFECT, ORIGINALS, WHOLE_STEP
from benchmarks.reading import JOBS, READERS, measure_readers, read_apart
from benchmarks.starting import run_lessons, start_kernel
from course.paths import ROOT
from helpers.model import make_batches, make_model
from helpers.trace import read_trace
from tests.support.machine import needs_gpu
from tests.support.notebooks import write_notebook

WITHOUT_HTA = [name for name in READERS if not name.startswith("HTA")]


@pytest.fixture
def no_dying_graphs():
    """Graphs of earlier tests must not be collected
    while one is captured: that breaks the capture.
    """
    torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False)
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def guard(model, train):
    """Names of the parameters without a gradient, and of those that train() has not moved."""
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    train()
    after = dict(model.named_parameters())
    no_gradient = [name for name, parameter in after.items() if parameter.grad is None]
    return no_gradient, [
        name for name, parameter in after.items() if torch.equal(parameter, before[name])
    ]


def train_three(step):
    for _ in range(3):
        step()


def test_the_eager_original_trains_every_parameter_on_every_batch():
    model = make_model((8, 6, 4, 3, 2), device="cpu")
    batches = make_batches(3, batch=5, widths=(8, 6, 4, 3, 2), device="cpu")
    step = ORIGINALS["eager"](batches, model)
    assert guard(model, lambda: train_three(step)) == ([], [])
    assert step.model is model


@needs_gpu
@pytest.mark.parametrize("name", ORIGINALS)
def test_the_originals_train_what_their_labels_say(name, no_dying_graphs):
    step = ORIGINALS[name](make_batches(3), make_model())
    untrained = ["block1.0.weight", "block1.0.bias"] if name == DEFECT else []
    assert guard(step.model, lambda: train_three(step)) == (untrained, untrained)


@needs_gpu
def test_the_whole_step_by_hand_is_one_graph_and_its_copies(tmp_path, no_dying_graphs):
    from helpers.profiling import record_trace

    step = ORIGINALS[WHOLE_STEP](make_batches(3), make_model())
    summary = read_trace(record_trace(step, tmp_path / "trace.json.gz")).summary()
    assert summary.graph_launches == 1
    assert summary.launches < 10


def test_the_defect_is_labelled():
    assert DEFECT == "block2 only, as published (block1 does not train)"


def test_times_of_a_call_become_times_of_a_training_step():
    rounds = pd.DataFrame(
        {
            "round": [0, 0],
            "variant": ["one", "ten"],
            "host_us": [50.0, 70.0],
            "step_us": [60.0, 80.0],
        }
    )
    assert steps.per_training_step(rounds, {"ten": 10})[
        ["host_us", "step_us"]
    ].to_numpy().tolist() == [
        [50, 60],
        [7, 8],
    ]


def test_the_loops_are_compared_with_the_eager_one_and_with_the_originals_graph():
    names = ["original: eager", f"original: {WHOLE_STEP}", "course: whole step"]
    rows = [
        (n, name, us + n, 2 * us + n)
        for n in range(4)
        for name, us in zip(names, (800, 200, 100), strict=True)
    ]
    rounds = pd.DataFrame(rows, columns=["round", "variant", "host_us", "step_us"])
    traced = pd.DataFrame(
        {"gpu_busy_us": 90.04, "launches": 3, "kernels": 40, "steps": 7}, index=names
    )
    beside_eager, beside_whole = steps.tables(rounds, traced)
    assert list(beside_eager.index) == names
    assert (
        beside_eager.filter(like="step time vs. original: eager")
        .iloc[1, 0]
        .startswith("4.0 times faster")
    )
    assert beside_eager.loc[names[2], ["GPU busy, µs", "launches", "kernels"]].tolist() == [
        90,
        3,
        40,
    ]
    assert beside_whole.index[0] == names[1]
    assert list(beside_whole) == [
        f"{what} time vs. {names[1]}: median [quartiles]" for what in ("host", "step")
    ]


def test_a_table_is_markdown():
    frame = pd.DataFrame(
        {"us": ["5 [4, 6]", "1"], "kernels": [38.0, 3.25]}, index=["eager", "graph"]
    )
    assert report.table(frame).splitlines() == [
        "| variant | us | kernels |",
        "| --- | --- | --- |",
        "| eager | 5 [4, 6] | 38 |",
        "| graph | 1 | 3.25 |",
    ]


def test_seconds_have_their_range_and_ratios_are_taken_round_by_round():
    rows = [
        (0, "ours", 1.0, 10.4),
        (0, "other", 5.0, 20),
        (1, "ours", 2.0, 10),
        (1, "other", 4.0, 20),
    ]
    rows += [(2, "ours", 3.0, 10), (2, "other", 9.0, 21), (0, "third", 40.0, None)]
    table = report.seconds_table(
        pd.DataFrame(rows, columns=["round", "variant", "seconds", "peak MB"])
    )
    assert table.loc["ours"].tolist() == ["2 [1, 3]", "1 [1, 1]", 10]
    assert table.loc["other"].tolist() == ["5 [4, 9]", "3 [2, 5]", 20]
    assert report.table(table).splitlines()[-1] == "| third | 40 | 40 |  |"


@pytest.mark.parametrize("number", [7, 0])
def test_a_long_trace_has_its_size_its_steps_and_ids_of_its_own(tmp_path, number):
    copies = build_trace(tmp_path / "long.json.gz", 2.6e6, number)
    content = gzip.decompress((tmp_path / "long.json.gz").read_bytes())
    assert abs(len(content) - 2.6e6) < len(content) / copies, "as near as whole copies come"
    trace, recorded = read_trace(tmp_path / "long.json.gz"), read_trace(eager_trace())
    assert len(trace.steps) == (number or 7 * copies)
    assert trace.steps.name.is_unique
    assert len(trace.gpu) == copies * len(recorded.gpu) and not trace.gpu.orphan.any()
    assert trace.launches.correlation.nunique() == copies * recorded.launches.correlation.nunique()
    assert trace.per_step().gpu_busy_us.sum() == pytest.approx(
        copies * recorded.per_step().gpu_busy_us.sum(), rel=1e-3
    )
    flows = [event["id"] for event in json.loads(content)["traceEvents"] if event["ph"] == "s"]
    assert len(flows) == len(set(flows)) > copies


@pytest.mark.parametrize("names", [WITHOUT_HTA, list(READERS)], ids=["without HTA", "with HTA"])
def test_every_reader_sees_every_kernel(tmp_path, names):
    if names != WITHOUT_HTA and not find_spec("hta"):
        pytest.skip("needs HolisticTraceAnalysis, which `make bench` installs")
    build_trace(tmp_path / "trace.json.gz", 6e5, 7)
    rounds = measure_readers(tmp_path / "trace.json.gz", 2, names)
    assert list(rounds.variant) == 2 * names
    assert set(rounds.kernels) == {(read_trace(eager_trace()).gpu.kind == "kernel").sum()}
    assert (rounds.seconds > 0).all() and (rounds["peak MB"] > 5).all()


def test_a_reader_that_takes_too_long_is_stopped_and_says_so(tmp_path):
    build_trace(tmp_path / "trace.json.gz", 6e5, 7)
    assert read_apart("read_trace", tmp_path / "trace.json.gz", limit=0.01) == {
        "variant": "read_trace, stopped after 0.01 s",
        "seconds": 0.01,
    }


def test_the_large_trace_is_read_in_at_least_three_rounds():
    job = JOBS["200 MB, 7 large steps"]
    assert job.size == 200e6 and job.rounds >= 3
    assert 20_000 in [job.steps for job in JOBS.values()]


def test_a_kernel_that_fails_is_not_timed():
    assert start_kernel("pass") > 0
    with pytest.raises(RuntimeError, match="nothing_here"):
        start_kernel("import nothing_here")


def test_lessons_are_run_and_failures_seen(tmp_path):
    right, wrong = (
        write_notebook(tmp_path / f"{divisor}.ipynb", f"1 / {divisor}") for divisor in (1, 0)
    )
    lessons = run_lessons([right, wrong])
    assert lessons.passed.tolist() == [True, False]
    assert (lessons.seconds > 0).all()


@pytest.mark.parametrize("arguments, written", [([], []), (["--write"], ["cpu.md"])])
def test_without_a_gpu_nothing_is_kept_unless_asked(
    tmp_path, monkeypatch, capsys, arguments, written
):
    monkeypatch.setattr(command, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(command, "measure_and_report", lambda: "# a report\n")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    command.main(arguments)
    assert capsys.readouterr().out == "# a report\n\n"
    assert [path.name for path in tmp_path.rglob("*.md")] == written


def test_without_a_gpu_the_report_says_what_is_missing(monkeypatch):
    seconds = pd.DataFrame({"round": [0], "variant": ["a"], "seconds": [1.0]})
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(command, "measure_reading", lambda: {"small": seconds})
    monkeypatch.setattr(command, "measure_kernels", lambda: seconds)
    lessons = pd.DataFrame({"lesson": ["x", "y"], "seconds": [2.0, 1.0], "passed": [True, False]})
    monkeypatch.setattr(command, "run_lessons", lambda: lessons)
    text = command.measure_and_report()
    assert (
        "No CUDA GPU was seen here" in text
        and "1 of 2 lessons passed (failed: y)" in text
        and "Training steps" not in text
    )


@pytest.mark.parametrize(
    "path", sorted((ROOT / "benchmarks/results").glob("*.md")), ids=lambda path: path.name
)
def test_the_committed_results_hold_every_loop_and_no_path_of_a_machine(path):
    text = path.read_text()
    assert all(f"| original: {name} |" in text for name in ORIGINALS)
    assert all(name in text for name in [*READERS, "## Measured on", "- driver:", "lessons passed"])
    assert "/tmp/" not in text and "/root/" not in text


def test_make_bench_installs_the_extra_and_runs(tmp_path):
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    command = ["make", "--dry-run", "--no-print-directory", "bench", "ARGS=--write"]
    chosen = ("TORCH", "CPU", "MAKEFLAGS", "MAKEOVERRIDES")  # of the make that runs these tests
    environment = {name: value for name, value in os.environ.items() if name not in chosen}
    plan = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=True, env=environment
    ).stdout.splitlines()
    assert any("course.set_up bench" in line for line in plan[:-1])
    assert plan[-1] == ".venv/bin/python -m benchmarks --write"
