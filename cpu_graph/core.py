"""What a CUDA graph is: operators in order, each with the memory that it reads and writes."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only


class Graph(TorchDispatchMode):
    """Writes down the operators of its block and runs none of them; replay() runs them all."""

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        if operator.is_view or operator.namespace == "profiler":  # no work on any memory
            return operator(*args, **(kwargs or {}))
        outputs = not_computed(operator, args, kwargs or {})
        addresses = tree_map_only(
            torch.Tensor, lambda tensor: tensor.data, (args, kwargs or {}, outputs)
        )
        self.__dict__.setdefault("nodes", []).append((operator, *addresses))
        return outputs

    def replay(self):
        for operator, args, kwargs, outputs in self.nodes:
            write(operator(*args, **kwargs), outputs)


def not_computed(operator, args, kwargs, empty=torch.empty_strided):
    """What the operator would return: the very input that
    it writes to, or new memory of the right shape.
    """
    meta = {}  # tensors that have a shape and no memory, by the id of those they stand for
    for tensor in filter(torch.is_tensor, tree_leaves((args, kwargs))):
        meta[id(tensor)] = (
            tensor,
            torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta"),
        )
    args, kwargs = tree_map_only(torch.Tensor, lambda tensor: meta[id(tensor)][1], (args, kwargs))
    results = operator(*args, **(kwargs | {"device": "meta"} if "device" in kwargs else kwargs))
    written = {id(shape): tensor for tensor, shape in meta.values()}
    new = (
        torch.Tensor,
        lambda t: written[id(t)] if id(t) in written else empty(t.shape, t.stride(), dtype=t.dtype),
    )
    return tree_map_only(*new, results)


def write(results, outputs):
    """Put results where the recorded outputs lie."""
    for result, output in zip(tree_leaves(results), tree_leaves(outputs), strict=True):
        if torch.is_tensor(output) and output.data_ptr() != result.data_ptr():
            output.copy_(result)
