"""Scenarios: compiled code and graphs.

torch.compile compiles nothing here. What it returns notes what inductor would make of a call, and
refuses in a capture what a GPU refuses.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from cpu_graph import on_stand_in
from exercises.answers.comparison import short_repr
from exercises.answers.graph_use import call_answer
from exercises.answers.tensors import are_close, copy_tensors
from exercises.answers.wrong import EVERY_TIME_THE_FIRST, Wrong
from exercises.scenarios.common import draw_int
from exercises.scenarios.eager import draw_batches, losses_of, momentum, perceptron
from exercises.scenarios.rules import call_with_one_graph, refuse_grad, unmodified
from exercises.scenarios.warm_ups import require_no_momentum, require_untrained

OWN_GRAPHS = ("reduce-overhead", "max-autotune")  # modes that capture by themselves
MODE = ("No call gets a graph.", 'Keep mode="reduce-overhead".')


@dataclass
class CompilationNotes:
    """What happens to compiled code in a block.

    compiled: how often torch.compile was called. captured: its calls in a capture. own_graphs: its
    calls in a mode with graphs of its own. from_cpu, modified: whether such a call read a tensor on
    the CPU, or wrote to an argument.
    """

    compiled: int = 0
    captured: int = 0
    own_graphs: int = 0
    from_cpu: bool = False
    modified: bool = False


class TensorAccessRecorder(TorchFunctionMode):
    """Notes which tensors from outside a block reads, and which of them it modifies."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[int, tuple[torch.Tensor, int]] = {}
        self.made: list = []
        self.from_cpu = False

    def __torch_function__(
        self, function: Callable, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        own = {id(tensor) for tensor in self.made}
        for tensor in tree_leaves((args, kwargs)):
            if isinstance(tensor, torch.Tensor) and id(tensor) not in own:
                self.seen.setdefault(id(tensor), (tensor, tensor._version))
                self.from_cpu |= tensor.device.type == "cpu"
        result = function(*args, **(kwargs or {}))
        self.made += [leaf for leaf in tree_leaves(result) if id(leaf) not in self.seen]
        return result

    def modified(self, function: Callable) -> bool:
        """Whether a tensor was written to that may have another address in the next call; those of
        a module that is compiled have not.
        """
        own = {id(buffer) for buffer in getattr(function, "buffers", tuple)()}
        return any(
            tensor._version > before
            and id(tensor) not in own
            and not isinstance(tensor, nn.Parameter)
            and not hasattr(tensor, "_dynamo_static_input_type")
            for tensor, before in self.seen.values()
        )


class CompiledFunction:
    """What torch.compile returns for a function.

    Its first call compiles. A mode with graphs of its own is only modelled; in other modes the
    function is compiled where there is a GPU.
    """

    def __init__(self, function: Callable, notes: CompilationNotes, real: Callable, options: dict):
        self.mode = options.get("mode")
        as_it_is = self.mode in OWN_GRAPHS or on_stand_in()
        self.function = function if as_it_is else real(function, **options)
        self.notes = notes
        self.called = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function's result. Raises Wrong for a call that a capture would refuse."""
        if torch.cuda.is_current_stream_capturing():
            torch.zeros(1, device="cuda")  # a graph that is refused shall not be called empty, too
            if self.mode in OWN_GRAPHS:
                raise Wrong(
                    f'mode="{self.mode}" replays graphs of its own, and a capture refuses that.',
                    "Use a mode without graphs.",
                )
            if not self.called:
                raise Wrong(
                    "The capture contains the first call, which compiles.", "Warm up before it."
                )
            self.notes.captured += 1
        self.called = True
        if self.mode not in OWN_GRAPHS:
            return self.function(*args, **kwargs)
        self.notes.own_graphs += 1
        with TensorAccessRecorder() as inspect:
            result = self.function(*args, **kwargs)
        self.notes.from_cpu |= inspect.from_cpu
        self.notes.modified |= inspect.modified(self.function)
        return result


class CompiledModule(nn.Module):
    """What torch.compile returns for a module: a module with the same parameters."""

    def __init__(self, module: nn.Module, notes: CompilationNotes, real: Callable, options: dict):
        super().__init__()
        self._orig_mod = module
        self.compiled = CompiledFunction(module, notes, real, options)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's result. Raises Wrong for a call that a capture would refuse."""
        return self.compiled(*args, **kwargs)


@contextmanager
def compiling() -> Iterator[CompilationNotes]:
    """In the block, torch.compile and model.compile() give a CompiledFunction or -Module."""
    notes, real = CompilationNotes(), torch.compile

    def compile(function: Callable | None = None, **options: Any) -> Callable:
        if function is None:
            return partial(compile, **options)
        notes.compiled += 1
        kind = CompiledModule if isinstance(function, nn.Module) else CompiledFunction
        return kind(function, notes, real, options)

    with patch.object(torch, "compile", compile):
        yield notes


def judge_make_scaled(answer: Callable) -> None:
    """Four calls of a scaled product, which are counted."""
    size = draw_int()
    scale = torch.rand(size) + 0.5
    on_gpu = scale.to("cuda")
    before = draw_int()  # calls that were counted by somebody else
    calls = torch.full((), float(before), device="cuda")
    copies = 0
    with compiling() as notes:
        scaled = answer(scale, calls)
        for number in range(before + 1, before + 5):
            x = torch.randn(size, size, device="cuda")
            with TensorAccessRecorder() as inspect:
                result = scaled(x)
            copies += inspect.from_cpu
            if not isinstance(result, torch.Tensor):
                raise Wrong(f"scaled(x) returns {short_repr(result)}, not a tensor.")
            expected = (x @ x).relu() * on_gpu
            if calls.item() != number:
                raise Wrong(
                    f"The tensor calls holds {calls.item():g} where {number} is right.",
                    "It has to count the calls, so add 1 to this tensor in place.",
                )
            if are_close(result, expected):
                raise Wrong("The product is no longer multiplied by the number of calls.")
            if not are_close(result, expected * number):
                raise Wrong(f"The result of call {number - before} is not that of the original.")
    _require_own_graph(notes)
    if copies > 1:
        raise Wrong("Each call copies scale from the CPU again.", "Copy it once.")


def _require_own_graph(notes: CompilationNotes) -> None:
    """Raises Wrong if something keeps compiled code from getting a graph of its own."""
    if not notes.own_graphs:
        raise Wrong(MODE)
    if notes.compiled > 2:
        raise Wrong("It compiles in each call.", "Call torch.compile once.")
    if notes.from_cpu:
        raise Wrong(
            "The compiled function still reads a tensor on the CPU (cpu device), so without "
            "partitioning it gets no graph.",
            "Copy it to the GPU before the first call.",
        )
    if notes.modified:
        raise Wrong(
            "The compiled function still modifies an argument "
            "(mutated inputs), so it gets no graph.",
            "Add 1 outside of it, or mark the argument as static.",
        )


def judge_graph_compiled(answer: Callable) -> None:
    """A network of two layers, trained on five batches."""
    net, batches = perceptron(nn.Tanh()), draw_batches(5)
    expected = losses_of(net, momentum, batches)
    first_again = losses_of(net, momentum, batches[:1] * 5)
    given, optimizer = copy_tensors(batches[0]), momentum(net.parameters())
    with unmodified("inputs or targets", given, batches):
        with compiling() as notes:
            with require_untrained(net):
                train = call_with_one_graph(answer, net, optimizer, *given)
            require_no_momentum(optimizer)
            used = call_answer(train, batches)
        used.require_launches(graphs=5, operators=15)
        if not notes.captured:
            raise Wrong(
                "The graph holds eager kernels: nothing that torch.compile "
                "returned was called in the capture."
            )
        used.require_results(expected, {EVERY_TIME_THE_FIRST: first_again})
        refuse_grad(used.kept)
