"""Host calls: what a step does besides operators, such as synchronising, opening files or
stepping an optimizer."""

import builtins
import io
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_pre_hook

from capturable.cpu_as_gpu import replaced_everywhere
from capturable.judge import judge_module
from capturable.user_lines import TORCH, here

HOST_CALLS = [
    *((torch.Tensor, name, "sync") for name in ("tolist", "numpy", "cpu", "__array__")),
    (torch.Tensor, "__repr__", "sync"),  # in which torch switches its modes off
    (torch.cuda, "synchronize", "sync"),
    *((owner, "manual_seed", "seeding") for owner in (torch, torch.cuda)),
    *((owner, "open", "CPU work") for owner in (builtins, io)),
    (builtins, "print", "CPU work"),
]
SYNC_WARNING = "called a synchronizing CUDA operation"  # of torch's sync debug mode
FLEX_UNCOMPILED = "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG"
PRINTING = "_tensor_str.py"  # of torch
TORCHS_OWN = ("", "serialization.py")  # files of torch that open or print what the user asks for


@contextmanager
def watch_host_calls(
    gpu: str, note: Callable, is_host: Callable[[torch.Tensor], bool], stepping: Callable
) -> Iterator[None]:
    """Call note(rule, what was found) for host calls and modules that would break or freeze, and
    stepping(optimizer, ...) ahead of each step of an optimizer.

    gpu: the device type that counts as the GPU; is_host: whether a tensor on it would be on the CPU
    all the same. Everything that is patched is put back on leaving.
    """
    others = {thread.ident for thread in threading.enumerate()} - {threading.get_ident()}

    def concerns(rule: str, args: tuple) -> bool:
        """Whether a call counts: not on CPU tensors, not torch's own, not in a thread that ran
        before the step."""
        if threading.get_ident() in others:
            return False
        if args and isinstance(args[0], torch.Tensor):
            return not is_host(args[0])
        return rule != "CPU work" or here(None).library in TORCHS_OWN

    owners = torch.cuda.Stream, torch.cuda.Event  # the stand-in has classes of its own
    waits = [(owner, name, "sync") for owner in owners for name in ("synchronize", "query")]
    waits.append((torch.cuda.CUDAGraph, "replay", "graph"))
    with ExitStack() as stack:
        for owner, name, rule in HOST_CALLS + waits:
            noting = _with_finding(getattr(owner, name), rule, note, concerns)
            stack.enter_context(patch.object(owner, name, noting))
        stack.callback(register_optimizer_step_pre_hook(stepping).remove)
        stack.callback(register_module_forward_pre_hook(_module_judging_hook(note)).remove)
        stack.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("ignore", message=".*global hooks on modules")  # these hooks
        if gpu == "cuda":
            stack.enter_context(_sync_warnings(note))
        yield


def _with_finding(call: Callable, rule: str, note: Callable, concerns: Callable) -> Callable:
    """The call, with a finding ahead of it."""

    def noting(*args: Any, **kwargs: Any) -> Any:
        if concerns(rule, args):
            library = PRINTING if call.__name__ == "__repr__" else None
            note(rule, f"{call.__name__}() is called", library=library)
        return call(*args, **kwargs)

    return noting


def _module_judging_hook(note: Callable) -> Callable:
    def hook(module: torch.nn.Module, *_: Any) -> None:
        for fault in judge_module(module):
            note(fault.rule, fault.what)

    return hook


@contextmanager
def eager_control_flow() -> Iterator[None]:
    """Run torch.cond and torch.while_loop in Python, and FlexAttention uncompiled.

    They call torch.compile, which does nothing below a dispatch mode (tried on torch 2.15).
    """
    flex = sys.modules.get("torch.nn.attention.flex_attention")
    with ExitStack() as stack:
        loops = (torch.while_loop, lambda _: _while_loop)
        stack.enter_context(replaced_everywhere((torch.cond, lambda _: _cond), loops))
        if flex:
            stack.enter_context(patch.object(flex, FLEX_UNCOMPILED, True))
        yield


def _cond(pred: Any, true_fn: Callable, false_fn: Callable, operands: Any = ()) -> Any:
    return true_fn(*operands) if pred else false_fn(*operands)


def _while_loop(cond_fn: Callable, body_fn: Callable, carried_inputs: Any) -> Any:
    while cond_fn(*carried_inputs):
        carried_inputs = body_fn(*carried_inputs)
    return carried_inputs


@contextmanager
def as_if_capturing(answer: bool, asked: Callable[[], None]) -> Iterator[None]:
    """Give this answer to code that asks whether it is being captured, and call asked(); torch
    itself gets the truth.

    Torch would object: its own checks look for the capture that there is not.
    """

    def wrap(truth: Callable[[], bool]) -> Callable[[], bool]:
        def is_current_stream_capturing() -> bool:
            if sys._getframe(1).f_code.co_filename.startswith(TORCH):
                return truth()
            asked()
            return answer

        return is_current_stream_capturing

    with replaced_everywhere((torch.cuda.is_current_stream_capturing, wrap)):
        yield


@contextmanager
def _sync_warnings(note: Callable) -> Iterator[None]:
    """Note every wait that torch's own debug mode sees, unless that line has a finding already."""
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        others = warnings.showwarning

        def show(message: Any, *details: Any, **more: Any) -> None:
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
