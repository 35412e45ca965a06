"""watch: preflight for a training loop of somebody else's, such as a Trainer's.

with watch() as findings:
    trainer.train()
print(findings)
"""

import warnings
import weakref
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook

from capturable.check import StepCheck
from capturable.cpu_as_gpu import capturable_optimizers
from capturable.findings import Findings
from capturable.judge import judge_module, judge_optimizer
from capturable.live_objects import live_objects
from capturable.operators import Op, OpLog, storage_address
from capturable.restore.reachable import reach

STEPS = 3  # one to warm up, two to compare


@contextmanager
def watch(
    optimizer: Any = None, *, generators: Iterable[torch.Generator] = (), device: str | None = None
) -> Iterator[Findings]:
    """Judge two real steps of the loop that runs inside; nothing is run again, and nothing put
    back.

    A step is what runs from the first forward pass of a module in training mode to the end of
    optimizer.step(); with gradient accumulation the loading of later batches is part of it, too.
    optimizer: the one whose steps count, by default the first that steps (wrappers of Accelerate
    are seen through). generators, device: as for preflight. The findings are there after the block;
    a RuntimeWarning, and the report, say so if the loop ended before its third step.
    """
    check = StepCheck(generators, device)
    check.report.given = True  # the loop's own batches
    findings = Findings(report=check.report)
    watcher = _Watcher(optimizer, check)
    hooks = [
        register_module_forward_pre_hook(watcher.on_forward_pass),
        register_optimizer_step_post_hook(watcher.on_optimizer_step),
    ]
    try:
        with capturable_optimizers() if check.gpu == "cpu" else nullcontext():
            yield findings
    finally:
        watcher.stack.close()
        for hook in hooks:
            hook.remove()
    if watcher.steps < STEPS:
        saw = f"watch saw {watcher.steps} steps, and needs {STEPS}"
        check.report.problem = f"{saw}: nothing was compared."
        warnings.warn(check.report.problem, RuntimeWarning, stacklevel=3)
    findings += check.findings()


class _Watcher:
    """Logs the second and third step."""

    def __init__(self, optimizer: Any, check: StepCheck) -> None:
        self.optimizer = getattr(optimizer, "optimizer", optimizer)
        self.check = check
        self.stack = ExitStack()
        self.steps = 0
        self.log: OpLog | None = None
        self.runs: list[list[Op]] = []
        self.results: list[weakref.ref] = []  # tensors that a step has made
        self.kept: set[int] = set()  # where those are that are kept

    def on_forward_pass(self, module: torch.nn.Module, _: Any) -> None:
        """A forward pass begins."""
        if self.steps not in range(1, STEPS) or self.log is not None or not module.training:
            return
        if not self.check.places:
            self.check.watch_places(reach(module, self.optimizer))
        alive = (result() for result in self.results)
        self.kept = {storage_address(tensor) for tensor in alive if tensor is not None}
        self.log, _ = self.check.start_logging(self.stack)
        for rule, what, _ in judge_module(module):  # the others' hooks are seen when they run
            self.check.note_here(rule, what)

    def on_optimizer_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        """An optimizer has stepped."""
        if self.optimizer is None:
            self.optimizer = optimizer
        if optimizer is not self.optimizer:
            return
        self.steps += 1
        if self.log is not None:
            self._end_of_logged(optimizer, self.log)
            self.log = None

    def _end_of_logged(self, optimizer: torch.optim.Optimizer, log: OpLog) -> None:
        for rule, what, _ in judge_optimizer(optimizer):
            self.check.note_here(rule, what)
        self.stack.close()
        self.runs.append(log.ops)
        self.check.report.runs += 1
        self.check.report.operators = len(log.ops)
        if len(self.runs) == 2:
            first, second = self.runs
            self.check.compare(first, second, self.kept)
            self.check.judge_capture_checks(second)
        self.results = [
            weakref.ref(tensor)
            for tensor in live_objects(torch.Tensor)
            if storage_address(tensor) in log.made
        ]
