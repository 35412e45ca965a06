"""How far two values are apart, tensors or numbers."""

from typing import Any, NamedTuple

import torch


class FirstDifferingElement(NamedTuple):
    """Where two values differ first: the index, both numbers there, and the largest difference."""

    place: tuple[int, ...]
    one: float
    other: float
    largest: float

    def __str__(self) -> str:
        where = f" at {list(self.place)}" if self.place else ""
        most = f"; the largest difference is {self.largest:.3g}"
        told = f"{where}: eager {self.one:.6g}, with graphs {self.other:.6g}"
        return told + (most if self.largest != abs(self.one - self.other) else "")


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal to the bit, NaN to NaN."""
    if one is other:
        return True
    if not (is_numeric(one) and is_numeric(other)):
        return bool(repr(one) == repr(other))
    if _has_same_shape_and_device(one, other) and torch.equal(one, other):
        return True
    one, other = (as_cpu_float64(value).nan_to_num(7.5) for value in (one, other))
    return torch.equal(one, other)


def largest_gap(one: Any, other: Any) -> float:
    """The largest difference of two values of one shape; infinity for a NaN beside a number."""
    gaps = _gaps(as_cpu_float64(one), as_cpu_float64(other))
    return float(gaps.max()) if gaps.numel() else 0.0


def first_differing_element(one: Any, other: Any, allowed: float) -> FirstDifferingElement | None:
    """The first place where two values are further apart than allowed; None if they are not."""
    one, other = as_cpu_float64(one), as_cpu_float64(other)
    gaps = _gaps(one, other)
    places = (gaps > allowed).nonzero()
    if not len(places):
        return None
    index = tuple(places[0].tolist())
    return FirstDifferingElement(index, float(one[index]), float(other[index]), float(gaps.max()))


def as_cpu_float64(value: Any) -> torch.Tensor:
    """A tensor or a number as a tensor of the CPU, of float64."""
    tensor = value if isinstance(value, torch.Tensor) else torch.tensor(value, device="cpu")
    tensor = tensor.detach().cpu()
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    return (torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor).double()


def rounding(value: Any) -> float:
    """How far two results of one rounding each may be apart."""
    floating = isinstance(value, torch.Tensor) and value.is_floating_point()
    return 2 * torch.finfo(value.dtype).eps if floating else 0.0


def max_abs(value: Any) -> float:
    """The largest finite number in a value."""
    sizes = as_cpu_float64(value).abs()
    sizes = sizes[sizes.isfinite()]
    return float(sizes.max()) if sizes.numel() else 0.0


def _gaps(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    gaps = (one - other).abs()
    gaps[one == other] = 0  # two infinities
    gaps[one.isnan() & other.isnan()] = 0
    return gaps.nan_to_num(nan=torch.inf)


def _has_same_shape_and_device(one: Any, other: Any) -> bool:
    """Whether two values are tensors that torch compares where they are."""
    forms = [
        (value.shape, value.dtype, value.device)
        for value in (one, other)
        if isinstance(value, torch.Tensor) and value.layout == torch.strided
    ]
    return len(forms) == 2 and forms[0] == forms[1]


def is_numeric(value: Any) -> bool:
    """Whether a value is a tensor or a number."""
    return isinstance(value, torch.Tensor | int | float)
