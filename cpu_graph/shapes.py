"""What operators would return, asked once for arguments of the same shapes.

Two are asked: torch's shape function, on tensors without memory, and the CPU's operator itself, on
zeros that overlap as the arguments do. The second is right about what it will return at a replay,
and refuses at the capture what it would refuse there; zeros are not always good values, though, so
what it says of values counts for nothing. A tree that is remembered holds tensors without memory,
and the number among the arguments of those that are written to.
"""

from functools import partial

import torch

from cpu_graph import core
from cpu_graph.errors import NotModelled, is_refusal
from cpu_graph.memory import extent, with_lazy_bits
from cpu_graph.nodes import name_of, run_op
from cpu_graph.tables import LIKE_EAGER, gpu_strides_of
from cpu_graph.trees import SEQUENCES, mapped, tensors_in

cache = {}  # (operator, arguments by shapes) -> (results, id of a result -> number of its argument)
SHAPE_ERRORS = (  # what an operator says of shapes and types, where zeros are not to blame
    "unsupported operation:",
    "the same dtype",
    "to have one of the following scalar types",
    "expected scalar type",
    "shapes cannot be multiplied",
    "does not support automatic differentiation",
)


def allocate_uncomputed(operator, args, kwargs, allocate):
    """What core.uncomputed_outputs gives, with new memory from allocate(shape, stride, dtype)."""
    given = list({id(tensor): tensor for tensor in tensors_in(args, kwargs)}.values())
    numbers = {id(tensor): number for number, tensor in enumerate(given)}
    layout = tuple(offsets_in_shared_memory(given))
    key = operator, torch.get_default_dtype(), layout, as_key((args, kwargs), numbers)
    if key not in cache:
        cache[key] = infer_results(operator, args, kwargs, given)
    results, inputs = cache[key]

    def made(result):
        number = inputs.get(id(result))
        if number is None:
            return allocate(result.shape, gpu_strides_of(operator, result), result.dtype)
        if given[number].shape != result.shape:
            raise NotModelled(f"{name_of(operator)} resizes a CUDA tensor: that is not modelled.")
        return given[number]

    return mapped(made, results)


def offsets_in_shared_memory(given):
    """For each tensor, where it lies in the memory that it shares with others."""
    first = {}
    for tensor in given:
        pointer = tensor.untyped_storage().data_ptr()
        offset = tensor.storage_offset() * tensor.itemsize
        number, start = first.setdefault(pointer, (len(first), offset))
        yield number, offset - start


def as_key(tree, numbers):
    """Arguments as a key: tensors by shape and number, others with their types, for 1 is no 1.0."""
    if isinstance(tree, torch.Tensor):
        bits = tree.is_conj(), tree.is_neg()
        return tree.shape, tree.stride(), tree.dtype, bits, numbers[id(tree)]
    if isinstance(tree, dict):
        return tuple((name, as_key(part, numbers)) for name, part in tree.items())
    if isinstance(tree, SEQUENCES):
        return type(tree), *(as_key(part, numbers) for part in tree)
    return type(tree), tree


def infer_results(operator, args, kwargs, given):
    """The results on "meta", and which of them are arguments."""
    by_shape, shape_error = attempted(lambda: from_shape_function(operator, args, kwargs, given))
    by_cpu, cpu_error = attempted(lambda: from_cpu(operator, args, kwargs, given))
    if cpu_error is not None:
        words = str(cpu_error)
        if by_shape is None or any(part in words for part in SHAPE_ERRORS):
            raise inference_error(operator, shape_error, cpu_error)
        return by_shape
    own = name_of(operator).removeprefix("aten::").partition(".")[0] in LIKE_EAGER
    if by_shape is not None and not own and same_shapes(by_shape[0], by_cpu[0]):
        return by_shape  # its strides are a GPU's
    return by_cpu


def attempted(question):
    """The answer or the error; the stand-in's own mistakes are raised."""
    try:
        return question(), None
    except (AttributeError, NameError, KeyError):
        raise
    except Exception as error:
        return None, error


def inference_error(operator, shape_error, cpu_error):
    """The error to raise where an operator's results are not known."""
    by_values = shape_error is None or isinstance(shape_error, NotImplementedError)
    of_shapes = any(part in str(cpu_error) for part in SHAPE_ERRORS)
    if is_refusal(cpu_error) and (of_shapes or not by_values):
        return cpu_error
    return NotModelled(f"{name_of(operator)} in a capture is not modelled: {cpu_error}")


def from_shape_function(operator, args, kwargs, given):
    numbers = {id(tensor): number for number, tensor in enumerate(given)}
    on_meta = partial(torch.empty_strided, device="meta")
    return as_cache_entry(core.uncomputed_outputs(operator, args, dict(kwargs), on_meta), numbers)


def from_cpu(operator, args, kwargs, given):
    """Run the CPU's operator on zeros."""
    zeros = dict(zip(map(id, given), zeros_like(given), strict=True))
    args, kwargs = mapped(lambda tensor: zeros[id(tensor)], (args, kwargs))
    random = torch.default_generator.get_state()
    try:
        results = run_op(operator, args, kwargs)
    finally:
        torch.default_generator.set_state(random)
    numbers = {id(zeros[id(tensor)]): number for number, tensor in enumerate(given)}
    if any(tensor.layout is not torch.strided for tensor in tensors_in(results)):
        raise NotModelled(f"{name_of(operator)} gives a sparse tensor: that is not modelled.")
    results = mapped(lambda one: one if id(one) in numbers else core.meta_tensor_like(one), results)
    return as_cache_entry(results, numbers)


def zeros_like(given):
    """Zeros that overlap as the given tensors do."""
    lowest, highest = {}, {}
    for tensor in given:
        pointer = tensor.untyped_storage().data_ptr()
        start = tensor.storage_offset() * tensor.itemsize
        end = start + extent(tensor.shape, tensor.stride(), tensor.dtype)
        lowest[pointer] = min(start, lowest.get(pointer, start))
        highest[pointer] = max(end, highest.get(pointer, end))
    memory = {
        pointer: torch.zeros(highest[pointer] - start + 16, dtype=torch.uint8).untyped_storage()
        for pointer, start in lowest.items()
    }
    for tensor in given:
        pointer = tensor.untyped_storage().data_ptr()
        begins = lowest[pointer] - lowest[pointer] % tensor.itemsize
        offset = tensor.storage_offset() - begins // tensor.itemsize
        zeros = torch.empty(0, dtype=tensor.dtype)
        zeros = zeros.set_(memory[pointer], offset, tensor.shape, tensor.stride())
        yield with_lazy_bits(zeros, tensor.is_conj(), tensor.is_neg())


def as_cache_entry(results, numbers):
    """Results without memory; what is an argument becomes a tensor that stands for it."""
    inputs = {}

    def kept(result):
        if id(result) not in numbers:
            return result
        stands_for = core.meta_tensor_like(result)
        inputs[id(stands_for)] = numbers[id(result)]
        return stands_for

    return mapped(kept, results), inputs


def same_shapes(one, other):
    """Whether two trees of results have the same shapes and types."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.shape == other.shape and one.dtype == other.dtype
    if isinstance(one, SEQUENCES) and isinstance(other, SEQUENCES):
        return len(one) == len(other) and all(map(same_shapes, one, other))
    return type(one) is type(other) and not tensors_in(one, other)
