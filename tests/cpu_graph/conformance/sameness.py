"""Inputs of all kinds, and programs that ask whether a replay on new values gives what
eager gives.
"""

import torch
from torch.utils._pytree import tree_leaves

from tests.cpu_graph.conformance.common import captured
from tests.cpu_graph.conformance.outcomes import programs

KINDS = {
    "x": lambda: torch.rand(4, 3) + 0.5,
    "t": lambda: torch.rand(2, 3, 4),
    "z": lambda: torch.randn(4, 3, dtype=torch.complex64),
    "w": lambda: torch.randn(3, dtype=torch.complex64),
    "n": lambda: torch.randint(0, 3, (4,)),
    "image": lambda: torch.rand(2, 3, 8, 8),
    "sequence": lambda: torch.rand(5, 2, 3),
}
TURNS = 3


class Inputs:
    """Tensors on the GPU, each with new values for each turn."""

    def __init__(self, turn=0):
        random = torch.get_rng_state()
        torch.manual_seed(3)
        self.values = [{name: make() for name, make in KINDS.items()} for _ in range(TURNS)]
        torch.set_rng_state(random)
        for name, value in self.values[turn].items():
            setattr(self, name, value.to("cuda"))

    def write(self, turn):
        for name, value in self.values[turn].items():
            getattr(self, name).copy_(value)


def warmed_up(function, *args):
    """Run it on a side stream, so that a library's first call is not in the capture."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        function(*args)
    torch.cuda.current_stream().wait_stream(side)


def tensors(tree):
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def alike(one, other):
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    one, other = (tensor.detach().resolve_conj().resolve_neg().cpu() for tensor in (one, other))
    if not (one.is_floating_point() or one.is_complex()):
        return torch.equal(one, other)
    return torch.allclose(one, other, rtol=1e-3, atol=1e-3, equal_nan=True)


def replays_as_eager(function, inputs):
    """Whether replays on the values of the later turns give what eager gives."""
    warmed_up(function, inputs)
    replay = captured(lambda: function(inputs))
    for turn in range(1, TURNS):
        inputs.write(turn)
        got, expected = tensors(replay()), tensors(function(Inputs(turn)))
        torch.cuda.synchronize()
        if len(got) != len(expected) or not all(map(alike, got, expected)):
            return False
    return True


def same(**functions):
    """Programs, one for each function of the inputs: a replay gives what eager gives."""
    for name, function in functions.items():
        programs(**{name: (True, lambda function=function: replays_as_eager(function, Inputs()))})
