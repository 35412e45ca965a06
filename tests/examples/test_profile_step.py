"""The script that times and profiles a step, on the stand-in."""

import gzip
import json
import re
import runpy

import pytest
from torch.profiler import profile

from course.paths import ROOT
from course.recordings.recording import recorded_lesson
from cpu_graph import cpu_graphs
from helpers.trace import read_trace

SCRIPT = str(ROOT / "examples/profile_step.py")


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run the script in an empty folder; return its names and what it printed."""
    monkeypatch.chdir(tmp_path)

    def run():
        with cpu_graphs():
            names = runpy.run_path(SCRIPT, run_name="__main__")
        return names, capsys.readouterr().out

    return run


def test_it_trains_and_saves_a_trace_of_seven_steps(run):
    names, said = run()
    events = json.loads(gzip.open("trace.json.gz").read())["traceEvents"]
    steps = {event["name"] for event in events if event["name"].startswith("ProfilerStep")}
    assert len(steps) == names["STEPS"]
    assert names["optimizer"].state_dict()["state"][0]["step"] == 20 + 100 + 3 + 7
    assert re.match(r"step \d+ µs, host \d+ µs, GPU busy 0 µs: idle 100%\n", said)


@pytest.mark.parametrize("trace", ["eager", "whole_step_graph"])
def test_its_busy_time_is_that_of_the_course(run, trace, monkeypatch):
    """A recorded trace takes the place of the one that the script saves."""
    path = recorded_lesson("start_here").trace(trace)

    def save(profiler, target):
        with open(target, "wb") as file:
            file.write(path.read_bytes())

    monkeypatch.setattr(profile, "export_chrome_trace", save)
    names, _ = run()
    expected = read_trace(path).summary().gpu_busy_us
    assert names["busy_us"] == pytest.approx(expected, rel=1e-4)
