"""Names of torch whose loss nothing else would notice."""

import inspect
from importlib import import_module
from importlib.util import find_spec

import pytest
import torch

from cpu_graph import cpu_graphs, torch_names
from cpu_graph.device import Device

CUDA_BUILD = {"_host_emptyCache"}  # missing from builds of torch for the CPU


def test_every_replaced_name_is_torchs():
    """What torch has given up would be made, and nothing would say so."""
    missing = {
        f"{getattr(place, '__name__', place)}.{name}"
        for place, name, _ in torch_names.all_patches(Device())
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
