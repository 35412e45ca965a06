"""The script that times and profiles a step, on the stand-in.

The profiler's schedule runs as ever, but nothing is recorded: on a CPU it would fail to find CUDA
for every operator. A recorded trace takes the place of the one that the script saves.
"""

import re
import runpy
import shutil

import pytest
import torch
from torch.profiler import profile

from course.paths import ROOT
from course.recordings.recording import find_recording
from cpu_graph import cpu_graphs
from helpers.trace import read_trace


def test_it_profiles_seven_steps_and_reads_their_busy_time(tmp_path, monkeypatch, capsys):
    recorded = find_recording("start_here").trace("eager")
    steps, profiled = [], []
    zero_grad = torch.optim.AdamW.zero_grad

    def counted(optimizer, **options):
        steps.append(1)
        zero_grad(optimizer, **options)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.optim.AdamW, "zero_grad", counted)
    monkeypatch.setattr(profile, "prepare_trace", lambda self: None)
    monkeypatch.setattr(profile, "start_trace", lambda self: profiled.append(len(steps)))
    monkeypatch.setattr(profile, "stop_trace", lambda self: profiled.append(len(steps)))
    monkeypatch.setattr(
        profile, "export_chrome_trace", lambda self, path: shutil.copy(recorded, path)
    )
    with cpu_graphs():
        names = runpy.run_path(str(ROOT / "examples/profile_step.py"), run_name="__main__")

    start, stop = profiled
    assert start == len(steps) - names["STEPS"] and stop == len(steps)
    expected = read_trace(recorded).per_step().gpu_busy_us.mean()
    assert names["busy_us"] == pytest.approx(expected, rel=1e-4)
    said = rf"step \d+ µs, host \d+ µs, GPU busy {expected:.0f} µs"
    assert re.match(said, capsys.readouterr().out)
