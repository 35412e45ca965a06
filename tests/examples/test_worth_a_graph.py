"""The three numbers of a step, and what follows from them."""

import gzip
import json

import pytest

from course.recordings.recording import recorded_lesson
from cpu_graph import cpu_graphs
from examples import worth_a_graph
from examples.worth_a_graph import busy_us, report
from helpers.trace import read_trace


def test_busy_time_is_that_of_the_course():
    path = recorded_lesson("capture_training_step").trace("eager")
    trace = read_trace(path)
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    expected = trace.summary().gpu_busy_us
    assert busy_us(events, len(trace.steps)) == pytest.approx(expected, rel=0.01)


def test_the_report_divides_the_cost_by_the_idle_time():
    assert "worth it from about 8 steps on" in report(1800, 300, 12_000)
    assert "saves nothing" in report(300, 300, 12_000)


def test_it_runs_from_the_first_step_to_the_report(monkeypatch, capsys):
    work = [{"cat": "kernel", "dur": 1e9}, {"cat": "cpu_op", "dur": 5.0}, {"name": "no category"}]
    monkeypatch.setattr(worth_a_graph, "trace_events", lambda step: work)
    with cpu_graphs():
        worth_a_graph.main()
    assert "GPU busy 50000000 µs" in capsys.readouterr().out
