"""What an answer changes for the whole process ends with its run."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, TextIO

import torch

SETTINGS = (  # how torch reads and sets what holds for the whole process
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.is_grad_enabled, torch.set_grad_enabled),
    (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    (torch.get_num_threads, torch.set_num_threads),
)


@contextmanager
def undone() -> Iterator[None]:
    """Put torch's settings back after the block, and let nothing in it close the notebook's
    streams.
    """
    before = [get() for get, _ in SETTINGS]
    try:
        with redirect_stdout(_Open(sys.stdout)), redirect_stderr(_Open(sys.stderr)):  # type: ignore[type-var]
            yield
    finally:
        for (get, put), value in zip(SETTINGS, before, strict=True):
            if get() != value:
                put(value)


class _Open:
    """A stream that stays open."""

    def __init__(self, stream: TextIO):
        self._stream = stream

    def close(self) -> None:
        """Only flush."""
        self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
