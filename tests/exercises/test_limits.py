"""An answer that never ends, or grows without end, is stopped with a sentence."""

import gc
import itertools
import os
import resource
import signal
import sys
import threading
from pathlib import Path

import pytest
import torch

from exercises.answers import limits
from exercises.answers.leftovers import undo_side_effects
from exercises.answers.limits import AnswerStopped, limit_time_and_memory

SOON = 0.2


def endless():
    while True:
        pass


def stubborn():
    while True:
        try:
            endless()
        except Exception:
            continue


@pytest.mark.parametrize("answer", [endless, stubborn])
def test_an_answer_that_never_ends_is_stopped(answer):
    said = r"ran for more than 0.2 seconds. Does a loop never end\?"
    with pytest.raises(AnswerStopped, match=said), limit_time_and_memory(seconds=SOON):
        answer()


@pytest.mark.parametrize(
    "grow", [lambda: list(itertools.count()), lambda: bytearray(2**33)], ids=["list", "bytes"]
)
def test_an_answer_that_grows_without_end_is_stopped(grow):
    with (
        pytest.raises(AnswerStopped, match="it took more than 0.25 GiB of memory"),
        limit_time_and_memory(mib=256),
    ):
        grow()


@pytest.mark.parametrize("error", [None, ValueError])
def test_limits_end_with_the_block(error):
    def state():
        return signal.getsignal(signal.SIGALRM), resource.getrlimit(resource.RLIMIT_DATA)

    before = state()
    try:
        with limit_time_and_memory():
            assert state() != before
            if error:
                raise error
    except ValueError:
        assert error
    assert state() == before and signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_an_answer_that_cannot_be_stopped_is_told_what_helps(monkeypatch):
    monkeypatch.setattr(limits, "GRACE", 0.0)
    told = threading.Event()
    monkeypatch.setattr(limits, "print", lambda text, **_: told.set(), raising=False)
    with limit_time_and_memory(seconds=SOON):
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        assert told.wait(60)
    assert "restart the kernel" in limits.ENDLESS


DAMAGE = {
    "a method of torch": lambda: setattr(torch.Tensor, "clone", None),
    "a function of torch": lambda: setattr(torch, "no_grad", None),
    "the folder": lambda: os.chdir("/"),
    "the environment": lambda: os.environ.clear(),
    "the garbage collector": lambda: gc.disable(),
    "the limit of recursion": lambda: sys.setrecursionlimit(3000),
    "anomaly detection": lambda: torch.autograd.set_detect_anomaly(True),
}


def settings():
    yield from (torch.Tensor.clone, torch.no_grad, Path.cwd(), dict(os.environ), gc.isenabled())
    yield from (sys.getrecursionlimit(), torch.is_anomaly_enabled())


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_what_an_answer_changes_for_all_is_put_back(damage):
    before = list(settings())
    with undo_side_effects():
        damage()
        assert list(settings()) != before
    assert list(settings()) == before


def test_what_cannot_be_put_back_is_told(monkeypatch):
    inference = torch.inference_mode()
    with (
        pytest.raises(AnswerStopped, match="never leaves it: restart the kernel"),
        undo_side_effects(),
    ):
        inference.__enter__()
    inference.__exit__(None, None, None)
    monkeypatch.setitem(globals(), "__name__", "__main__")  # as a notebook's cells are
    end = threading.Event()
    with (
        pytest.raises(AnswerStopped, match="a thread that it started still runs"),
        undo_side_effects(),
    ):
        threading.Thread(target=lambda: end.wait()).start()
    end.set()


def test_a_process_that_an_answer_forks_ends_with_the_check():
    with undo_side_effects():
        child = os.fork()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
