"""Nodes: an operator with its memory, as part of a graph or launched once."""

import re
from contextlib import contextmanager
from functools import cache

import torch
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves

from cpu_graph import core
from cpu_graph.errors import NotModelled, cuda_error, is_refusal, out_of_memory, torch_error
from cpu_graph.memory import Place
from cpu_graph.trees import mapped, tensors_in

aten = torch.ops.aten
CONVERSIONS = {aten._to_copy.default, aten.copy_.default}
POISON = torch.Tensor.fill_  # no operator that a program's launch has
CPU_MATMUL = "expected m1 and m2"  # what a GPU calls mat1 and mat2
NO_MEMORY = re.compile(r"DefaultCPUAllocator.* allocate (\d+) bytes")
# they write what does not depend on what was there
OVERWRITES = {"copy_", "fill_", "zero_", "index_put_", "index_copy_", "scatter_", "_foreach_zero_"}
OVERWRITES |= {"_foreach_copy_"}
STATISTICS = "running_mean", "running_var"  # a network in evaluation leaves them as they are
OUT_OF_BOUNDS = (
    "out of range in self",
    "out of bounds for dimension",
    "is out of bounds.",
    "index out of range",
)


class Node:
    """An operator, what it works on, and when: its stream, and the clock of what comes before it.

    spans: every (block, first byte, end) that it touches, and whether it writes there. draws: a
    generator and, in a graph, the numbers of the random states that it begins and ends with; state
    is the first. Of tensors in the device's memory it knows the places: most launches are never run
    again, views take time, and the program could find them among the objects that are alive.
    line: the program's, see lines. graph and replayed_on: the number of the graph that it is a
    launch of, and the stream of that replay.
    """

    def __init__(self, operator, args, kwargs, outputs, spans, draws=None):
        self.operator = operator
        self.args = args
        self.kwargs = kwargs
        self.outputs = outputs
        self.spans = spans
        self.draws = draws
        self.stream = self.clock = self.state = None
        self.line = self.graph = self.replayed_on = None
        self.uncomputed = None  # the capture of which it uses what is not computed yet
        self.read = None  # the number that the host reads, such as item's
        self.cycles = 0  # how long it sleeps; all other work takes no time

    def run(self):
        """Run it, from its random state if it draws; returns the state it ends with."""
        if any(block.returned for block, *_ in self.spans):
            raise cuda_error(700)
        given = self.args, self.kwargs, self.outputs
        args, kwargs, outputs = mapped(Place.view, given, Place)
        with rng_state(self.state) as ended:
            result = run_op(self.operator, args, kwargs)
        core.write(result, outputs)
        self.read = None if tensors_in(result) else result
        return ended.get("state")

    def before(self, clock):
        """Whether what has this clock comes after it."""
        return self.clock[self.stream] <= clock.get(self.stream, 0)

    def copy_for_replay(self, stream, clock, graph, replayed_on):
        """The same work at one replay of a graph."""
        node = Node(self.operator, self.args, self.kwargs, self.outputs, self.spans, self.draws)
        node.stream = stream
        node.clock = clock
        node.cycles = self.cycles
        node.line = self.line
        node.graph, node.replayed_on = graph, replayed_on
        return node


def places(tree):
    """The tensors in the device's memory among the arguments or results of launches."""
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Place)]


def nan_node(block):
    """A node that overwrites a whole block with NaN."""
    span = block, 0, block.home[3]
    return Node(POISON, (Place(block, block.bytes), 0xFF), {}, None, {span: True})


def run_op(operator, args, kwargs):
    """What an operator returns. Its errors are marked: most are what a GPU would say, too."""
    try:
        return operator(*to_gpu_integers(operator, args, kwargs), **kwargs)
    except Exception as error:
        if is_refusal(error):
            raise
        failure = gpu_error(operator, error, args, kwargs)
    raise failure


def to_gpu_integers(operator, args, kwargs):
    """The arguments of a copy: fractions that its whole numbers cannot hold as a GPU turns them.

    A GPU has conversions to 32 and 64 bits alone, which end at the largest number; fewer bits are
    the last ones of 32. What is no number becomes 0, or the smallest if one of both has 64 bits.
    """
    if operator not in CONVERSIONS:
        return args
    source = args[-1] if operator is aten._to_copy.default else args[1]
    dtype = kwargs.get("dtype") if operator is aten._to_copy.default else args[0].dtype
    if dtype in (None, torch.bool) or not source.is_floating_point():
        return args
    if dtype.is_floating_point or dtype.is_complex:
        return args
    wide = torch.int64 if dtype is torch.int64 else torch.int32
    low, high = torch.iinfo(wide).min, torch.iinfo(wide).max
    values = source.double()
    inside = (values > low) & (values < float(high))
    whole = torch.where(inside, values, 0).to(wide)
    whole = whole.masked_fill(values >= float(high), high).masked_fill(values <= low, low)
    no_number = low if torch.float64 is source.dtype or wide is torch.int64 else 0
    whole = whole.masked_fill(values.isnan(), no_number).to(dtype)
    return (whole,) if operator is aten._to_copy.default else (args[0], whole, *args[2:])


def gpu_error(operator, error, args, kwargs):
    """What a GPU says where the CPU's operator raises an error."""
    words = str(error)
    too_much = NO_MEMORY.search(words)
    if too_much:
        return out_of_memory(int(too_much[1]))
    if "ZeroDivisionError" in words:
        return NotModelled(f"{name_of(operator)} of whole numbers by zero is not modelled.")
    if "_assert_async" in name_of(operator):
        return cuda_error(710)
    if "Could not run" in words or "not implemented for" in words:
        return NotModelled(f"{name_of(operator)}: the CPU has no such operator. {words}")
    if "resize storage" in words:
        return NotModelled(f"{name_of(operator)} resizes a CUDA tensor: that is not modelled.")
    indices = any(not t.is_floating_point() and t.dim() for t in tensors_in(args, kwargs))
    if indices and any(part in words for part in OUT_OF_BOUNDS):
        return cuda_error(710, f"The CPU's operator says: {words.splitlines()[0]}")
    if words.startswith(CPU_MATMUL):
        return torch_error(words.replace(CPU_MATMUL, "expected mat1 and mat2", 1))
    error.as_on_a_gpu = True
    return error


def name_of(operator):
    """An operator's name as its errors and lists give it: aten::add.Tensor."""
    return operator.name() if callable(getattr(operator, "name", None)) else str(operator)


@cache
def is_factory(operator):
    """Whether it makes a tensor of a shape, as torch.zeros and zeros_like, and reads none."""
    name = base_name(operator)
    return name.startswith(("empty", "zeros", "ones", "full", "new_")) or name.endswith("_like")


@cache
def is_unfilled_factory(operator):
    """Whether it makes a tensor and leaves its memory as it is."""
    return base_name(operator).startswith(("empty", "new_empty")) and not written_names(operator)


@cache
def is_overwrite(operator):
    """Whether it writes what does not depend on what was there."""
    overload = name_of(operator).partition(".")[2]
    return base_name(operator) in OVERWRITES or overload == "out" or overload.endswith("_out")


def base_name(operator):
    """Its name without namespace and overload: add for aten::add.Tensor."""
    return name_of(operator).split("::")[-1].split(".")[0]


@contextmanager
def modes_off():
    """Run operators for real: neither torch functions nor operators come to the stand-in.

    In inference mode, in which tensors of that mode can be written to as well as all others.
    """
    with _disable_current_modes(), torch._C.DisableTorchFunction(), torch.inference_mode():
        yield


@contextmanager
def rng_state(state):
    """Let operators draw from a random state, by way of the CPU's default generator."""
    ended = {}
    default = torch.default_generator
    if state is None:
        yield ended
        return
    before = default.get_state()
    default.set_state(state)
    try:
        yield ended
    finally:
        ended["state"] = default.get_state()
        default.set_state(before)


def written_by(operator, args, kwargs):
    """The tensors among an operator's arguments that it writes to."""
    given = dict(zip(names_of_arguments(operator), args, strict=False)) | kwargs
    kept = STATISTICS if given.get("training") is False else ()
    return tensors_in(*(given.get(name) for name in written_names(operator) if name not in kept))


@cache
def names_of_arguments(operator):
    return [argument.name for argument in operator._schema.arguments]


@cache
def written_names(operator):
    """The names of the arguments that it writes: its schema says, but for running statistics."""
    forward = "native_batch_norm" in operator.name() and "backward" not in operator.name()
    return [
        one.name
        for one in operator._schema.arguments
        if (one.alias_info and one.alias_info.is_write) or (forward and one.name in STATISTICS)
    ]
