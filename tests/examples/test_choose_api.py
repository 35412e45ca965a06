"""The five questions: what each reads from a trace, and where the tree leads."""

import pytest

from cpu_graph import cpu_graphs
from examples import choose_api
from examples.choose_api import MARK, advise, trace_numbers
from tests.support.traces import event, launch

BUSY = 10.0  # µs of every kernel below


def step(start, *kernels, extra=()):
    """A marked step of 100 µs that launches kernels, pairs of a name and a grid, every 10 µs."""
    yield event("user_annotation", MARK, start, 100.0)
    yield event("gpu_user_annotation", MARK, start + 10, 50.0)
    for number, (name, grid) in enumerate(kernels, 1):
        at = start + 10 * number
        yield launch(at, at)
        yield event("kernel", name, at + 5, BUSY, correlation=at, grid=grid)
    yield from extra


GEMM, ADD = ("sm90_xmma_gemm_bf16", [8, 1, 1]), ("elementwise_kernel", [4, 1, 1])


def test_a_trace_answers_the_five_questions():
    update = event("user_annotation", "Optimizer.step#AdamW.step", 35, 30.0)
    # for a loader, before the first launch
    early = event("cuda_runtime", "cudaDeviceSynchronize", 5, 1)
    events = [*step(0, GEMM, GEMM, ADD, ADD, extra=[update, early])]
    assert trace_numbers(events, step_us=200) == {
        "idle": pytest.approx(1 - 4 * BUSY / 200 - 0.1),
        "waits": 0,
        "kinds": 1,
        "optimizer": pytest.approx(30 / (3 * BUSY)),
        "other": pytest.approx(0.5),
    }


def test_a_read_between_two_launches_and_one_at_the_end_are_waits():
    read = event("cuda_runtime", "cudaStreamSynchronize", 15, 1)
    copied = event("gpu_memcpy", "Memcpy DtoH", 71, 1, correlation=70, bytes=4)
    copy = [launch(70, 70, "cudaMemcpyAsync"), copied]
    last = event("cuda_runtime", "cudaStreamSynchronize", 76, 1)  # as return loss.item() waits
    assert trace_numbers([*step(0, GEMM, ADD, extra=[read])], 200)["waits"] == 1
    assert trace_numbers([*step(0, GEMM, ADD, extra=[*copy, last])], 200)["waits"] == 1
    assert advise(trace_numbers([*step(0, GEMM, ADD, extra=[*copy, last])], 200)) == "graphed parts"


@pytest.mark.parametrize(("other", "kinds"), [(ADD, 1), (("elementwise_kernel", [5, 1, 1]), 2)])
def test_another_shape_is_another_kind_of_step(other, kinds):
    events = [*step(0, GEMM, ADD), *step(200, GEMM, other)]
    assert trace_numbers(events, 200)["kinds"] == kinds


def test_a_trace_without_gpu_work_is_refused():
    with pytest.raises(ValueError, match="no GPU work"):
        trace_numbers([*step(0)], 200)


def test_the_step_time_is_a_median_with_its_quartiles(monkeypatch):
    rounds_us = iter([300.0, 100.0, 900.0, 200.0, 400.0])
    monkeypatch.setattr(choose_api, "time_step", lambda *_: next(rounds_us))
    monkeypatch.setattr(choose_api, "trace_events", lambda *_: [*step(0, ADD)])
    found = choose_api.ask_trace(lambda batch: None, [0])
    assert (found["step_us"], found["q1"], found["q3"]) == (300, 200, 400)
    assert found["idle"] == pytest.approx(1 - BUSY / 300 - 0.1)


SEEN = {"idle": 0.8, "waits": 0, "kinds": 1, "optimizer": 1.5, "other": 0.5}


@pytest.mark.parametrize(
    ("number", "method"),
    [
        ({}, "whole-step graph, compiled"),
        ({"idle": 0.1}, "compile"),
        ({"waits": 0.2}, "graphed parts"),
        ({"kinds": 2}, "a graph for each shape"),
        ({"optimizer": 0.9}, "graph of forward and backward, compiled"),
        ({"other": 0.1}, "whole-step graph"),
        ({"optimizer": 0.9, "other": 0.1}, "graph of forward and backward"),
    ],
)
def test_each_answer_leads_to_its_method(number, method):
    assert advise(SEEN | number) == method


def test_it_runs_from_the_first_step_to_the_advice(monkeypatch, capsys):
    monkeypatch.setattr(choose_api, "trace_events", lambda *_: [*step(0, ADD)])
    with cpu_graphs():
        choose_api.main()
    said = capsys.readouterr().out
    assert said.splitlines()[-1] == "graph of forward and backward, compiled"
