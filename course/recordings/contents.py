"""What a name holds, and how torch is set: to notice what a cell changed, in place too.

Two fingerprints are equal where the values are: plain data by what it says, functions and classes
by their code, objects of the notebook and the project by their attributes. Whatever else there is
counts by identity, so that a change inside of it is not seen.
"""

import inspect
import json
import re
import sys
import warnings
from collections.abc import Callable
from functools import cached_property, partial
from types import CodeType, FunctionType
from typing import Any

import pandas as pd

from course.recordings.fingerprints import ROOMS
from course.recordings.values import encode

DEEPEST = 12  # containers inside of containers
MOST = 20_000  # parts of one value
_METHODS = property | staticmethod | classmethod
# of the files that IPython says it runs
CELL = re.compile(r"ipykernel_\d|<ipython-input")
LARGEST = 5_000  # numbers in a table; larger ones count by identity


def content(value: Any) -> Any:
    """A fingerprint of a value, to be compared with ==."""
    try:
        return _Parts().of(value)
    except OverflowError:
        return ("large", id(value), len(value) if hasattr(value, "__len__") else 0)
    except Exception:  # an object that cannot even be asked for its attributes
        return ("opaque", id(value))


class _Parts:
    """Takes one value apart; raises OverflowError beyond MOST parts."""

    def __init__(self) -> None:
        self.left = MOST
        self.open: list[int] = []  # what contains the part at hand

    def of(self, value: Any) -> Any:
        self.left -= 1
        if self.left < 0:
            raise OverflowError
        if value is None or isinstance(value, bool | int | float | complex | str | bytes):
            return (type(value).__name__, repr(value))
        if id(value) in self.open or len(self.open) > DEEPEST:
            return ("again", id(value))
        self.open.append(id(value))
        try:
            return self._taken_apart(value)
        finally:
            self.open.pop()

    def _taken_apart(self, value: Any) -> Any:
        if isinstance(value, dict):
            return ("dict", *((self.of(key), self.of(item)) for key, item in value.items()))
        if isinstance(value, list | tuple):
            return (type(value).__name__, *map(self.of, value))
        if isinstance(value, set | frozenset):
            return ("set", frozenset(map(self.of, value)))
        if isinstance(value, pd.DataFrame | pd.Series):
            return self._table(value)
        if callable(value) or isinstance(value, CodeType | _METHODS):
            return self._code_of(value)
        return self._object(value)

    def _code_of(self, value: Any) -> Any:
        if isinstance(value, CodeType):
            names = (value.co_names, value.co_varnames)
            return (value.co_code, *names, *map(self.of, value.co_consts))
        if isinstance(value, FunctionType):
            parts = (value.__code__, value.__defaults__, value.__kwdefaults__)
            return ("function", *map(self.of, parts))
        if isinstance(value, partial):
            return ("partial", *map(self.of, (value.func, value.args, value.keywords)))
        if isinstance(value, property):
            return ("property", *map(self.of, (value.fget, value.fset)))
        if isinstance(value, staticmethod | classmethod):
            return (type(value).__name__, self.of(value.__func__))
        if isinstance(value, type):
            return ("class", value.__qualname__, self._class(value))
        return self._object(value)

    def _object(self, value: Any) -> Any:
        if _is_tensor(value):
            return ("tensor", id(value), None if value.is_inference() else value._version)
        if _ours(type(value)) and hasattr(value, "__dict__"):
            return ("object", id(value), self.of(type(value)), self._attributes(value))
        return ("other", id(value))

    def _table(self, value: pd.DataFrame | pd.Series) -> Any:
        if value.size > LARGEST:
            return ("table", id(value), value.shape)
        try:
            return ("table", json.dumps(encode("", value)))
        except (TypeError, ValueError, RecursionError):
            return ("table", id(value), value.shape)

    def _attributes(self, value: Any) -> Any:
        """Of an object, without what its cached properties have worked out."""
        lazy = {
            name
            for kind in type(value).__mro__
            for name, item in vars(kind).items()
            if isinstance(item, cached_property)
        }
        return self.of({name: item for name, item in vars(value).items() if name not in lazy})

    def _class(self, value: type) -> Any:
        if not _ours(value):
            return id(value)
        # of Python's own names only methods: copying an object lets it note more on the class
        return self.of(
            {
                name: item
                for name, item in vars(value).items()
                if not name.startswith(("__", "_abc_")) or isinstance(item, FunctionType)
            }
        )


def _is_tensor(value: Any) -> bool:
    return "torch" in sys.modules and isinstance(value, sys.modules["torch"].Tensor)


def _ours(kind: type) -> bool:
    """Whether a class, or one that it builds on, is the notebook's, the project's or a Module."""
    return any(
        one.__module__.partition(".")[0] in ("__main__", *ROOMS)
        or (one.__module__, one.__name__) == ("torch.nn.modules.module", "Module")
        for one in kind.__mro__
    )


def replaced(definition: str) -> bool:
    """Whether a function or class of the project, by its full name, was written in the notebook,
    all or in part; False while its module is not imported.
    """
    value = defined(definition)
    own = vars(value).values() if isinstance(value, type) else [value]
    functions = [inspect.unwrap(one) for one in own if callable(one)]
    return any(isinstance(one, FunctionType) and _of_the_notebook(one) for one in functions)


def _of_the_notebook(function: FunctionType) -> bool:
    return function.__globals__.get("__name__") == "__main__" or bool(
        CELL.search(function.__code__.co_filename)
    )


def defined(definition: str) -> Any:
    """What a definition of the project holds now; ... while its module is not imported.

    A table or list of the project counts as None: it may fill while lessons run.
    """
    module, _, name = definition.rpartition(".")
    if module not in sys.modules:
        return ...
    value = getattr(sys.modules[module], name, None)
    return value if callable(value) or isinstance(value, int | float | str) else None


def _settings(torch: Any) -> dict[str, Callable[[], Any]]:
    cuda, cudnn = torch.backends.cuda, torch.backends.cudnn
    return {
        "the default dtype": torch.get_default_dtype,
        "the default device": torch.get_default_device,
        "the precision of float32 products": torch.get_float32_matmul_precision,
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled,
        "gradients": torch.is_grad_enabled,
        "inference mode": torch.is_inference_mode_enabled,
        "anomaly detection": torch.is_anomaly_enabled,
        "autocast": torch.is_autocast_enabled,
        "cuDNN": lambda: (cudnn.enabled, cudnn.benchmark, cudnn.deterministic),
        "flash attention": cuda.flash_sdp_enabled,
        "memory-efficient attention": cuda.mem_efficient_sdp_enabled,
        "plain attention": cuda.math_sdp_enabled,
        "reduced precision in products": lambda: (
            cuda.matmul.allow_fp16_reduced_precision_reduction,
            cuda.matmul.allow_bf16_reduced_precision_reduction,
        ),
    }


def torch_settings() -> dict[str, str]:
    """How torch is set, by the name of each setting; empty until torch is imported."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "backends"):
        return {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {name: str(ask()) for name, ask in _settings(torch).items()}
