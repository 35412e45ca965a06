"""Compiled functions that make CUDA graphs of their own, and what is graphed already."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any
from unittest.mock import patch
from weakref import WeakKeyDictionary

import torch

from capturable.live_objects import own_attributes
from capturable.restore.reachable import Place

MODES = ("reduce-overhead", "max-autotune")
CUDAGRAPHS = "triton.cudagraphs"
GRAPHED = "make_graphed_callables"
_told: WeakKeyDictionary = WeakKeyDictionary()  # what uncompiled() has not compiled -> why graphs


def functions_with_graphs(places: Iterable[Place], *roots: Any) -> Iterator[tuple[str, str]]:
    """Name and setting of each function in reach that makes graphs, or replays one."""
    things = [("the step", root) for root in roots]
    things += [(place.label, place.get()) for place in places]
    seen: set[int] = set()
    told: tuple[str, ...] = ()
    for name, thing in things:
        setting = _graph_setting(thing)
        if setting and id(thing) not in seen and not name.startswith(told):
            seen.add(id(thing))
            # what a compiled module holds is compiled too; what is graphed is told once
            told += ("" if setting == GRAPHED else f"{name}.",)
            yield name, setting


def _graph_setting(thing: Any) -> str:
    """By which setting of torch.compile, or by what, a function makes graphs, or ""."""
    try:
        if thing in _told:
            return _told[thing]
    except TypeError:  # it has no hash, or no weak reference
        return ""
    names = own_attributes(thing)
    forward = names.get("forward", thing)
    if type(forward) is FunctionType and forward.__qualname__.startswith(f"{GRAPHED}."):
        return GRAPHED
    if "_torchdynamo_orig_callable" not in names:
        return ""
    config = _inductor_config(thing)
    if config and config.get(CUDAGRAPHS):
        return f"{CUDAGRAPHS}, as mode='reduce-overhead' sets it"
    return "backend='cudagraphs'" if "cudagraphs" in _backend(thing) else ""


def _inductor_config(compiled: Any) -> dict | None:
    """The settings of Inductor (tried on torch 2.11 to 2.15)."""
    context = getattr(compiled, "dynamo_ctx", None)
    config = getattr(context, "compiler_config", None)
    get = getattr(compiled, "get_compiler_config", None) or config
    return get() if callable(get) else get


def _backend(compiled: Any) -> str:
    """The name of the backend (tried on torch 2.11 to 2.15)."""
    code, cells = getattr(compiled, "__code__", None), getattr(compiled, "__closure__", None)
    held = dict(zip(code.co_freevars, cells, strict=True)) if code and cells else {}
    context = getattr(compiled, "dynamo_ctx", None)
    backend = held["callback"].cell_contents if "callback" in held else context
    backend = getattr(backend, "callback", backend)
    while backend is not None and not hasattr(backend, "compiler_name"):
        backend = getattr(backend, "_torchdynamo_orig_backend", None)
    return str(getattr(backend, "compiler_name", ""))


@contextmanager
def disable_torch_compile() -> Iterator[None]:
    """Let torch.compile return what it is given, and remember whether that would make graphs."""

    def compile_(model: Any = None, **options: Any) -> Any:
        if model is None:
            return lambda function: compile_(function, **options)
        setting = _graph_setting_of_options(options)
        if setting and not options.get("disable"):
            _told[model] = setting
        return model

    with patch.object(torch, "compile", compile_):
        yield


def _graph_setting_of_options(options: dict[str, Any]) -> str:
    if options.get("mode") in MODES:
        return f"mode={options['mode']!r}"
    if options.get("backend") == "cudagraphs":
        return "backend='cudagraphs'"
    return CUDAGRAPHS if (options.get("options") or {}).get(CUDAGRAPHS) else ""
