"""The recipe that turns a step into one CUDA graph, and the helper that undoes its warm-up."""

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.optim import Optimizer

STARTS_ELSEWHERE = {"ASGD", "NAdam", "Rprop"}  # optimizers whose new state is not all zeros


def capture_step(
    step: Callable, *static_inputs: torch.Tensor, warmup: int = 3, pool: tuple | None = None, generators: Iterable = ()
) -> Callable:
    """Capture step(*static_inputs) in one CUDA graph and return replay(*inputs).

    static_inputs: CUDA tensors; the graph reads these very addresses on every replay. replay copies its
    inputs (same shapes and dtypes) into them, launches the graph and returns the static output, which the
    next replay overwrites: clone what you keep. replay() without inputs replays on what the static inputs
    hold. pool: of another graph, to share its memory. generators: torch.Generators, beside the default one,
    that step draws from. The warm-up runs step for real: see unchanged. replay.graph is the
    torch.cuda.CUDAGraph. Errors of the capture come through as torch raises them.
    Source: the "CUDA Graphs" section of docs.pytorch.org/docs/stable/notes/cuda.html.
    """
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(warmup):
            step(*static_inputs)
    torch.cuda.current_stream().wait_stream(side)

    gc.collect()  # a collection during the capture could free an older graph, which breaks this one
    graph = torch.cuda.CUDAGraph()
    for generator in generators:
        graph.register_generator_state(generator)
    with torch.cuda.graph(graph, pool=pool):
        static_output = step(*static_inputs)
    torch.cuda.synchronize()  # before it records, a capture writes the random seed and offset, on its own stream

    def replay(*inputs):
        if inputs:
            for static, new in zip(static_inputs, inputs, strict=True):
                static.copy_(new)
        graph.replay()
        return static_output

    replay.graph, replay.step = graph, step  # a graph holds addresses only: keep alive what it uses
    return replay


@contextmanager
def unchanged(*things: object, generators: Iterable[torch.Generator] = ()) -> Iterator[None]:
    """Put back, in place, what the block changes in things and in the random states.

    things: modules (weights, buffers, gradients that exist), optimizers (their state and tensor learning rates),
    GradScalers and tensors. Optimizer state that the block makes is set to zero, where SGD, Adam and most others
    start. The random states are the default ones of the CPU and the current GPU, and the generators'. Addresses
    stay, so a graph captured in the block stays right. Raises TypeError for other things, and for an optimizer
    whose new state does not start at zero.
    """
    tensors = [tensor for thing in things for tensor in _tensors(thing)]
    before = [(tensor, tensor.detach().clone()) for tensor in tensors]
    states = [(one.load_state_dict, one.state_dict()) for one in things if isinstance(one, torch.amp.GradScaler)]
    states += [(generator.set_state, generator.get_state()) for generator in (torch.default_generator, *generators)]
    if torch.cuda.is_available():
        states.append((torch.cuda.set_rng_state, torch.cuda.get_rng_state()))
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, value in before:
                tensor.copy_(value)
            known = {id(tensor) for tensor in tensors}
            held = [tensor for one in things if isinstance(one, Optimizer) for tensor in _tensors(one)]
            for made in [tensor for tensor in held if id(tensor) not in known]:
                made.zero_()
        for put, state in states:
            put(state)


def _tensors(thing: object) -> list[torch.Tensor]:
    """The tensors that a training changes in a module, an optimizer, a GradScaler or a tensor."""
    if isinstance(thing, torch.Tensor):
        return [thing]
    if isinstance(thing, nn.Module):
        own = [*thing.parameters(), *thing.buffers()]
        return own + [tensor.grad for tensor in own if tensor.grad is not None]
    if isinstance(thing, torch.amp.GradScaler):
        return []  # it has a state_dict that is loaded in place
    if not isinstance(thing, Optimizer):
        raise TypeError(f"unchanged takes modules, optimizers, GradScalers and tensors, not a {type(thing).__name__}.")
    if type(thing).__name__ in STARTS_ELSEWHERE and not thing.state:
        raise TypeError(f"{type(thing).__name__} does not start from zeros: take one step of it first.")
    held = [value for state in [*thing.state.values(), *thing.param_groups] for value in state.values()]
    return [value for value in held if isinstance(value, torch.Tensor)]
