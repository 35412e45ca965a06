"""What operators would return: torch is asked once for arguments of the same shapes, which takes it half a millisecond.

A tree that is remembered holds tensors without memory, and the place among the arguments of those that are written to.
"""

from functools import partial

import torch

from cpu_graph import core
from cpu_graph.trees import SEQUENCES, mapped, tensors_in

known = {}  # (operator, arguments by their shapes) -> (results, id of a result -> number of the argument that it is)


def not_computed(operator, args, kwargs, allocate):
    """What core.not_computed gives, with new memory from allocate(shape, stride, dtype)."""
    given = list({id(tensor): tensor for tensor in tensors_in(args, kwargs)}.values())
    numbers = {id(tensor): number for number, tensor in enumerate(given)}
    key = operator, torch.get_default_dtype(), described(args, numbers), described(kwargs, numbers)
    if key not in known:
        known[key] = asked(operator, args, kwargs, numbers)
    results, inputs = known[key]

    def made(result):
        number = inputs.get(id(result))
        return allocate(result.shape, result.stride(), result.dtype) if number is None else given[number]

    return mapped(made, results)


def described(tree, numbers):
    """Arguments as a key: tensors by their shapes and numbers, others with their types, for 1 is no 1.0 here."""
    if isinstance(tree, torch.Tensor):
        return tree.shape, tree.stride(), tree.dtype, numbers[id(tree)]
    if isinstance(tree, dict):
        return tuple((name, described(part, numbers)) for name, part in tree.items())
    if isinstance(tree, SEQUENCES):
        return type(tree), *(described(part, numbers) for part in tree)
    return type(tree), tree


def asked(operator, args, kwargs, numbers):
    """The results on "meta", and which of them are arguments."""
    inputs = {}

    def kept(result):
        if id(result) not in numbers:
            return result
        stands_for = torch.empty(0, device="meta")
        inputs[id(stands_for)] = numbers[id(result)]
        return stands_for

    return mapped(kept, core.not_computed(operator, args, kwargs, partial(torch.empty_strided, device="meta"))), inputs
