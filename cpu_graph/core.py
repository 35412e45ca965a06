"""What a CUDA graph is: operators in order, each with the memory that it reads and writes."""

from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only


class Node(NamedTuple):
    """An operator with the memory of its arguments and of its results."""

    operator: Any
    args: tuple
    kwargs: dict
    outputs: Any


class Graph(TorchDispatchMode):
    """Records the operators of its block and runs none of them; replay() runs them all."""

    def __init__(self):
        super().__init__()
        self.nodes = []

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if does_no_work(operator):
            return operator(*args, **kwargs)
        outputs = uncomputed_outputs(operator, args, kwargs)
        # .data is the same memory, and autograd does not follow it
        node = tree_map_only(torch.Tensor, lambda tensor: tensor.data, (args, kwargs, outputs))
        self.nodes.append(Node(operator, *node))
        return outputs

    @torch.inference_mode()  # so that it may write to tensors which were made in that mode
    def replay(self):
        for node in self.nodes:
            results = node.operator(*node.args, **node.kwargs)
            write(results, node.outputs)


def does_no_work(operator):
    """Whether it only looks at memory in another way, as views do, or marks a profile."""
    in_place = torch.Tag.inplace_view in operator.tags
    return operator.is_view or in_place or operator.namespace == "profiler"


def uncomputed_outputs(operator, args, kwargs, empty=torch.empty_strided):
    """What the operator would return: the input that it writes to, or new memory of the right shape."""
    # 1. for each input a "meta" tensor, which has a shape and no memory
    inputs = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    metas = {id(tensor): meta_tensor_like(tensor) for tensor in inputs}
    args, kwargs = tree_map_only(torch.Tensor, lambda tensor: metas[id(tensor)], (args, kwargs))
    if "device" in kwargs:
        kwargs["device"] = "meta"

    # 2. the operator on them works out shapes alone
    results = operator(*args, **kwargs)

    # 3. what it returns is one of the inputs, or it gets memory
    inputs_by_meta = {id(metas[id(tensor)]): tensor for tensor in inputs}

    def in_memory(result):
        if id(result) in inputs_by_meta:
            return inputs_by_meta[id(result)]
        return empty(result.shape, result.stride(), dtype=result.dtype)

    return tree_map_only(torch.Tensor, in_memory, results)


def meta_tensor_like(tensor):
    """A tensor of the same shape without memory."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def write(results, outputs):
    """Put results into the memory of the recorded outputs."""
    for result, output in zip(tree_leaves(results), tree_leaves(outputs), strict=True):
        if isinstance(output, torch.Tensor) and output.data_ptr() != result.data_ptr():
            output.copy_(result)
