"""The recipe that turns a step into one CUDA graph, and the helper that undoes its warm-up."""

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.optim import Optimizer

# optimizers whose new state is not all zeros
STARTS_ELSEWHERE = {"ASGD", "NAdam", "Rprop", "SGD with dampening"}


def capture_step(
    step: Callable,
    *static_inputs: torch.Tensor,
    warmup: int = 3,
    pool: tuple | None = None,
    generators: Iterable[torch.Generator] = (),
) -> Callable:
    """Capture step(*static_inputs) in one CUDA graph and return replay(*inputs).

    static_inputs: CUDA tensors; every replay reads these addresses. replay copies its inputs (same
    shapes and dtypes) into them, launches the graph and returns the static output, which the next
    replay overwrites: clone what you keep. replay() without inputs uses what the static inputs
    hold. pool: of another graph, to share its memory. generators: torch.Generators, in addition to
    the default one, from which step draws. The warm-up runs step for real: see unchanged.
    replay.graph is the torch.cuda.CUDAGraph. Raises what torch raises during the capture.
    Source: the "CUDA Graphs" section of docs.pytorch.org/docs/stable/notes/cuda.html.
    """
    side_stream = torch.cuda.Stream()
    side_stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side_stream):
        for _ in range(warmup):
            step(*static_inputs)
    torch.cuda.current_stream().wait_stream(side_stream)

    graph = torch.cuda.CUDAGraph()
    for generator in generators:
        graph.register_generator_state(generator)

    # If the garbage collector destroyed an older graph now, this capture would fail.
    gc_was_enabled = gc.isenabled()
    gc.disable()
    try:
        with torch.cuda.graph(graph, pool=pool):
            static_output = step(*static_inputs)
    finally:
        if gc_was_enabled:
            gc.enable()

    def replay(*inputs):
        if inputs:
            for static_input, new_input in zip(static_inputs, inputs, strict=True):
                static_input.copy_(new_input)
        graph.replay()
        return static_output

    replay.graph = graph
    replay.step = step  # a graph holds addresses only: keep alive what it uses
    return replay


@contextmanager
def unchanged(*things: object, generators: Iterable[torch.Generator] = ()) -> Iterator[None]:
    """Restore, in place, what the block changes in things and in the random states.

    things: modules (weights, buffers, gradients), optimizers (their state and tensor learning
    rates), GradScalers and tensors. A gradient is restored if the block keeps its tensor, but not
    if it drops it, as zero_grad(set_to_none=True) does: .grad then holds nothing valid until a
    graph captured in the block is replayed. Optimizer state that the block creates is set to zero,
    where SGD, Adam and most others start. The random states are those of the default generators of
    the CPU and the current GPU, and of generators. Addresses stay, so a graph captured in the block
    stays valid. Raises TypeError for other things, and for ASGD, NAdam, Rprop and SGD with
    dampening before their first step, because their state does not start at zero.
    """
    tensors = [tensor for thing in things for tensor in _tensors(thing)]
    values = [tensor.detach().clone() for tensor in tensors]
    states = []  # how to load a state, and the state
    for thing in things:
        if isinstance(thing, torch.amp.GradScaler):
            states.append((thing.load_state_dict, thing.state_dict()))
    for generator in (torch.default_generator, *generators):
        states.append((generator.set_state, generator.get_state()))
    if torch.cuda.is_available():
        states.append((torch.cuda.set_rng_state, torch.cuda.get_rng_state()))
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, value in zip(tensors, values, strict=True):
                tensor.copy_(value)
            known = {id(tensor) for tensor in tensors}
            for optimizer in things:
                if isinstance(optimizer, Optimizer):
                    for tensor in _tensors(optimizer):
                        if id(tensor) not in known:
                            tensor.zero_()
        for load, state in states:
            load(state)


def _tensors(thing: object) -> list[torch.Tensor]:
    """The tensors that a training step changes in a module, an optimizer or a tensor."""
    if isinstance(thing, torch.Tensor):
        return [thing]
    if isinstance(thing, nn.Module):
        own = [*thing.parameters(), *thing.buffers()]
        return own + [tensor.grad for tensor in own if tensor.grad is not None]
    if isinstance(thing, torch.amp.GradScaler):
        return []  # its state_dict is loaded in place
    if not isinstance(thing, Optimizer):
        known = "modules, optimizers, GradScalers and tensors"
        raise TypeError(f"unchanged takes {known}, not a {type(thing).__name__}.")
    name = type(thing).__name__
    if any(group.get("dampening") and group["momentum"] for group in thing.param_groups):
        name += " with dampening"
    if name in STARTS_ELSEWHERE and not thing.state:
        raise TypeError(f"{name} does not start from zeros: take one step of it first.")
    held = [value for state in thing.state.values() for value in state.values()]
    held += [value for group in thing.param_groups for value in group.values()]
    return [value for value in held if isinstance(value, torch.Tensor)]
