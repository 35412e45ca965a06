"""What an answer changes for the whole process ends with its run, or it is told to restart."""

import gc
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, TextIO

import torch

from exercises.answers.limits import AnswerStopped


def _replace_environ(variables: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(variables)


SETTINGS = (  # how Python and torch read and set what holds for the whole process
    (os.getcwd, os.chdir),
    (os.environ.copy, _replace_environ),
    (gc.isenabled, lambda enabled: gc.enable() if enabled else gc.disable()),
    (sys.getrecursionlimit, sys.setrecursionlimit),
    (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.is_grad_enabled, torch.set_grad_enabled),
    (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    (torch.get_num_threads, torch.set_num_threads),
)
PATCHED = (torch, torch.Tensor, torch.nn.Module, torch.nn.functional, torch.optim.Optimizer)
RESTART = "restart the kernel and run the lesson's cells again"


@contextmanager
def undo_side_effects() -> Iterator[None]:
    """Put settings and functions of torch back after the block, and let nothing in it close the
    notebook's streams.

    Raises Stopped, a sentence, for what cannot be put back. A process that the block forked ends.
    """
    process, threads = os.getpid(), set(threading.enumerate())
    before = [get() for get, _ in SETTINGS]
    functions = [dict(vars(owner)) for owner in PATCHED]
    inference = torch.is_inference_mode_enabled()
    try:
        with (
            redirect_stdout(_UncloseableStream(sys.stdout)),
            redirect_stderr(_UncloseableStream(sys.stderr)),
        ):  # type: ignore[type-var]
            yield
    finally:
        if os.getpid() != process:
            os._exit(1)
        for (get, put), value in zip(SETTINGS, before, strict=True):
            if get() != value:
                put(value)
        for owner, known in zip(PATCHED, functions, strict=True):
            for name, function in known.items():
                if callable(function) and vars(owner).get(name) is not function:
                    setattr(owner, name, function)
            for name in vars(owner).keys() - known.keys():
                if hasattr(getattr(owner, "__base__", None), name):  # it hides an inherited one
                    delattr(owner, name)
    if torch.is_inference_mode_enabled() != inference:
        raise AnswerStopped(f"it enters torch.inference_mode and never leaves it: {RESTART}.")
    if set(filter(_runs_notebook_code, threading.enumerate())) - threads:
        raise AnswerStopped(f"a thread that it started still runs: end it, then {RESTART}.")


def _runs_notebook_code(thread: threading.Thread) -> bool:
    """Whether a thread runs the notebook's code, and not a library's alone."""
    frame = sys._current_frames().get(thread.ident or 0)  # described, for all its name
    while frame is not None:
        if frame.f_globals.get("__name__") == "__main__":
            return True
        frame = frame.f_back
    return False


class _UncloseableStream:
    """A stream that stays open."""

    def __init__(self, stream: TextIO):
        self._stream = stream

    def close(self) -> None:
        """Only flush."""
        self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
