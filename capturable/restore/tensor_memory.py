"""The memory of tensors: kept, put back, and compared by checksums."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_leaves

from capturable.stand_in import behind_the_stand_in, device_behind

PLAIN = (torch.Tensor, torch.nn.Parameter)


def storage_of(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """The memory that a tensor lies in; None for sparse and other tensors without memory of
    their own."""
    try:
        storage = tensor.untyped_storage()
        return storage if storage.data_ptr() and storage.device.type != "meta" else None
    except (NotImplementedError, RuntimeError):
        return None


class Memory:
    """What tensors hold, and how they lie in memory: kept when made, put back by steps().

    alive: every tensor, of which the form and a checksum is kept; reached: the values of which the
    tensors' contents are copied.
    """

    def __init__(self, alive: list[torch.Tensor], reached: list[Any]) -> None:
        self.forms = [Form.of(tensor) for tensor in alive if _is_plain_tensor(tensor)]
        self.copies: dict[int, tuple[torch.UntypedStorage, torch.Tensor]] = {}
        # type wakes no proxy
        inside = [leaf for leaf in tree_leaves(reached) if issubclass(type(leaf), torch.Tensor)]
        self.sparse = [(one, one.clone()) for one in inside if one.layout != torch.strided]
        gradients = [one.grad for one in inside if one.is_leaf and one.grad is not None]
        for tensor in inside + gradients:
            self.keep(tensor)
        self.tensors = [tensor for tensor in alive if storage_of(tensor) is not None]
        self.before = checksums(self.tensors)

    def keep(self, tensor: torch.Tensor) -> None:
        """Copy the memory of a tensor, once."""
        storage = storage_of(tensor)
        if storage is not None and storage._cdata not in self.copies:  # whose address may change
            with behind_the_stand_in():
                self.copies[storage._cdata] = storage, _bytes(storage).clone()

    def steps(self) -> Iterator[tuple[Any, Callable[[], Any]]]:
        """Each tensor or memory, and what puts it back."""
        for storage, content in self.copies.values():
            yield storage, partial(_fill, storage, content)
        for form in self.forms:
            if form.moved():
                yield form.tensor, form.put_back
        for tensor, content in self.sparse:
            yield tensor, partial(tensor.copy_, content)

    def changed(self) -> list[list[torch.Tensor]]:
        """The tensors whose memory does not hold what it held, those that share it together."""
        found: dict[int, list[torch.Tensor]] = {}
        sums = checksums(self.tensors)
        for tensor, before, now in zip(self.tensors, self.before, sums, strict=True):
            if before != now:
                found.setdefault(tensor.untyped_storage().data_ptr(), []).append(tensor)
        return list(found.values())


def checksums(tensors: list[torch.Tensor]) -> list[tuple[int, int]]:
    """For each tensor the bytes of its memory, and a sum over them; the same for tensors in the
    same memory."""
    storages = [storage_of(tensor) for tensor in tensors]
    once = {storage.data_ptr(): storage for storage in storages if storage is not None}
    with behind_the_stand_in():
        totals = {address: _sum(_bytes(storage)) for address, storage in once.items()}
        # waits only now
        sums = {address: (once[address].nbytes(), int(total)) for address, total in totals.items()}
    return [(0, 0) if storage is None else sums[storage.data_ptr()] for storage in storages]


def _bytes(storage: torch.UntypedStorage) -> torch.Tensor:
    """The memory as a tensor."""
    return torch.empty(0, dtype=torch.uint8, device=device_behind(storage)).set_(storage)


def _sum(everything: torch.Tensor) -> torch.Tensor:
    """A sum that depends on the bytes and, in blocks of 8, on where they stand, to tell one
    order from another."""
    words = everything[: len(everything) // 8 * 8].view(torch.int64)
    columns = min(1024, len(words)) or 1
    table = words[: len(words) // columns * columns].view(-1, columns)
    total = words[table.numel() :].sum() + everything[len(words) * 8 :].sum()
    for sums in (table.sum(0), table.sum(1)):
        total += (sums * (2 * torch.arange(len(sums), device=everything.device) + 1)).sum()
    return total


class Form(NamedTuple):
    """How a tensor lay in memory, and its place in autograd; no further tensor, which would be
    found alive."""

    tensor: torch.Tensor
    dtype: torch.dtype
    address: int
    memory: tuple[torch.UntypedStorage, int, torch.Size, tuple[int, ...]]
    views: tuple[Callable, ...]
    leaf: bool
    requires_grad: bool
    grad: torch.Tensor | None

    @classmethod
    def of(cls, tensor: torch.Tensor) -> "Form":
        """The form that a tensor has now."""
        grad = tensor.grad if tensor.is_leaf else None
        views = (torch.conj,) * tensor.is_conj() + (torch._neg_view,) * tensor.is_neg()
        memory = tensor.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride()
        where = tensor.data_ptr(), memory, views
        return cls(tensor, tensor.dtype, *where, tensor.is_leaf, tensor.requires_grad, grad)

    def moved(self) -> bool:
        """Whether the tensor has another form now."""
        tensor = self.tensor
        now = tensor.dtype, tensor.data_ptr(), tensor.shape, tensor.stride()
        same = now == (self.dtype, self.address, *self.memory[2:])
        autograd = (tensor.is_leaf, tensor.requires_grad) == (self.leaf, self.requires_grad)
        return not (same and autograd and (not tensor.is_leaf or tensor.grad is self.grad))

    def put_back(self) -> None:
        """Give the tensor its form again."""
        tensor = self.tensor
        if self.leaf:
            if not tensor.is_leaf:  # written in place by something that has a gradient
                tensor.detach_()
            tensor.requires_grad_(False)
        with behind_the_stand_in():
            device = device_behind(self.memory[0])
            data = torch.empty(0, dtype=self.dtype, device=device).set_(*self.memory)
            for view in self.views:
                data = view(data)
            tensor.data = data
        if self.leaf:
            tensor.grad = None
            tensor.requires_grad_(self.requires_grad)
            tensor.grad = self.grad


def _is_plain_tensor(tensor: torch.Tensor) -> bool:
    return type(tensor) in PLAIN and not tensor.is_nested and storage_of(tensor) is not None


def _fill(storage: torch.UntypedStorage, content: torch.Tensor) -> None:
    if storage.nbytes() != len(content):
        storage.resize_(len(content))
    with behind_the_stand_in():
        _bytes(storage).copy_(content)
