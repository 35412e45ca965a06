"""torch's names for the time of a block: what the stand-in puts under which of them, and the block
itself.
"""

import sys
from contextlib import ExitStack, contextmanager
from functools import partial, wraps
from importlib import import_module
from importlib.util import find_spec
from threading import Thread
from types import FunctionType
from unittest.mock import patch

import torch
from torch import cuda
from torch.optim.optimizer import register_optimizer_step_pre_hook

from cpu_graph.autocast import gpu_autocast
from cpu_graph.callbacks import callback_patches, with_modes
from cpu_graph.control_flow import make_cond, make_while_loop
from cpu_graph.device import Device
from cpu_graph.errors import DEVICE_INDEX, NotModelled, cuda_error, not_modelled_stub, torch_error
from cpu_graph.functions import Functions
from cpu_graph.generators import Generator
from cpu_graph.graphs import CUDAGraph, TorchGraph
from cpu_graph.hints import InputLiveness, check_lost_gradients
from cpu_graph.methods import TYPES
from cpu_graph.nodes import Node, modes_off
from cpu_graph.operators import Operators
from cpu_graph.placement import GPU, device_type
from cpu_graph.pools import MemPool, ids
from cpu_graph.saving import register_cuda_locations
from cpu_graph.streams import Event, Stream, TorchEvent, TorchStream, external_stream

# torch's Python works
OWN = {"stream", "graph_pool_handle", "is_current_stream_capturing", "make_graphed_callables"}
OWN |= {"manual_seed", "manual_seed_all", "initial_seed", "seed", "seed_all"}
OWN |= {"get_rng_state", "get_rng_state_all", "set_rng_state", "set_rng_state_all", "check_error"}
REPLACED = {
    "is_available": lambda: True,
    "is_initialized": lambda: True,
    "device_count": lambda: 1,
    "current_device": lambda: 0,
    "set_device": lambda device: set_device(device),
    "init": lambda: None,
    "get_allocator_backend": lambda: "native",
    "is_bf16_supported": lambda *_, **__: True,
    "get_device_name": lambda device=None: name_of_device(device),
    "default_stream": lambda device=None: default_stream(device),
    "_initialized": True,
    "_exchange_device": lambda index: set_device(index),
    "_maybe_exchange_device": lambda index: set_device(index),
    "CUDAGraph": TorchGraph,
    "Event": Event,
    "ExternalStream": external_stream,
    "MemPool": MemPool,
    "Stream": Stream,
}
C_FUNCTIONS = (  # what others than torch.cuda call in C++
    "_cuda_getCurrentRawStream",
    "_cuda_beginAllocateToPool",
    "_cuda_beginAllocateCurrentThreadToPool",
    "_cuda_endAllocateToPool",
    "_cuda_releasePool",
)
GREEN = "torch.cuda.green_contexts"
NAMED = (  # (module:class, name, what is refused by name), if this torch has it
    ("torch.accelerator.graphs:Graph", "__new__", "torch.accelerator.Graph"),
    (f"{GREEN}:GreenContext", "create", f"{GREEN}.GreenContext"),
    (f"{GREEN}:GreenContext", "split", f"{GREEN}.GreenContext"),
    (f"{GREEN}:GreenContext", "max_workqueue_concurrency", f"{GREEN}.GreenContext"),
    (f"{GREEN}:SMPartition", "from_device", f"{GREEN}.SMPartition"),
)
HISTORY = "_record_memory_history", "_snapshot", "_dump_snapshot", "_save_segment_usage"
RANDOM = {
    "_lazy_init": lambda: None,
    "_lazy_call": lambda call, **_: call(),
    "current_device": lambda: 0,
    "device_count": lambda: 1,
    "is_initialized": lambda: True,
}
ACCELERATOR = {
    "is_available": lambda: True,
    "current_accelerator": lambda *_, **__: torch.device("cuda"),
    "device_count": lambda: 1,
    "current_device_index": lambda: 0,
    "set_device_index": lambda device: set_device(device),
}


def number(device):
    """The number that a device argument names, or 0."""
    return device if isinstance(device, int) else torch.device(device or "cuda").index or 0


def name_of_device(device):
    if number(device):
        raise torch_error("Invalid device id", AssertionError)
    return "the stand-in on the CPU"


def default_stream(device):
    if number(device):
        raise torch_error(DEVICE_INDEX.format(number(device)))
    return Stream(stream_id=0)


def set_device(device):
    """Make a device the current one: there is one, and a negative number changes nothing."""
    if not isinstance(device, int) or device >= 0:
        device_type(device)
    return 0


@contextmanager
def cpu_graphs():
    """Let torch's CUDA names work on CPU tensors in the
    block: streams, graphs, device="cuda" and so on.

    Everything is put back afterwards. What the stand-in does not model raises NotModelled; what a
    GPU refuses raises what it raises there. Tensors made in the block are CPU tensors after it.
    A real GPU is not touched. Raises RuntimeError inside another such block.
    """
    if CUDAGraph.stand_in is not None:
        raise RuntimeError("cpu_graphs() does not nest.")
    import_module("torch._dynamo")  # torch does at the first capture: it must not find these names
    device = Device()
    device.modes = Functions, Operators
    default = torch.utils._device.CURRENT_DEVICE
    with ExitStack() as stack:
        stack.callback(restore_default, device, default)
        device.for_the_block = stack.enter_context
        if hasattr(torch._C, "_override_stale_capture_stream"):  # since 2.15
            override = torch._C._override_stale_capture_stream()
            stack.callback(torch._C._set_override_stale_capture_stream, override)
        for cls in (CUDAGraph, Stream, Event, Generator, InputLiveness):
            stack.enter_context(patch.object(cls, "stand_in", device))
        for target, name, value in all_patches(device):
            stack.enter_context(patch.object(target, name, value, create=not hasattr(target, name)))
        stack.enter_context(register_cuda_locations(device))
        before_step = register_optimizer_step_pre_hook(partial(check_lost_gradients, device))
        stack.callback(before_step.remove)
        stack.enter_context(Operators(device))
        stack.enter_context(Functions(device))
        yield device


def restore_default(device, default):
    """The end of the block, when the modes are off again."""
    device.closed = True
    if torch.utils._device.CURRENT_DEVICE is not default:
        torch.set_default_device(default)


def all_patches(device):
    """(where, name, what) for everything that the stand-in replaces."""
    calls = cuda_functions(device)
    names = REPLACED | calls | {"default_generators": (Generator("cuda"),)}
    names["_lazy_init"] = not_modelled_stub(
        "torch.cuda._lazy_init, called where the stand-in does not see who asks for a GPU,"
    )
    same = {name: calls[name] for name in ("synchronize", "set_stream", "empty_cache")}
    same |= ACCELERATOR | {"current_stream": accelerator_current_stream(calls["current_stream"])}
    tables = (
        (cuda, names),
        (cuda, refused_functions(cuda, names)),
        (cuda, legacy_types(device)),
        (cuda.random, RANDOM),
        (cuda.memory, {"empty_cache": names["empty_cache"]}),
        (cuda.memory, refused_functions(cuda.memory, names)),
        (cuda.memory, {name: not_modelled_stub(f"torch.cuda.memory.{name}") for name in HISTORY}),
        (torch.accelerator, same),
        (torch.accelerator, refused_functions(torch.accelerator, same)),
    )
    for target, table in tables:
        for name, value in table.items():
            yield target, name, value
    yield cuda.graphs, "CUDAGraph", TorchGraph
    yield cuda.graphs, "_graph_pool_handle", lambda: (0, next(ids))
    yield cuda.graphs, "_cuda_isCurrentStreamCapturing", device.capturing
    yield cuda.graph, "default_capture_stream", None
    yield torch._C, "_host_emptyCache", lambda: None
    real = torch._C._group_tensors_by_device_and_dtype
    yield torch._C, "_group_tensors_by_device_and_dtype", wrap_group_tensors(real, device)
    yield from storage_patches(device)
    yield torch, "Generator", Generator
    yield torch, "compile", refusing_compile(torch.compile)
    yield from callback_patches(device)
    yield from other_patches(device)
    # RNNs then leave their weights apart
    yield torch.backends.cudnn, "is_acceptable", lambda tensor: False
    yield torch, "Stream", TorchStream
    yield torch, "Event", TorchEvent
    yield torch.jit, "trace", not_modelled_stub("torch.jit.trace")
    yield torch, "cond", make_cond(device)
    for module in (torch, torch._higher_order_ops):
        if hasattr(module, "while_loop"):
            yield module, "while_loop", make_while_loop(device)
    yield from autocast_patches(device)


def other_patches(device):
    """What is replaced for what it does on the device, and for what is refused by name."""
    yield torch.Tensor, "record_stream", make_record_stream(device)
    wrapper = not_modelled_stub("A subclass made by torch.Tensor._make_wrapper_subclass")
    yield torch.Tensor, "_make_wrapper_subclass", wrapper
    if torch.distributed.is_available():
        yield torch.distributed.distributed_c10d, "is_nccl_available", not_modelled_stub("NCCL")
    for holder, name, called in NAMED:
        if module := sys.modules.get(holder.partition(":")[0]):
            cls = getattr(module, holder.partition(":")[2], module)
            if hasattr(cls, name):
                yield cls, name, staticmethod(not_modelled_stub(called))
    for name in C_FUNCTIONS:
        if hasattr(torch._C, name):
            yield torch._C, name, not_modelled_stub(f"torch._C.{name}")
    if find_spec("torch.utils._cuda_debug"):  # since 2.15
        module = import_module("torch.utils._cuda_debug")
        yield module, "_CUDAGraphInputLivenessTracker", InputLiveness
    yield Thread, "start", thread_start(Thread.start, device)


def autocast_patches(device):
    """torch's names for autocast."""
    for name in ("is_autocast_enabled", "get_autocast_dtype"):
        yield torch, name, redirect_autocast_to_cpu(getattr(torch, name))
    for name in ("set_autocast_enabled", "set_autocast_dtype"):
        yield torch, name, redirect_autocast_to_cpu(getattr(torch, name), device)
    cls = torch.amp.autocast_mode.autocast
    yield cls, "__init__", autocast_init(cls.__init__, device)


def cuda_functions(device):
    """The functions of torch.cuda that work on the device, by their names."""

    def synchronize(where=None):
        device_type(where)
        if device.under_way:  # in whichever thread, and in each mode
            device.under_way.lost = True
            raise cuda_error(900)
        device.order.synchronize()

    def set_stream(stream):
        device.stream = device.stream if stream is None else stream.stream_id

    def current_stream(where=None):
        return default_stream(where) if number(where) else Stream(stream_id=device.stream)

    def empty_cache():
        device.order.synchronize()  # as the driver does when it takes memory back
        with modes_off():
            device.memory.empty_cache()

    functions = synchronize, set_stream, current_stream, empty_cache
    named = {function.__name__: function for function in functions}
    return named | {"_sleep": lambda cycles: sleep(device, cycles)}


def accelerator_current_stream(current_stream):
    """torch.accelerator's current stream: of another class, so it equals none of torch.cuda's."""

    def call(*given):
        stream = current_stream(*given)
        stream.external = True
        return stream

    return call


def storage_patches(device):
    """What a storage says of its place, and copies of its memory: launches like all others."""
    storages = torch.UntypedStorage
    real, shared = storages.device, storages.is_shared
    cloned, copied = storages.clone, storages.copy_
    resized = storages.resize_

    def where(storage):
        block = device.memory.blocks.get(storage.data_ptr())
        return GPU if block and block.kind == "cuda" else real.__get__(storage)

    def is_shared(storage):
        return where(storage).type == "cuda" or shared(storage)

    def as_tensor(storage):
        return torch.empty(0, dtype=torch.uint8, device=where(storage)).set_(storage)

    def clone(storage):
        if where(storage).type != "cuda":
            return cloned(storage)
        return as_tensor(storage).clone().untyped_storage()

    def copy_(storage, source, non_blocking=None):
        if "cuda" not in (where(storage).type, where(source).type):
            return copied(storage, source, non_blocking)
        as_tensor(storage).copy_(as_tensor(source), non_blocking=bool(non_blocking))
        return storage

    def resize_(storage, size):
        if where(storage).type == "cuda":
            raise NotModelled("UntypedStorage.resize_ of a CUDA tensor is not modelled.")
        return resized(storage, size)

    yield storages, "device", property(where)
    yield storages, "resize_", resize_
    yield storages, "is_shared", is_shared
    yield storages, "clone", clone
    yield storages, "copy_", copy_


def sleep(device, cycles):
    node = Node(lambda: None, (), {}, None, {})
    node.cycles = cycles
    if device.capturing():
        device.capture.add(node)
    else:
        node.stream, node.clock = device.stream, device.order.tick(device.stream)
        device.order.log_launch(node)


def refused_functions(module, names):
    """The functions of torch.cuda or torch.accelerator that are not modelled, by their names."""
    others = [name for name in module.__all__ if name not in names and name not in OWN]
    functions = {name: getattr(module, name, None) for name in others}
    return {
        name: wraps(function)(not_modelled_stub(f"{module.__name__}.{name}"))
        for name, function in functions.items()
        if isinstance(function, FunctionType)
    }


def legacy_types(device):
    """torch.cuda.FloatTensor and its kin: what isinstance says of a tensor is all that is known."""

    class Legacy(type):
        def __instancecheck__(cls, thing):
            on_gpu = isinstance(thing, torch.Tensor) and device.memory_kind(thing) == "cuda"
            return on_gpu and thing.dtype is cls.dtype

        def __call__(cls, *_, **__):
            raise NotModelled(f"torch.cuda.{cls.__name__}() is not modelled.")

    names = {name.removeprefix("torch."): dtype for name, dtype in TYPES.items()}
    return {name: Legacy(name, (), {"dtype": dtype}) for name, dtype in names.items()}


def make_record_stream(device):
    """Tensor.record_stream: the memory is not handed on before the host has waited."""

    def call(tensor, stream):
        if not isinstance(stream, torch.Stream):
            words = "record_stream(): argument 's' (position 1) must be Stream"
            raise torch_error(f"{words}, not {type(stream).__name__}")
        block = device.memory.find(tensor)
        if block is None:
            words = "Could not run 'aten::record_stream' with arguments from the 'CPU' backend."
            raise torch_error(words, NotImplementedError)
        block.used_elsewhere = True

    return call


def thread_start(start, device):
    """Thread.start: what the thread does is seen, and what it does on the device is refused."""

    def call(thread):
        thread.run = with_modes(device, thread.run)
        return start(thread)

    return call


def refusing_compile(compiler):
    """torch.compile, which is not modelled: a function may be decorated, and is refused when it is
    called. With disable=True nothing is compiled.
    """

    def compiled(model=None, **options):
        if options.get("disable"):
            return compiler(model, **options)
        if model is None:
            return lambda model: compiled(model, **options)
        refuse = not_modelled_stub("torch.compile")
        return refuse() if isinstance(model, torch.nn.Module) else wraps(model)(refuse)

    return compiled


def wrap_group_tensors(real, device):
    """Optimizers ask C++ for the devices of their parameters."""

    def group(lists, *indices):
        groups = real(lists, *indices)

        def where(there, tensors):
            on_gpu = any(one is not None and device.memory_kind(one) == "cuda" for one in tensors)
            return GPU if on_gpu else there

        return {(where(at, one[0][0]), dtype): one for (at, dtype), one in groups.items()}

    return group


def redirect_autocast_to_cpu(function, device=None):
    """A call about autocast on "cuda", which is the default, made about the CPU."""

    def call(where="cuda", *args):
        if where != "cuda":
            return function(where, *args)
        if device:
            install_gpu_autocast(device)
        return function("cpu", *args)

    return call


def autocast_init(init, device):
    def init_on_cpu(self, device_type, dtype=None, enabled=True, cache_enabled=None):
        if device_type == "cuda":
            device_type = "cpu"
            dtype = dtype or torch.float16
            install_gpu_autocast(device)
        init(self, device_type, dtype, enabled, cache_enabled)

    return init_on_cpu


def install_gpu_autocast(device):
    """From the first autocast on "cuda" on, to the end of the block of cpu_graphs."""
    if not device.casts:
        device.casts = True
        device.for_the_block(gpu_autocast(device))
