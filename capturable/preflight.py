"""preflight: run a step eagerly, and name what would keep a CUDA graph from capturing or replaying
it.

    findings = preflight(step, inputs, targets, other_inputs=(inputs_2, targets_2))

operators, host_calls, streams and python_state see what runs; judge says which rule it breaks;
restore puts everything back; real_capture asks a real capture.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch

from capturable.check import StepCheck
from capturable.cpu_as_gpu import capturable_optimizers
from capturable.findings import Findings
from capturable.graphs_inside import GRAPHED, functions_with_graphs
from capturable.ignored_findings import without_ignored
from capturable.inputs import Call, compare
from capturable.live_objects import live_objects
from capturable.real_capture import verified
from capturable.restore import Restore
from capturable.restore.reachable import reach
from capturable.stand_in import unreported

DDP_WARMUP = 3  # DistributedDataParallel rebuilds its buckets after its second pass


@unreported()
def preflight(
    step: Callable,
    *inputs: Any,
    kwargs: Mapping[str, Any] | None = None,
    other_inputs: tuple | None = None,
    other_kwargs: Mapping[str, Any] | None = None,
    generators: Iterable[torch.Generator] = (),
    device: str | None = None,
    verify: bool | None = None,
    warmup: int | None = None,
) -> Findings:
    """Find what would break, or freeze, when step(*inputs, **kwargs) is captured.

    inputs, kwargs: what the graph will read; other_inputs, other_kwargs: another batch of the same
    form, to see what changes from step to step. generators: torch.Generators that you will register
    with the graph. device: the type that counts as the GPU, by default "cuda" where there is one,
    else "cpu". verify: ask a real capture in the end, and replay it against eager, with both
    batches; on the stand-in for CUDA graphs that is done unless it is False, and adds findings, but
    takes none back. warmup: how often the step runs before it is judged; by default once,
    three times with DistributedDataParallel. The step then runs twice, eagerly, a third time on a
    GPU, and once more where code asks whether it is being captured. Then weights, .grad, optimizer,
    random state and Python values are what they were, to the bit (iterators and files excepted), or
    NotRestored is raised; the copies take memory. Only the path that ran was seen. What the step
    raises comes through; ValueError if other_inputs are not as many as the inputs, or to verify
    without a GPU.
    """
    check = StepCheck(generators, device)
    if verify and check.gpu != "cuda" and check.stand_in is None:
        raise ValueError("verify=True needs a CUDA GPU")
    static = Call(inputs, dict(kwargs or {}))
    real = Call(
        inputs if other_inputs is None else tuple(other_inputs),
        static.kwargs if other_kwargs is None else dict(other_kwargs),
    )
    check.report.given = other_inputs is not None or other_kwargs is not None
    places = reach(step)
    if any(setting == GRAPHED for _, setting in functions_with_graphs(places, step)):
        check.judge_reached_code(step, places)  # what replays write could not be put back
        return check.findings()
    with _allow_capturable_on_cpu(check), Restore(step, static) as restore:
        check.written = restore.keep_before_write
        check.watch_places([place for place, _ in restore.places])
        first, again = _run_twice_and_judge(check, step, static, real, _warmup_count(warmup))
        if check.gpu == "cuda":
            check.run_watching_host_calls(again)
    check.held.clear()
    check.judge_kept_graphs(restore, first)
    findings = check.findings()
    if verify is False or not (verify or check.stand_in is not None):
        return findings
    check.report.verified = check.stand_in is None
    fits = not any(finding.rule == "inputs" for finding in findings)
    final = check.stand_in is None
    other = real if fits else static
    return without_ignored(verified(step, static, other, generators, findings, final))


def _run_twice_and_judge(
    check: StepCheck, step: Callable, static: Call, real: Call, warmup: int
) -> tuple[list, Callable]:
    """Run the step warmup times, then twice, judged and compared; the first run's operators, and
    the last call."""
    once = partial(step, *static.args, **static.kwargs)
    found = compare(static, real)
    check.judge_copy_targets(static)
    for _ in range(warmup):
        check.run_logged(once, judged=False)  # optimizers make their state in their first step
        check.watch_new_places(reach(step, static))
    first = check.run_logged(once)
    check.watch_new_places(reach(step, static))
    values, call = check.copy_batch_into_inputs(static, real, found)
    again = partial(step, *call.args, **call.kwargs)
    second = check.run_logged(again)
    check.judge_python_inputs(values, check.compare(first, second))
    check.judge_reached_code(step, reach(step))
    check.judge_copy_targets(static)  # as the step has left it
    uncaptured = partial(check.run_logged, again, judged=False, capturing=False)
    check.judge_capture_checks(second, uncaptured)
    return first, again


def _warmup_count(asked: int | None) -> int:
    if asked is not None:
        return max(0, asked)
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return 1
    return DDP_WARMUP if live_objects(torch.nn.parallel.DistributedDataParallel) else 1


def _allow_capturable_on_cpu(check: StepCheck) -> Any:
    return capturable_optimizers() if check.report.device == "cpu" else nullcontext()
