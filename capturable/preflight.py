"""preflight: run a step eagerly, and name what would keep a CUDA graph from capturing or replaying it.

    findings = preflight(step, inputs, targets, other_inputs=(inputs_2, targets_2))

operators, bookkeeping, streams and listening see what runs; rules judges it; restore puts everything back;
truth asks a real capture.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch

from capturable.check import Check
from capturable.findings import Findings
from capturable.real_capture import verified
from capturable.restore import Restore


def preflight(
    step: Callable,
    *inputs: Any,
    other_inputs: tuple | None = None,
    generators: Iterable[torch.Generator] = (),
    device: str | None = None,
    verify: bool = False,
) -> Findings:
    """Find what would break, or freeze, when step(*inputs) is captured.

    inputs: what the graph will read; other_inputs: a tuple like it, another batch, to see what
    changes from step to step. generators: torch.Generators that you will register with the graph.
    device: the type that counts as the GPU, by default "cuda" where there is one, else "cpu".
    verify: ask a real capture in the end, and replay it against eager, with both batches.
    The step runs three times, eagerly, and once more on a GPU. Then weights, .grad, optimizer, random state
    and Python values are what they were, to the bit (iterators and files excepted), or NotRestored is raised;
    the copies take memory. Only the path that ran was seen. What the step raises comes through;
    ValueError if other_inputs are not as many as the inputs, or to verify without a GPU.
    """
    check = Check(generators, device)
    if verify and check.gpu != "cuda":
        raise ValueError("verify=True needs a CUDA GPU")
    others = inputs if other_inputs is None else tuple(other_inputs)
    with Restore(step, inputs) as restore:
        check.written = restore.written
        check.watch([place for place, _ in restore.places])
        check.run(partial(step, *inputs), judged=False)  # optimizers make their state in their first step
        first = check.run(partial(step, *inputs))
        same = check.put(inputs, others)
        check.compare(first, check.run(partial(step, *inputs)))
        if check.gpu == "cuda":
            check.run_plainly(partial(step, *inputs))
    check.look_back(restore, first)
    findings = check.findings()
    return verified(step, inputs, others if same else inputs, generators, findings) if verify else findings
