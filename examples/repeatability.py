"""Does a step repeat its bits? And if it does not, which of its operators does not?"""

from collections import Counter
from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode  # private: in torch 2.11 and 2.15


class KeepOutputs(TorchDispatchMode):
    """Within this mode a capture keeps the output of every operator, in memory that nothing reuses.

        with KeepOutputs() as outputs:
            replay = capture_step(step)
        count_first_to_differ(replay, outputs)

    outputs.kept is a list of (operator's name, tensor), in the order of the capture. Operators that
    return views or write in place are left out: they own no output.
    """

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[tuple[str, Tensor]] = []

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        output = operator(*args, **(kwargs or {}))
        owns_output = not operator.is_view and not operator._schema.is_mutable
        if owns_output and torch.cuda.is_current_stream_capturing():
            first = output[0] if isinstance(output, tuple) else output
            self.kept.append((str(operator), first))
        return output


def count_first_to_differ(
    replay: Callable[[], object], outputs: KeepOutputs, times: int = 50
) -> dict[str, int]:
    """How often, in so many pairs of replays, each operator was the first whose output differed.

    The step must leave its inputs as they are.
    """
    found = Counter()
    for _ in range(times):
        replay()
        before = [output.clone() for _, output in outputs.kept]
        replay()
        for (name, output), earlier in zip(outputs.kept, before, strict=True):
            if not torch.equal(output, earlier):
                found[name] += 1
                break
    return dict(found)


def differing_runs(step: Callable[[], Tensor], times: int = 100) -> int:
    """How many of so many runs of a step, from one state, do not return the first run's bits."""
    first = step().clone()
    differences = [(step() != first).any() for _ in range(times)]
    return int(torch.stack(differences).sum())
