"""Log what a step does, each operator with the line of the user's code that caused it."""

import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from capturable.user_lines import Line, here

MASKS = (torch.bool, torch.uint8)


class Op(NamedTuple):
    """An operator as it ran: name, the user's line, the library's line between the two or None,
    innermost torch file on the way (such as optim/sgd.py, or ""), its Python numbers, the
    shapes of its tensors, the addresses of tensors that the step did not make, whether the
    size of its result depends on the data, and whether autograd's backward pass runs it."""

    name: str
    line: Line
    inside: Line | None
    library: str
    numbers: tuple
    shapes: tuple
    outside: tuple
    sized: bool
    backward: bool


class OpLog(TorchDispatchMode):
    """Collect in ops every operator that runs, the backward pass included.

    written(tensor) is called ahead of each write to memory that the step did not make itself;
    before(func, args, kwargs, outside) ahead of each operator that is no mere annotation, to judge
    it (outside: addresses of the memory among its arguments that the step did not make);
    after(tensors, results) behind it. What a higher-order operator does inside is not seen.
    """

    supports_higher_order_operators = True

    def __init__(
        self,
        written: Callable[[torch.Tensor], None],
        before: Callable[..., None] | None = None,
        after: Callable[[list[torch.Tensor], list[torch.Tensor]], None] | None = None,
    ) -> None:
        super().__init__()
        self.written = written
        self.before = before
        self.after = after
        self.ops: list[Op] = []
        self.made: set[int] = set()
        self.thread = threading.get_ident()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func.namespace == "profiler":
            return func(*args, **kwargs)
        leaves = tree_leaves((args, kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        higher_order = not isinstance(func, OpOverload)
        if not higher_order and is_undecomposed(func, tensors):
            with self:
                return func.decompose(*args, **kwargs)
        outside = self._addresses_made_outside(func, leaves, tensors)
        numbers = [leaf for leaf in leaves if isinstance(leaf, int | float | complex | str)]
        if not higher_order:
            self._announce(func, args, kwargs, outside)
            numbers += cpu_scalar_values(func, tensors, self.made)
        sized = not higher_order and has_data_dependent_size(func, args)
        self._log(func, sized, tensors, numbers, outside)
        with torch._C.DisableTorchFunction():  # else the stand-in takes it for a call of the step's
            result = func(*args, **kwargs)
        results = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        self.made |= {storage_address(tensor) for tensor in results} - set(outside) - {0}
        if self.after:
            self.after(tensors, results)
        return result

    def _announce(self, func, args, kwargs, outside):
        """Call before and written ahead of an operator."""
        if self.before:
            self.before(func, args, kwargs, outside)
        for tensor in written_tensors(func, args, kwargs):
            if storage_address(tensor) in outside:
                self.written(tensor)

    def _addresses_made_outside(self, func, leaves, tensors):
        """Addresses of the arguments' memory that the step did not make."""
        if func.name() == "aten::lift_fresh":  # its tensor was made by this very call
            return ()
        # of set_
        storages = [leaf.data_ptr() for leaf in leaves if isinstance(leaf, torch.UntypedStorage)]
        addresses = [*map(storage_address, tensors), *storages]
        return tuple(address for address in addresses if address not in self.made)

    def _log(self, func, sized, tensors, numbers, outside):
        line, library, inside = here(self.thread)
        shapes = tuple(() if tensor.is_nested else tuple(tensor.shape) for tensor in tensors)
        backward = torch._C._current_autograd_node() is not None
        what = tuple(numbers), shapes, outside, sized, backward
        self.ops.append(Op(func.name(), line, inside, library, *what))


def is_undecomposed(func: OpOverload, tensors: list[torch.Tensor]) -> bool:
    """Whether an operator is composed of others that would not be seen: in inference mode nothing
    takes it apart ahead of a dispatch mode (tried on torch 2.11 to 2.15)."""
    nested = any(tensor.is_nested for tensor in tensors)  # which have composites of their own
    return torch.is_inference_mode_enabled() and not nested and func._can_decompose()


def storage_address(tensor: torch.Tensor) -> int:
    """Where the tensor's storage begins; 0 for one without memory of its own."""
    try:
        return tensor.untyped_storage().data_ptr()
    except (NotImplementedError, RuntimeError):  # sparse and other tensors without a storage
        return 0


def cpu_scalar_values(
    func: OpOverload, tensors: list[torch.Tensor], made: set[int]
) -> list[int | float | complex]:
    """The values of CPU scalars among tensors on the GPU, which their kernel takes as numbers; of
    torch.tensor's.

    made: addresses of what the step's operators made, such as the seed that attention keeps for its
    backward pass.
    """
    scalars = [tensor for tensor in tensors if tensor.device.type == "cpu" and tensor.dim() == 0]
    if func._schema.name == "aten::lift_fresh":
        return [tensor.item() for tensor in scalars]
    mixed = any(tensor.device.type != "cpu" for tensor in tensors)
    return [tensor.item() for tensor in scalars if mixed and storage_address(tensor) not in made]


def has_data_dependent_size(func: OpOverload, args: tuple) -> bool:
    """Whether the size of an operator's result depends on the data."""
    if func._schema.name == "aten::index":
        return any(index is not None and index.dtype in MASKS for index in args[1])
    return torch.Tag.dynamic_output_shape in func.tags


def written_tensors(func: OpOverload, args: tuple, kwargs: dict) -> Iterator[torch.Tensor]:
    """The tensors that an operator writes to, as its schema says; batch_norm's says nothing of
    its statistics."""
    if "batch_norm" in func.name():
        yield from (leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor))
    for position, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[position] if position < len(args) else kwargs.get(argument.name)
            yield from (leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor))
