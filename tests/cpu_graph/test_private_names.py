"""Each private name of torch that the stand-in uses:
this says which one a new torch has given up.
"""

import inspect
import pkgutil
from importlib import import_module
from importlib.util import find_spec

import pytest
import torch

from cpu_graph import cpu_graphs, torch_names
from cpu_graph.device import Device

CUDA_BUILD = {"_host_emptyCache"}  # missing from builds of torch for the CPU
NAMES = {  # module -> what it holds
    "torch._C": [
        "DisableTorchFunction",
        "_EnableTorchFunction",
        "_ExcludeDispatchKeyGuard",
        "_dispatch_get_all_op_names",
        "_dispatch_has_kernel_for_dispatch_key",
        "_get_dispatch_mode",
        "_TorchDispatchModeKey",
        "_group_tensors_by_device_and_dtype",
        "_host_emptyCache",
    ],
    "torch._C._functorch": ["get_unwrapped", "is_functorch_wrapped_tensor"],
    "torch._C._autograd": ["_push_saved_tensors_default_hooks"],
    "torch._C._nn": ["_parse_to"],
    "torch": ["_conj", "_neg_view", "_dynamo"],
    "torch._ops": ["OpOverload", "OpOverloadPacket"],
    "torch.autograd": ["_engine_run_backward"],
    "torch.autograd.function": ["BackwardCFunction"],
    "torch.cuda": ["_exchange_device", "_initialized", "_maybe_exchange_device"],
    "torch.cuda.graphs": ["_cuda_isCurrentStreamCapturing", "_graph_pool_handle"],
    "torch.library": ["_impls"],
    "torch.nn.parameter": ["UninitializedTensorMixin"],
    "torch.serialization": ["_package_registry"],
    "torch.utils._device": ["CURRENT_DEVICE"],
    "torch.utils._pytree": ["tree_leaves", "tree_map_only"],
}
PARAMETERS = {  # function or class -> its first parameters
    "torch._tensor_str._add_suffixes": ["tensor_str", "suffixes", "indent", "force_newline"],
    "torch.amp.autocast_mode.autocast": ["device_type", "dtype", "enabled", "cache_enabled"],
    "torch.backends.cudnn.is_acceptable": ["tensor"],
    "torch.cuda._lazy_init": [],
    "torch.cuda._sleep": ["cycles"],
    "torch.cuda.random._lazy_call": ["callable"],
    "torch.cuda.random._lazy_init": [],
    "torch.library.Library": ["ns", "kind", "dispatch_key"],
    "torch.overrides._get_current_function_mode_stack": [],
    "torch.serialization.register_package": ["priority", "tagger", "deserializer"],
    "torch.utils._device._device_constructors": [],
    "torch.utils._python_dispatch._disable_current_modes": [],
    "torch.utils._python_dispatch._get_current_dispatch_mode_stack": [],
}


@pytest.mark.parametrize("module", NAMES)
def test_private_names_are_there(module):
    absent = {name for name in NAMES[module] if not hasattr(import_module(module), name)}
    assert absent <= (set() if torch.backends.cuda.is_built() else CUDA_BUILD)


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_private_function_takes_the_same(name):
    found = pkgutil.resolve_name(name)
    assert list(inspect.signature(found).parameters)[: len(PARAMETERS[name])] == PARAMETERS[name]


def test_every_replaced_name_is_torchs():
    """What torch has given up would be made, and nothing would say so."""
    missing = {
        f"{getattr(place, '__name__', place)}.{name}"
        for place, name, _ in torch_names.replacements(Device())
        if not hasattr(place, name)
    }
    assert missing <= (
        {f"torch._C.{name}" for name in CUDA_BUILD} if not torch.backends.cuda.is_built() else set()
    )


@pytest.mark.skipif(not find_spec("torch.utils._cuda_debug"), reason="since torch 2.15")
def test_the_tracker_of_inputs_has_torchs_methods():
    real = import_module("torch.utils._cuda_debug")._CUDAGraphInputLivenessTracker
    for name in ("start", "stop", "check_alive"):
        assert callable(getattr(real, name))
    assert list(inspect.signature(real.check_alive).parameters) == ["self", "capture_pools"]


def test_an_operators_kernels_in_python_are_listed_as_the_stand_in_knows_them():
    with torch.library._scoped_library("cpu_graph_names", "DEF") as library:
        library.define("named(Tensor x) -> Tensor")
        library.impl("named", torch.clone, "CUDA")
        assert "cpu_graph_names/named/CUDA" in torch.library._impls
        operator = torch.ops.cpu_graph_names.named.default
        key = torch._C.DispatchKeySet(torch._C.DispatchKey.CUDA)
        assert operator.redispatch(key, torch.ones(2)).tolist() == [1, 1]


def test_statistics_of_batch_norm_are_named_as_the_stand_in_knows_them():
    for overload in (
        torch.ops.aten.native_batch_norm.default,
        torch.ops.aten._native_batch_norm_legit.default,
    ):
        names = [argument.name for argument in overload._schema.arguments]
        assert {"running_mean", "running_var"} <= set(names)


def test_torchs_class_of_graphs_can_stand_on_another_base():
    real = torch.cuda.graphs.CUDAGraph
    assert len(real.__bases__) == 1
    with cpu_graphs():
        graph = torch.cuda.CUDAGraph()
        assert {name for name in vars(real) if not name.startswith("__")} <= set(dir(type(graph)))
