"""The memory of tensors: kept, put back, and compared by checksums."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch.utils._pytree import tree_leaves


def storage_of(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """The memory that a tensor lies in; None for sparse and other tensors without memory of their own."""
    try:
        storage = tensor.untyped_storage()
        return storage if storage.data_ptr() and storage.device.type != "meta" else None
    except (NotImplementedError, RuntimeError):
        return None


class Memory:
    """What tensors hold, and how they lie in memory: kept when made, put back by steps().

    alive: every tensor, of which the form and a checksum is kept; reached: the values of which the tensors'
    contents are copied.
    """

    def __init__(self, alive: list[torch.Tensor], reached: list[Any]) -> None:
        self.forms = [(t, t.data, t.requires_grad, t.grad if t.is_leaf else None) for t in alive if _plain(t)]
        self.copies: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}
        self.sparse = [(t, t.clone()) for t in reached if isinstance(t, torch.Tensor) and t.layout != torch.strided]
        inside = [leaf for leaf in tree_leaves(reached) if isinstance(leaf, torch.Tensor)]
        for tensor in inside + [tensor.grad for tensor in inside if tensor.is_leaf and tensor.grad is not None]:
            storage = storage_of(tensor)
            if storage is not None:
                self.keep(storage)
        self.tensors = [tensor for tensor in alive if storage_of(tensor) is not None]
        self.before = checksums(self.tensors)

    def keep(self, storage: torch.UntypedStorage) -> None:
        """Copy the content of memory, once."""
        if storage.data_ptr() not in self.copies:
            self.copies[storage.data_ptr()] = storage, storage.clone()

    def steps(self) -> Iterator[tuple[Any, Callable[[], Any]]]:
        """Each tensor or memory, and what puts it back."""
        for storage, content in self.copies.values():
            yield storage, partial(_fill, storage, content)
        for form in self.forms:
            if _moved(*form):
                yield form[0], partial(_put_back, *form)
        for tensor, content in self.sparse:
            yield tensor, partial(tensor.copy_, content)

    def changed(self) -> list[torch.Tensor]:
        """The tensors whose memory does not hold what it held."""
        pairs = zip(self.tensors, self.before, checksums(self.tensors), strict=True)
        return [tensor for tensor, before, now in pairs if before != now]


def checksums(tensors: list[torch.Tensor]) -> list[tuple[int, int]]:
    """For each tensor the number of bytes of its memory, and their sum; the same for tensors in the same memory."""
    storages = {id(tensor): storage_of(tensor) for tensor in tensors}
    sums: dict[int, tuple[int, int]] = {}
    for storage in storages.values():
        if storage is not None and storage.data_ptr() not in sums:
            everything = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
            words = storage.nbytes() // 8 * 8
            total = everything[:words].view(torch.int64).sum() + everything[words:].sum()
            sums[storage.data_ptr()] = storage.nbytes(), total
    sums = {address: (size, int(total)) for address, (size, total) in sums.items()}
    return [sums.get(storage.data_ptr(), (0, 0)) if storage is not None else (0, 0) for storage in storages.values()]


def _plain(tensor: torch.Tensor) -> bool:
    return storage_of(tensor) is not None and type(tensor) in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


def _moved(tensor: torch.Tensor, data: torch.Tensor, requires_grad: bool, grad: torch.Tensor | None) -> bool:
    same = tensor.data_ptr() == data.data_ptr() and tensor.shape == data.shape and tensor.stride() == data.stride()
    return not same or (tensor.is_leaf and (tensor.requires_grad != requires_grad or tensor.grad is not grad))


def _put_back(tensor: torch.Tensor, data: torch.Tensor, requires_grad: bool, grad: torch.Tensor | None) -> None:
    if not tensor.is_leaf and requires_grad:
        tensor.data = data
        return
    tensor.requires_grad_(False)
    tensor.data = data
    tensor.grad = None
    tensor.requires_grad_(requires_grad)
    tensor.grad = grad


def _fill(storage: torch.UntypedStorage, content: torch.UntypedStorage) -> None:
    if storage.nbytes() != content.nbytes():
        storage.resize_(content.nbytes())
    storage.copy_(content)
