"""watch: preflight for a training loop of somebody else's, such as a Trainer's.

with watch() as findings:
    trainer.train()
print(findings)
"""

import warnings
import weakref
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook

from capturable.check import Check
from capturable.findings import Findings
from capturable.live_objects import live
from capturable.operators import address
from capturable.restore.reachable import reach
from capturable.rules import judge_module, judge_optimizer

STEPS = 3  # one to warm up, two to compare


@contextmanager
def watch(
    optimizer: Any = None, *, generators: Iterable[torch.Generator] = (), device: str | None = None
) -> Iterator[Findings]:
    """Judge two real steps of the loop that runs inside; nothing is run again, and nothing put back.

    A step is what runs from the first forward pass of a module in training mode to the end of
    optimizer.step(); with gradient accumulation the loading of later batches lies in it, too.
    optimizer: the one whose steps count, by default the first that steps (wrappers of Accelerate are seen
    through). generators, device: as for preflight. The findings are there after the block; a RuntimeWarning
    says so if the loop ended before its third step.
    """
    findings, watcher = Findings(), _Watcher(optimizer, Check(generators, device))
    hooks = [register_module_forward_pre_hook(watcher.begin), register_optimizer_step_post_hook(watcher.end)]
    try:
        yield findings
    finally:
        watcher.stack.close()
        for hook in hooks:
            hook.remove()
    if watcher.steps < STEPS:
        warnings.warn(f"watch saw {watcher.steps} steps, and needs {STEPS}", RuntimeWarning, stacklevel=3)
    findings += watcher.check.findings()


class _Watcher:
    """Logs the second and third step."""

    def __init__(self, optimizer: Any, check: Check) -> None:
        self.optimizer = getattr(optimizer, "optimizer", optimizer)
        self.check, self.stack, self.steps, self.log, self.runs = check, ExitStack(), 0, None, []
        self.results, self.kept = [], set()  # tensors that a step has made, and where those lie that are kept

    def begin(self, module: torch.nn.Module, _: Any) -> None:
        """A forward pass begins."""
        if self.steps in range(1, STEPS) and self.log is None and module.training:
            if not self.check.places:
                self.check.watch(reach(module, self.optimizer))
            alive = (result() for result in self.results)
            self.kept = {address(tensor) for tensor in alive if tensor is not None}
            self.log, _ = self.check.start(self.stack)
            for fault in judge_module(module):  # the others' hooks are seen when they run
                self.check.note(*fault)

    def end(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        """An optimizer has stepped."""
        if self.optimizer is None:
            self.optimizer = optimizer
        if optimizer is not self.optimizer:
            return
        self.steps += 1
        if self.log is not None:
            for fault in judge_optimizer(optimizer):
                self.check.note(*fault)
            self.stack.close()
            self.runs.append(self.log.ops)
            if len(self.runs) == 2:
                self.check.compare(*self.runs, self.kept)
            made = self.log.made
            self.results = [weakref.ref(tensor) for tensor in live(torch.Tensor) if address(tensor) in made]
            self.log = None
