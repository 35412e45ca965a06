"""What compare calls two steps with: batches in a shuffled order, and rubbish where nobody may
read."""

import random
import re
from collections.abc import Callable, Iterable, Sequence

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from capturable.inputs import Call
from capturable.restore.reachable import is_a, reach

RUBBISH = 7.0  # times the largest number of a tensor, plus one
ROWS = re.compile(r"(.*?)(?:\[(-?\d*):(-?\d*)\])?")


def shuffled_batches(batches: Sequence[Call], calls: int, seed: int) -> list[Call]:
    """The batch of each call: all of them, shuffled anew in each round; of a single one, the rows
    are shuffled."""
    chooser = random.Random(seed)
    if len(batches) == 1:
        generator = torch.Generator("cpu").manual_seed(seed)
        return [_batch_with_shuffled_rows(batches[0], generator) for _ in range(calls)]
    ordered: list[Call] = []
    while len(ordered) < max(calls, len(batches)):
        ordered += chooser.sample(batches, len(batches))
    return ordered[: max(calls, len(batches))]


def _batch_with_shuffled_rows(batch: Call, generator: torch.Generator) -> Call:
    """The batch with its rows in another order, the same one in all tensors of as many rows."""
    rows = next((len(leaf) for leaf in batch_tensors(batch) if leaf.dim()), 0)
    order = torch.randperm(rows, generator=generator, device="cpu")

    def shuffled(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.dim() or len(tensor) != rows:
            return tensor
        return _pinned_and_differentiable_like(tensor, tensor.detach()[order.to(tensor.device)])

    return Call(*tree_map_only(torch.Tensor, shuffled, tuple(batch)))


def batch_tensors(batch: Call) -> list[torch.Tensor]:
    """The tensors of a batch."""
    return [leaf for leaf in tree_leaves(tuple(batch)) if isinstance(leaf, torch.Tensor)]


def copied_batch(batch: Call) -> Call:
    """The batch in tensors of its own."""

    def copied(tensor: torch.Tensor) -> torch.Tensor:
        return _pinned_and_differentiable_like(tensor, tensor.detach().clone())

    return Call(*tree_map_only(torch.Tensor, copied, tuple(batch)))


def _pinned_and_differentiable_like(tensor: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    """The new tensor, pinned and with a gradient where the other one is."""
    new = new.pin_memory() if tensor.is_pinned() else new
    return new.requires_grad_(tensor.requires_grad)


def fill_padding_of_step(step: Callable, names: Iterable[str], batches: Sequence[Call]) -> set[str]:
    """Fill tensors in reach of the step, or rows of them, with rubbish; the names that were
    found."""
    found = set()
    for name in names:
        label, first, last = ROWS.fullmatch(name).groups()  # type: ignore[union-attr]
        for place in reach(step):
            value = place.get()
            if place.label == label or place.label.startswith((f"{label}[", f"{label}.")):
                for tensor in (leaf for leaf in tree_leaves(value) if is_a(leaf, torch.Tensor)):
                    rows = slice(int(first or 0), int(last) if last else None)
                    fill_with_rubbish(tensor.detach()[rows] if tensor.dim() else tensor, batches)
                    found.add(name)
    return found


@torch.no_grad()
def fill_with_rubbish(tensor: torch.Tensor, batches: Iterable[Call] = ()) -> None:
    """Fill a tensor with numbers that nobody may read: large ones, or, of whole numbers, others of
    the range that it or a batch has, so that they are still valid indices."""
    if not tensor.numel():
        return
    if tensor.is_floating_point() or tensor.is_complex():
        least, most = torch.finfo(tensor.dtype).min, torch.finfo(tensor.dtype).max
        large = RUBBISH * (float(tensor.detach().abs().nan_to_num().max()) + 1)
        tensor.detach().fill_(max(least / 4, min(large, most / 4)))
        return
    if tensor.dtype == torch.bool:
        tensor.logical_not_()
        return
    others = [leaf for batch in batches for leaf in batch_tensors(batch)]
    alike = [tensor, *(leaf for leaf in others if leaf.dtype == tensor.dtype)]
    varied = [one for one in alike if one.numel() and one.min() != one.max()]
    known = varied[0] if varied else tensor
    least, most = int(known.min()), int(known.max())
    tensor.copy_((least + most - tensor).clamp(least, most))
