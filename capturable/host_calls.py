"""Listening: what a step does beside operators, such as synchronising, opening files or stepping an optimizer."""

import builtins
import io
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_pre_hook

from capturable.rules import judge_module, judge_optimizer
from capturable.user_lines import TORCH, here

HOST_CALLS = [
    *((owner, name, "sync") for owner in (torch.cuda.Stream, torch.cuda.Event) for name in ("synchronize", "query")),
    *((torch.Tensor, name, "sync") for name in ("tolist", "numpy", "cpu", "__array__")),
    (torch.cuda, "synchronize", "sync"),
    *((owner, "manual_seed", "seeding") for owner in (torch, torch.cuda)),
    *((owner, "open", "CPU work") for owner in (builtins, io)),
    (builtins, "print", "CPU work"),
]
SYNC_WARNING = "called a synchronizing CUDA operation"


@contextmanager
def listening(gpu: str, note: Callable) -> Iterator[None]:
    """Call note(rule, what was found) for host calls, optimizers and modules that would break or freeze.

    gpu: the device type that counts as the GPU. Everything that is patched is put back on leaving.
    """
    with ExitStack() as stack:
        for owner, name, rule in HOST_CALLS:
            stack.enter_context(patch.object(owner, name, _noting(getattr(owner, name), rule, gpu, note)))
        for register, judge in (
            (register_optimizer_step_pre_hook, judge_optimizer),
            (register_module_forward_pre_hook, judge_module),
        ):
            stack.callback(register(_judging(judge, note)).remove)
        if gpu == "cuda":
            stack.enter_context(_sync_warnings(note))
        yield


def _noting(call, rule, gpu, note):
    """The call, with a finding ahead of it; what torch opens or prints for itself is none."""

    def noting(*args, **kwargs):
        on_cpu = bool(args) and isinstance(args[0], torch.Tensor) and args[0].device.type != gpu
        torchs_own = rule == "CPU work" and here(None).library not in ("", "serialization.py")
        if not on_cpu and not torchs_own:
            note(rule, f"{call.__name__}() is called")
        return call(*args, **kwargs)

    return noting


@contextmanager
def as_if_capturing() -> Iterator[None]:
    """Code that asks whether it is being captured is told so, torch's own apart, which would object."""
    asked = torch.cuda.is_current_stream_capturing

    def capturing():
        return asked() if sys._getframe(1).f_code.co_filename.startswith(TORCH) else True

    with patch.object(torch.cuda, "is_current_stream_capturing", capturing):
        yield


def _judging(judge, note):
    def hook(thing, *_):
        for rule, what in judge(thing):
            note(rule, what)

    return hook


@contextmanager
def _sync_warnings(note):
    """Note every wait that torch's own debug mode sees, unless that line has a finding already."""
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        others = warnings.showwarning

        def show(message, *details, **more):
            if SYNC_WARNING in str(message):
                note("sync", "the CPU waits for the GPU", only_if_new=True)
            else:
                others(message, *details, **more)

        warnings.filterwarnings("ignore", message=".*debug mode is a prototype")
        warnings.filterwarnings("always", message=SYNC_WARNING)
        torch.cuda.set_sync_debug_mode("warn")
        warnings.showwarning = show
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode(before)
