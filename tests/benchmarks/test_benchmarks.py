"""The benchmarks' own logic, and that the originals are what their labels say."""

import gc

import pandas as pd
import pytest
import torch

from benchmarks import __main__ as command
from benchmarks import report, steps
from benchmarks.originals import DEFECT, ORIGINALS, WHOLE_STEP
from course.paths import ROOT
from helpers.model import make_batches, make_model
from helpers.trace import read_trace
from tests.support.machine import needs_gpu


@pytest.fixture
def no_dying_graphs():
    """Graphs of earlier tests must not be collected while one is captured: that breaks the
    capture.
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
    ].to_numpy().tolist() == [[50, 60], [7, 8]]


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
    found = beside_eager.loc[names[2], ["GPU busy, µs", "launches", "kernels"]].tolist()
    assert found == [90, 3, 40]
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


def test_without_a_gpu_it_says_so(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert command.main() == 2 and "need a CUDA GPU" in capsys.readouterr().err


@pytest.mark.parametrize(
    "path", sorted((ROOT / "benchmarks/results").glob("nvidia-*.md")), ids=lambda path: path.name
)
def test_the_committed_results_hold_every_loop_and_no_path_of_a_machine(path):
    text = path.read_text()
    assert all(f"| original: {name} |" in text for name in ORIGINALS)
    assert all(name in text for name in ["## Measured on", "- driver:"])
    assert "/tmp/" not in text and "/root/" not in text
