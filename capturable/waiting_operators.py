"""Operators whose CUDA kernels make the CPU wait, by the name that a dispatch mode sees.

On a CPU their kernels read values as well, and nothing tells; so they are a table. It was drawn up
from torch's sources (2.11 to 2.15), and corrected by captures on an H200 (2.15). On a GPU torch's
sync debug mode is asked instead.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch._ops import OpOverload

ERRORS = "whether the factorisation failed is read on the CPU"
SIZE = "the size of the result depends on the data"

CPU_ARGUMENTS = ("aten::_pack_padded_sequence", "aten::_ctc_loss")  # these take lengths of the CPU


class Call(NamedTuple):
    """A call of an operator: its overload, positional and keyword arguments."""

    func: OpOverload
    args: tuple
    kwargs: dict

    def argument(self, name: str) -> Any:
        """The value of an argument, or its default; None where there is no such argument."""
        for position, argument in enumerate(self.func._schema.arguments):
            if argument.name == name:
                given = self.args[position] if position < len(self.args) else argument.default_value
                return self.kwargs.get(name, given)
        return None

    def has_tensor(self, name: str) -> bool:
        """Whether an argument is a tensor."""
        return isinstance(self.argument(name), torch.Tensor)


def _no_range(call: Call) -> bool:
    return call.argument("min") == call.argument("max")


def _isin_sorts(call: Call) -> bool:
    """Whether isin sorts, and looks for unique elements first, as it does for many elements to
    test."""
    elements, tests = call.argument("elements"), call.argument("test_elements")
    if not isinstance(elements, torch.Tensor) or not isinstance(tests, torch.Tensor):
        return False
    many = tests.numel() >= int(10.0 * elements.numel() ** 0.145)
    return many and not call.argument("assume_unique")


def _checked(call: Call) -> bool:
    return not call.argument("unsafe")


def _std_read(call: Call) -> bool:
    """Whether std is checked on the CPU; torch 2.14 and newer check it on the GPU."""
    return torch.__version__ < "2.14" and call.has_tensor("std")


def _sparse(call: Call) -> bool:
    """Whether a factor is sparse, by coordinates."""
    tensors = (value for value in call.args if isinstance(value, torch.Tensor))
    return any(tensor.layout == torch.sparse_coo for tensor in tensors)


def _always(_: Call) -> bool:
    return True


# the operator -> what the CPU waits for, and for which calls
WAITING: dict[str, tuple[str, Callable[[Call], bool]]] = {
    "aten::_linalg_check_errors": (ERRORS, _always),
    "aten::_linalg_eigh": (ERRORS, _always),
    "aten::_linalg_svd": (ERRORS, _always),
    "aten::linalg_eig": (ERRORS, _always),
    "aten::_linalg_eigvals": (ERRORS, _always),
    "aten::linalg_lstsq": (ERRORS, _always),
    "aten::linalg_pinv": (ERRORS, _always),
    "aten::cholesky_inverse": (ERRORS, _always),
    "aten::linalg_matrix_exp": ("the norms of the matrices are read on the CPU", _always),
    "aten::histc": ("without min and max, the range is read on the CPU", _no_range),
    "aten::_ctc_loss": ("the lengths are read on the CPU", lambda c: c.has_tensor("input_lengths")),
    "aten::normal": ("the least std is read on the CPU", _std_read),
    "aten::masked_fill": ("the value is read on the CPU", lambda c: c.has_tensor("value")),
    "aten::masked_fill_": ("the value is read on the CPU", lambda c: c.has_tensor("value")),
    "aten::index_fill": ("the value is read on the CPU", lambda c: c.has_tensor("value")),
    "aten::index_fill_": ("the value is read on the CPU", lambda c: c.has_tensor("value")),
    "aten::linspace": ("start and end are read on the CPU", lambda c: c.has_tensor("start")),
    "aten::logspace": ("start and end are read on the CPU", lambda c: c.has_tensor("start")),
    "aten::isin": (SIZE, _isin_sorts),
    "aten::segment_reduce": ("the lengths are checked on the CPU", _checked),
    "aten::masked_scatter_backward": (SIZE, _always),
    "aten::_to_sparse": (SIZE, _always),
    "aten::_coalesce": (SIZE, _always),
    **dict.fromkeys(
        ("aten::mm", "aten::mv", "aten::bmm", "aten::addmm", "aten::_sparse_addmm"),
        ("a sparse factor (COO) is sorted, which waits", _sparse),
    ),
    "torchvision::nms": (SIZE, _always),
}


def wait_of(func: OpOverload, args: tuple, kwargs: dict) -> str | None:
    """What the CPU waits for in a call on a GPU, as far as the table knows; else None."""
    what, when = WAITING.get(func._schema.name, ("", None))
    return what if when is not None and when(Call(func, args, kwargs)) else None
