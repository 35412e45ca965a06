"""What keeps a step from being captured, or freezes in its graph: the rules of preflight."""

from collections.abc import Iterable, Iterator

import torch
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves

from capturable.fixes import FIXES
from capturable.live_objects import name_of
from capturable.operators import MASKS, address

Fault = tuple[str, str]  # the rule, and what was found
READING_BACKWARD = {"ProdBackward0": "prod", "ProdBackward1": "prod", "CumprodBackward0": "cumprod"}

WAITS = {
    "aten::_local_scalar_dense": "a tensor's value is read on the CPU",
    "aten::equal": "a comparison's result is read on the CPU",
}
SIZED = ("nonzero", "masked_select", "_unique2", "unique_dim", "unique_consecutive", "bincount")
WAITS |= {f"aten::{name}": "the size of the result depends on the data" for name in SIZED}

# where in torch a wait or a number comes from -> the rule, if not the general one, and the fix
LIBRARY = {
    "optim/lr_scheduler.py": ("frozen number", "step the scheduler between the replays, with the rate in a GPU tensor"),
    "optim/": ("optimizer", FIXES["optimizer"] + "; a rate that changes must be a GPU tensor (SGD: with fused=True)"),
    "amp/grad_scaler.py": ("sync", "give the scaler a fused optimizer, which skips a bad step on the GPU"),
    "nn/utils/clip_grad.py": ("sync", "leave error_if_nonfinite=False: to raise an error, the CPU must know the norm"),
    "_tensor_str.py": ("sync", "do not print or format tensors in the step"),
}


def special(library: str) -> tuple[str | None, str | None]:
    """Rule and fix for what a file of torch does, or (None, None)."""
    return next((where for start, where in LIBRARY.items() if library.startswith(start)), (None, None))


def judge_op(func: OpOverload, args: tuple, kwargs: dict, outside: tuple[int, ...], gpu: str) -> Fault | None:
    """(rule, what was found) for an operator that would break or freeze in a graph, else None.

    outside: addresses of tensors that the step did not make. gpu: the device type that counts as the GPU. On
    "cpu" there are no copies between the two to see.
    """
    leaves = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    devices = {leaf.device.type for leaf in leaves}
    target = torch.device(kwargs.get("device") or gpu).type
    name = func._schema.name
    if gpu in devices or gpu == "cpu":
        found = _judge_gpu_op(func, name, args, kwargs, gpu, target)
        scalars = [leaf for leaf in leaves if leaf.device.type != gpu and leaf.dim() == 0 and address(leaf) in outside]
        frozen = scalars and name != "aten::copy_"
        return found or (("frozen number", f"{name} takes the value of a CPU tensor as a number") if frozen else None)
    if name == "aten::_to_copy" and kwargs.get("device") is not None and target == gpu:
        waits = leaves[0].numel() and not (kwargs.get("non_blocking") and leaves[0].is_pinned())
        return ("copy", "data is copied from CPU to GPU") if waits else None
    if devices or target == "cpu":
        if torch.Tag.nondeterministic_seeded in func.tags:
            return "CPU random numbers", f"{name} draws on the CPU"
        if devices and name not in ("aten::detach", "aten::lift_fresh"):
            return "CPU work", f"{name} runs on the CPU"
    return None


def judge_backward() -> Fault | None:
    """(rule, what was found) for the node of autograd that runs, if it reads values on the CPU; else None.

    Below a dispatch mode these nodes take another way, so their reading is not seen among the operators.
    """
    node = torch._C._current_autograd_node()
    name = READING_BACKWARD.get(node.name()) if node else None
    return ("sync", f"the backward pass of {name} reads values on the CPU") if name else None


def _judge_gpu_op(func, name, args, kwargs, gpu, target):
    """judge_op for an operator with a tensor on the GPU."""
    if name in WAITS:
        return "sync", WAITS[name]
    if name == "aten::lift_fresh" and args[0].numel():
        return "copy", "a tensor is made from Python data on the CPU"
    if name == "aten::repeat_interleave" and kwargs.get("output_size") is None:
        return "sync", "without output_size, the size of the result is read on the CPU"
    if name in ("aten::index", "aten::index_put_", "aten::index_put", "aten::_index_put_impl_"):
        kinds = {(index.dtype, index.device.type) for index in args[1] if index is not None}
        fills = name != "aten::index" and len(kinds) == 1 and args[2].numel() == 1  # a mask that is filled, unsized
        if any(dtype in MASKS for dtype, _ in kinds) and not fills:
            return "sync", "the size of a boolean index depends on the data"
        if any(device != gpu for _, device in kinds):
            return "copy", "an index on the CPU is copied to the GPU"
    if name == "aten::_to_copy" and target != gpu and not kwargs.get("non_blocking"):
        return "sync", "data is copied from GPU to CPU"
    if name == "aten::copy_" and args[0].device != args[1].device:
        host = args[0] if args[1].device.type == gpu else args[1]
        waits = not (host.is_pinned() and (kwargs.get("non_blocking") or len(args) > 2 and args[2]))
        return ("copy", "a copy between CPU and GPU makes the CPU wait") if waits else None
    return None


def judge_optimizer(optimizer: torch.optim.Optimizer) -> Iterator[Fault]:
    """(rule, what was found) for each way in which an optimizer's settings would break or freeze."""
    kind, groups = type(optimizer).__name__, optimizer.param_groups
    if not all(group.get("capturable", True) for group in groups):
        yield "optimizer", f"{kind} without capturable=True"
    scheduled = hasattr(optimizer.step, "_wrapped_by_lr_sched")
    if scheduled and not all(isinstance(group["lr"], torch.Tensor) for group in groups):
        yield "frozen number", f"the learning rate of {kind} has a scheduler, and is a Python number"


def judge_module(module: torch.nn.Module) -> Iterator[Fault]:
    """(rule, what was found) for a module's hooks and trainable buffers, its children left aside."""
    kind = type(module).__name__
    hooks = [module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks]
    for parameter in module.parameters(recurse=False):
        hooks += [parameter._backward_hooks, parameter._post_accumulate_grad_hooks]
    if any(hooks):
        yield "hook", f"{kind} has a hook"
    if any(buffer.requires_grad for buffer in module.buffers(recurse=False)):
        yield "trainable buffer", f"{kind} has a buffer that requires a gradient"


def compare_inputs(inputs: tuple, others: tuple) -> Iterator[tuple[str, str]]:
    """(name, what differs) for each tensor of others that a graph of inputs could not take as it is."""
    inputs, others = tree_leaves(inputs), tree_leaves(others)
    if len(inputs) != len(others):
        raise ValueError(f"other_inputs must match the inputs, of which there are {len(inputs)}, not {len(others)}")
    for number, (static, real) in enumerate(zip(inputs, others, strict=True)):
        for name in ("shape", "dtype", "device", "requires_grad"):
            values = [getattr(tensor, name, None) for tensor in (static, real)]
            if values[0] != values[1]:
                yield f"inputs[{number}]", f"{name} {values[0]} here, {values[1]} in other_inputs"


def kept_graphs(tensors: Iterable[torch.Tensor | None], leaves: set[int]) -> set[str]:
    """Names of the variables that hold a tensor whose autograd graph reaches a leaf (ids of parameters).

    tensors: those that were alive before the step; None for one that is gone.
    """
    alive = (tensor for tensor in tensors if tensor is not None)
    return {name_of(tensor) for tensor in alive if leaves & {id(leaf) for leaf in _leaves(tensor.grad_fn)}}


def _leaves(node):
    """The tensors into which the autograd graph behind a node accumulates gradients."""
    nodes, seen = [node], set()
    while nodes:
        node = nodes.pop()
        if node is not None and node not in seen:
            seen.add(node)
            nodes += [before for before, _ in node.next_functions]
            if hasattr(node, "variable"):
                yield node.variable
