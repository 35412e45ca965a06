"""Judge what runs: which rule an operator, an optimizer, a module or a batch of inputs breaks."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves

from capturable.live_objects import live_objects, name_of
from capturable.operators import MASKS, storage_address
from capturable.rules import FILE
from capturable.waiting_operators import CPU_ARGUMENTS, SIZE, wait_of

# A node of autograd whose CUDA kernel reads values, and the function that it belongs to
READING_BACKWARD = {"ProdBackward0": "prod", "ProdBackward1": "prod", "CumprodBackward0": "cumprod"}
SIZED = ("nonzero", "masked_select", "_unique2", "unique_dim", "unique_consecutive", "bincount")
INDEXING = ("aten::index", "aten::index_put_", "aten::index_put", "aten::_index_put_impl_")
READS = {"aten::_local_scalar_dense": "a tensor's value is read on the CPU"}


class Fault(NamedTuple):
    """What was found: the rule's name, what in particular, and a fix if the rule's does not do."""

    rule: str
    what: str
    fix: str | None = None


MADE_HERE, RATE = FILE["advice"]["made_here"], FILE["advice"]["rate"]
MOMENTUM = FILE["advice"]["momentum"]


class DeviceKinds(NamedTuple):
    """Where tensors are. gpu: the device type that counts as the GPU; is_host: whether a tensor is
    on the CPU, or would be with a GPU; is_pinned: whether in pinned memory there; making: whether
    the operator that runs makes one there."""

    gpu: str
    is_host: Callable[[torch.Tensor], bool]
    is_pinned: Callable[[torch.Tensor], bool]
    making: bool = False


def judge_op(
    func: OpOverload, args: tuple, kwargs: dict, outside: tuple[int, ...], kinds: DeviceKinds
) -> Fault | None:
    """The fault of an operator that would break or freeze in a graph, else None.

    outside: addresses of tensors that the step did not make.
    """
    gpu, is_host = kinds.gpu, kinds.is_host
    leaves = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    hosts = list(filter(is_host, leaves))
    making = kinds.making or gpu != _target_device(kwargs, gpu) == "cpu"
    if len(hosts) == len(leaves) if leaves else making:
        return _judge_cpu_op(func, leaves, kwargs, outside, kinds)
    fault = _judge_gpu_op(func, args, kwargs, kinds)
    return fault or _judge_hosts(func, hosts, outside, gpu)


def _judge_hosts(
    func: OpOverload, hosts: list[torch.Tensor], outside: tuple[int, ...], gpu: str
) -> Fault | None:
    """The fault of tensors on the CPU among those on the GPU; of a scalar, the kernel takes the
    value."""
    name = func._schema.name
    scalars = [leaf for leaf in hosts if leaf.dim() == 0 and name != "aten::copy_"]
    if any(storage_address(leaf) in outside for leaf in scalars):
        return Fault("frozen number", f"{name} takes the value of a CPU tensor as a number")
    if gpu == "cpu" and name not in CPU_ARGUMENTS and any(leaf.dim() for leaf in hosts):
        return Fault("copy", f"{name} takes a tensor that the step makes on the CPU", MADE_HERE)
    return None


def _judge_cpu_op(
    func: OpOverload,
    leaves: list[torch.Tensor],
    kwargs: dict,
    outside: tuple[int, ...],
    kinds: DeviceKinds,
) -> Fault | None:
    """The fault of an operator without a tensor on the GPU."""
    name, gpu = func._schema.name, kinds.gpu
    to_gpu = kwargs.get("device") is not None and _target_device(kwargs, gpu) == gpu
    if name == "aten::_to_copy" and to_gpu:
        pinned = kwargs.get("non_blocking") and kinds.is_pinned(leaves[0])
        waits = leaves[0].numel() and not pinned
        return Fault("copy", "data is copied from CPU to GPU") if waits else None
    if torch.Tag.nondeterministic_seeded in func.tags:
        return Fault("CPU random numbers", f"{name} draws on the CPU")
    # not made anew
    kept = any(storage_address(leaf) in outside and leaf.numel() for leaf in leaves)
    if kept and name not in ("aten::detach", "aten::lift_fresh"):
        return Fault("CPU work", f"{name} runs on the CPU")
    return None


def _judge_gpu_op(func: OpOverload, args: tuple, kwargs: dict, kinds: DeviceKinds) -> Fault | None:
    """The fault of an operator with a tensor on the GPU."""
    name, is_host = func._schema.name, kinds.is_host
    wait = _wait_reason(func, args, kwargs, kinds.gpu)
    if wait:
        return Fault("sync", wait)
    if name == "aten::lift_fresh" and args[0].numel():
        return Fault("copy", "a tensor is made from Python data on the CPU", MADE_HERE)
    if name in INDEXING:
        return _judge_index(name, args, is_host)
    if name == "aten::_pack_padded_sequence":
        return Fault("frozen number", "the lengths are read as numbers, at the capture")
    if name == "aten::copy_" and is_host(args[0]) != is_host(args[1]):
        return _judge_copy(args, kwargs, kinds)
    return None


def _wait_reason(func: OpOverload, args: tuple, kwargs: dict, gpu: str) -> str | None:
    """What the CPU waits for in an operator on the GPU, or None."""
    name = func._schema.name
    if name in READS:
        return READS[name]
    if torch.Tag.data_dependent_output in func.tags:
        return "a comparison's result is read on the CPU"
    if name.removeprefix("aten::") in SIZED:
        return SIZE
    if name == "aten::repeat_interleave" and kwargs.get("output_size") is None:
        return "without output_size, the size of the result is read on the CPU"
    to_cpu = _target_device(kwargs, gpu) != gpu
    if name == "aten::_to_copy" and to_cpu and not kwargs.get("non_blocking"):
        return "data is copied from GPU to CPU"
    return wait_of(func, args, kwargs) if gpu == "cpu" else None  # a GPU is asked itself


def _judge_index(name: str, args: tuple, is_host: Callable[[torch.Tensor], bool]) -> Fault | None:
    kinds = {(index.dtype, is_host(index)) for index in args[1] if index is not None}
    if any(host for _, host in kinds):
        return Fault("copy", "an index on the CPU is copied to the GPU", MADE_HERE)
    filled = name != "aten::index" and len(kinds) == 1 and args[2].numel() == 1  # needs no size
    if any(dtype in MASKS for dtype, _ in kinds) and not filled:
        return Fault("sync", "the size of a boolean index depends on the data")
    return None


def _judge_copy(args: tuple, kwargs: dict, kinds: DeviceKinds) -> Fault | None:
    """The fault of a copy between two devices: it waits unless it is asked not to, from or to
    pinned memory."""
    host = args[0] if kinds.is_host(args[0]) else args[1]
    non_blocking = kwargs.get("non_blocking") or (len(args) > 2 and args[2])
    if kinds.is_pinned(host) and non_blocking:
        return None
    return Fault("copy", "a copy between CPU and GPU makes the CPU wait")


def _target_device(kwargs: dict, gpu: str) -> str:
    return torch.device(kwargs.get("device") or gpu).type


def judge_backward() -> Fault | None:
    """The fault of the node of autograd that runs, if it reads values on the CPU; else None.

    Below a dispatch mode these nodes take a different path, so their reading is not among the
    operators.
    """
    node = torch._C._current_autograd_node()
    name = READING_BACKWARD.get(node.name()) if node else None
    return Fault("sync", f"the backward pass of {name} reads values on the CPU") if name else None


def judge_optimizer(optimizer: torch.optim.Optimizer) -> Iterator[Fault]:
    """Each fault in an optimizer's settings."""
    kind, groups = type(optimizer).__name__, optimizer.param_groups
    if not all(group.get("capturable", True) for group in groups):
        yield Fault("optimizer", f"{kind} without capturable=True")
    scheduled = hasattr(optimizer.step, "_wrapped_by_lr_sched")
    for scheduler in live_objects(torch.optim.lr_scheduler.LRScheduler) if scheduled else ():
        own = getattr(scheduler, "optimizer", None) is optimizer
        if own and _cycles_python_momentum(scheduler):
            name = type(scheduler).__name__
            yield Fault("frozen number", f"{name} cycles the momentum of {kind}", MOMENTUM)
    if scheduled and not all(isinstance(group["lr"], torch.Tensor) for group in groups):
        what = f"the learning rate of {kind} has a scheduler, and is a Python number"
        yield Fault("frozen number", what)


def _cycles_python_momentum(scheduler: Any) -> bool:
    """Whether a scheduler changes momentum or betas that are Python numbers."""
    groups = scheduler.optimizer.param_groups
    numbers = [group.get("betas") or (group.get("momentum"),) for group in groups]
    cycles = getattr(scheduler, "cycle_momentum", False)
    return bool(cycles) and any(isinstance(one[0], int | float) for one in numbers)


def hyperparameter_fix(name: str) -> str:
    """The fix for a setting of an optimizer that changes from step to step."""
    return MOMENTUM if name in ("betas", "momentum") else RATE


def python_numbers_of(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """The Python numbers among an optimizer's settings, such as the learning rate, by name."""
    return {
        name: value
        for group in optimizer.param_groups
        for name, value in group.items()
        if isinstance(value, float)
        or (isinstance(value, tuple) and all(isinstance(one, int | float) for one in value))
    }


def judge_module(module: torch.nn.Module) -> Iterator[Fault]:
    """A fault for a module's hooks, and one for its trainable buffers; not its children's."""
    kind = type(module).__name__
    hooks = [module._forward_hooks, module._forward_pre_hooks, module._backward_hooks]
    hooks.append(module._backward_pre_hooks)
    for parameter in module.parameters(recurse=False):
        hooks += [parameter._backward_hooks, parameter._post_accumulate_grad_hooks]
    if any(hooks):
        yield Fault("hook", f"{kind} has a hook")
    if any(buffer.requires_grad for buffer in module.buffers(recurse=False)):
        yield Fault("trainable buffer", f"{kind} has a buffer that requires a gradient")


def autograd_holders(tensors: Iterable[torch.Tensor | None], leaves: set[int]) -> set[str]:
    """Names of the variables that hold a tensor whose autograd graph reaches a leaf (ids of
    parameters).

    tensors: those that were alive before the step; None for one that is gone.
    """
    alive = (tensor for tensor in tensors if tensor is not None)
    return {
        name_of(t) for t in alive if leaves & {id(leaf) for leaf in _autograd_leaves(t.grad_fn)}
    }


def _autograd_leaves(node: Any) -> Iterator[torch.Tensor]:
    """The tensors into which the autograd graph behind a node accumulates gradients."""
    nodes, seen = [node], set()
    while nodes:
        node = nodes.pop()
        if node is not None and node not in seen:
            seen.add(node)
            nodes += [before for before, _ in node.next_functions]
            if hasattr(node, "variable"):
                yield node.variable
