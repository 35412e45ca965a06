"""Scenarios: compiled code in a graph. Each raises Wrong with the symptom it finds."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch import nn

from course.answers.graph_use import Wrong, close, copied, use
from course.scenarios.common import TRAINED, draw_batches, losses_of, perceptron
from cpu_graph.graphs import CUDAGraph

OWN_GRAPHS = ("reduce-overhead", "max-autotune")  # modes that capture by themselves


class Compiled(nn.Module):
    """What torch.compile gives, as a capture sees it: its
    first call compiles, and some modes replay graphs.

    function: a function or module; on the stand-in it runs as it is,
    on a GPU compiled. seen: gets one entry for each call in a capture.
    """

    def __init__(self, function: Callable, seen: list, real: Callable, options: dict[str, Any]):
        super().__init__()
        self.function = function if CUDAGraph.stand_in else real(function, **options)
        self.seen = seen
        self.mode = options.get("mode")
        self.called = False

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The function's result. Raises Wrong for a call that a capture would refuse."""
        if torch.cuda.is_current_stream_capturing():
            torch.zeros(1, device="cuda")  # a graph that is refused shall not be called empty, too
            if self.mode in OWN_GRAPHS:
                raise Wrong(
                    f'mode="{self.mode}" replays graphs of its own, and a capture refuses that: '
                    "use another."
                )
            if not self.called:
                raise Wrong("The capture is the first call, and so it compiles: warm up before it.")
            self.seen.append(self)
        self.called = True
        return self.function(*args, **kwargs)


@contextmanager
def compiling() -> Iterator[list]:
    """torch.compile gives a Compiled in the block; gives the list of their calls in captures."""
    seen, real = [], torch.compile

    def compile(function: Callable | None = None, **options: Any) -> Callable:
        return (
            partial(compile, **options)
            if function is None
            else Compiled(function, seen, real, options)
        )

    with patch.object(torch, "compile", compile):
        yield seen


def sgd(parameters: Any) -> torch.optim.Optimizer:
    """SGD without a memory."""
    return torch.optim.SGD(parameters, lr=0.1)


def graph_compiled(answer: Callable) -> None:
    """A network of two layers, trained on five batches."""
    net, batches = perceptron(nn.Tanh()), draw_batches(5)
    before, expected = copied(net.state_dict()), losses_of(net, sgd, batches)
    first_again = losses_of(net, sgd, batches[:1] * 5)
    with compiling() as seen:
        train = answer(net, sgd(net.parameters()), *copied(batches[0]))
        if not close(net.state_dict(), before):
            raise Wrong(TRAINED)
        used = use(train, batches)
    used.replays(graphs=5, operators=15)
    if not seen:
        raise Wrong(
            "The graph holds eager kernels: nothing that torch.compile gives was called in the "
            "capture."
        )
    used.gives(
        expected,
        {
            "Every step trains on the first batch: copy the new one into the static "
            "input.": first_again
        },
    )
