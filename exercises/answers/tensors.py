"""Whether results hold the same tensors, and where they part."""

import math
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from cpu_graph import on_stand_in

UNWRITTEN = (
    "and nan is what a capture leaves behind: no replay has written it, or a stream did not wait"
)
# How far an answer may lie from eager, as a share of the largest number of the tensor. The stand-in
# runs the same CPU kernels for both, so only another order of sums is left. On a GPU, cuBLAS may
# take another algorithm in a capture, TF32 keeps 10 bits of an input, and atomic additions change
# their order; there an answer has passed the stand-in before.
ON_THE_STAND_IN = 1e-5
ON_A_GPU = 1e-2
SMALLEST = 1e-2  # of a scale: where a sum cancels, only rounding errors are left


def copy_tensors(value: Any) -> Any:
    """The value with tensors of its own, without history."""
    return tree_map_only(torch.Tensor, lambda tensor: tensor.detach().clone(), value)


def are_equal(these: Any, those: Any) -> bool:
    """Whether two results, or lists of results, hold the same tensors, bit for bit."""
    these, those = tensors_in(these), tensors_in(those)
    return len(these) == len(those) and all(map(_is_equal, these, those))


def are_close(these: Any, those: Any, *, margin: float = ON_THE_STAND_IN) -> bool:
    """Whether two results, or lists of results, hold the same tensors, but for rounding.

    margin: on the stand-in, as a share of the largest number of a tensor.
    """
    these, those = tensors_in(these), tensors_in(those)
    return len(these) == len(those) and all(
        a.shape == b.shape and not bool(_difference_mask(a, b, margin).any())
        for a, b in zip(these, those, strict=True)
    )


def tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors that a result holds, without history."""
    return [leaf.detach() for leaf in tree_leaves(value) if torch.is_tensor(leaf)]


def _is_equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Also where both hold NaN."""
    alike = one.shape == other.shape and one.dtype == other.dtype
    return alike and torch.allclose(one.cpu(), other.cpu(), rtol=0, atol=0, equal_nan=True)


def _difference_mask(yours, right, margin=ON_THE_STAND_IN):
    """Where two tensors of one shape differ by more than rounding; NaN differs from everything."""
    yours, right = yours.cpu(), right.cpu()
    if not right.is_floating_point():
        return yours != right
    yours, right = yours.double(), right.double()
    finite = right[right.isfinite()]
    scale = max(SMALLEST, finite.abs().max().item()) if finite.numel() else SMALLEST
    margin = margin if on_stand_in() else max(margin, ON_A_GPU)
    return ~((yours == right) | ((yours - right).abs() <= margin * scale))


def describe_first_difference(given: list, expected: list, what: str = "Result") -> str:
    """Where two lists of results part, in words: the tensor, its first number that differs, and
    both numbers.
    """
    for number, (yours, right) in enumerate(zip(given, expected, strict=True), 1):
        if not are_close(yours, right):
            part = _describe_tensor_difference(tensors_in(yours), tensors_in(right))
            return f"{what} {number} differs from the eager one: {part}."
    return "The results differ from the eager ones."


def _describe_tensor_difference(yours: list[torch.Tensor], right: list[torch.Tensor]) -> str:
    if len(yours) != len(right):
        return f"it holds {len(yours)} tensors instead of {len(right)}"
    number = [are_close(*pair) for pair in zip(yours, right, strict=True)].index(False)
    which = f"its tensor {number + 1} of {len(right)}" if len(right) > 1 else "it"
    one, other = yours[number], right[number]
    if one.shape != other.shape:
        return f"{which} has the shape {tuple(one.shape)} instead of {tuple(other.shape)}"
    at = _difference_mask(one, other).nonzero()[0].tolist()
    values = one[tuple(at)].item(), other[tuple(at)].item()
    texts = [f"{value:.4g}" for value in values]
    if texts[0] == texts[1]:
        texts = [f"{value:.9g}" for value in values]
    said = f"{which} holds {texts[0]}{f' at {at}' if at else ''} instead of {texts[1]}"
    return f"{said}, {UNWRITTEN}" if math.isnan(values[0]) else said
