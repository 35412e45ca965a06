"""Ranks end with their cell, with their kernel, and after their limit."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from course import ranks
from course.paths import ROOT
from tests.support.machine import wait_for

# as torchrun's tree is: a launcher, and a rank in a session of its own
RANK = "import os, signal; print('rank', os.getpid(), flush=True); signal.pause()"
LAUNCHER = f"""
import os, signal, subprocess, sys
own = os.environ | {{"TORCHELASTIC_RUN_ID": "none"}}
subprocess.Popen([sys.executable, "-c", {RANK!r}], env=own, start_new_session=True)
signal.pause()
"""
KERNEL = f"""
import subprocess, sys
from types import SimpleNamespace
from course import ranks
shell = SimpleNamespace(events=SimpleNamespace(register=lambda *_: None))
ranks.TICK = 0.05
ranks.start_watcher(shell, float(sys.argv[1]))
command = [sys.executable, "-c", {LAUNCHER!r}, "torch.distributed.run"]
print("launcher", subprocess.Popen(command).pid, flush=True)
sys.stdin.readline()
"""


def runs(process):
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture
def kernel():
    """Start a kernel whose cell waits for a launcher, which has started a rank."""
    started = []

    def kernel(limit=0):
        command = [sys.executable, "-c", KERNEL, str(limit)]
        unmarked = {name: value for name, value in os.environ.items() if name != ranks.MARK}
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        process = subprocess.Popen(command, cwd=ROOT, env=unmarked, text=True, **pipes)
        started.append(process.pid)
        return process

    yield kernel
    ranks.send_signal(signal.SIGKILL, started)


def number_of(kind, kernel):
    """The number of the launcher or of the rank, as that kernel's output says it."""
    line = next(line for line in kernel.stdout if line.startswith(kind))
    return int(line.split()[1])


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, None])
def test_ranks_end_with_the_kernel_however_it_ends(kernel, number):
    process = kernel()
    rank = number_of("rank", process)
    assert runs(rank)
    if number:
        process.send_signal(number)
    else:
        process.stdin.close()
    process.wait()
    wait_for(lambda: not runs(rank))


def test_ranks_that_share_a_gpu_end_after_their_limit(kernel):
    process = kernel(limit=0.2)
    launcher = number_of("launcher", process)
    wait_for(lambda: not runs(launcher))
    assert process.poll() is None
    assert process.stderr.readline().startswith("Ranks that share a GPU were ended after 0.2 s")


def test_a_cell_ends_its_ranks_and_nothing_else(monkeypatch):
    monkeypatch.setenv(ranks.MARK, "a-test")
    start = [sys.executable, "-c", RANK]
    other, rank = (
        subprocess.Popen(start, stdout=subprocess.PIPE, env=os.environ | own)
        for own in ({}, {"TORCHELASTIC_RUN_ID": "none"})
    )
    for process in (other, rank):
        process.stdout.readline()
    ranks.end_ranks()
    assert rank.wait() == -signal.SIGKILL and other.poll() is None
    ranks.kill_marked("a-test")
    assert other.wait() == -signal.SIGKILL


def test_without_a_live_lesson_a_cells_end_ends_nothing(monkeypatch):
    monkeypatch.delenv(ranks.MARK, raising=False)
    monkeypatch.setattr(ranks, "kill_marked", lambda *_: pytest.fail("looks for ranks"))
    ranks.end_ranks()
