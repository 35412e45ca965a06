"""examples.graph_nodes against a driver that knows one graph:
a kernel with three parameters, and a copy that waits.
"""

import ctypes
import struct
import sys
from enum import IntEnum
from types import ModuleType, SimpleNamespace

import pytest
import torch

from examples import graph_nodes

KINDS = {
    1: "CU_GRAPH_NODE_TYPE_KERNEL",
    2: "CU_GRAPH_NODE_TYPE_MEMCPY",
    3: "CU_GRAPH_NODE_TYPE_MEMSET",
}
VALUES = [struct.pack("i", 1000), struct.pack("f", -0.1), b"three pointers"]
Result = IntEnum("Result", {"CUDA_SUCCESS": 0, "CUDA_ERROR_INVALID_VALUE": 1})
FINE = Result.CUDA_SUCCESS


class Driver(ModuleType):
    """As much of cuda.bindings.driver as graph_nodes asks."""

    def __init__(self):
        super().__init__("cuda.bindings.driver")
        self.buffers = [ctypes.create_string_buffer(value, len(value)) for value in VALUES]
        self.pointers = (ctypes.c_void_p * 3)(*map(ctypes.addressof, self.buffers))
        self.given = {}

    def cuGraphGetNodes(self, raw, count=0):
        return FINE, [1, 2, 3] if count else None, 3

    def cuGraphGetEdges(self, raw, count=0):
        return FINE, [2, 1][: count or None], [3, 2][: count or None], None, 2

    def cuGraphNodeGetType(self, node):
        return FINE, SimpleNamespace(name=KINDS[node])

    def cuGraphKernelNodeGetParams(self, node):
        sizes = {
            "gridDimX": 2,
            "gridDimY": 3,
            "gridDimZ": 1,
            "blockDimX": 32,
            "blockDimY": 4,
            "blockDimZ": 1,
        }
        return FINE, SimpleNamespace(
            func="function", kernelParams=ctypes.addressof(self.pointers), **sizes
        )

    def cuFuncGetName(self, function):
        return FINE, b"_ZN2at6nativeEv"

    def cuFuncGetParamInfo(self, function, number):
        return (
            (FINE, 0, len(VALUES[number]))
            if number < 3
            else (Result.CUDA_ERROR_INVALID_VALUE, None, None)
        )

    def cuGraphMemcpyNodeGetParams(self, node):
        return FINE, SimpleNamespace(WidthInBytes=4096, Height=1, Depth=1, srcHost=1, srcDevice=0)

    def cuGraphMemsetNodeGetParams(self, node):
        return FINE, SimpleNamespace(width=4, height=2, elementSize=1)

    def cuGraphExecKernelNodeSetParams(self, executable, node, p):
        pointers = (ctypes.c_void_p * 3).from_address(p.kernelParams)
        self.given[node] = [
            ctypes.string_at(at, len(value)) for at, value in zip(pointers, VALUES, strict=True)
        ]
        return (FINE,)

    def cuCtxGetCurrent(self):
        return FINE, "context"

    def cuGraphExecMemcpyNodeSetParams(self, executable, node, p, context):
        self.given[node] = (p.srcHost, p.srcDevice, context)
        return (FINE,)

    def cuGraphNodeSetEnabled(self, executable, node, on):
        self.given[node] = on
        return (FINE,)


@pytest.fixture
def driver(monkeypatch):
    own, package = Driver(), ModuleType("cuda.bindings")
    package.driver = own
    for name, module in {
        "cuda": ModuleType("cuda"),
        "cuda.bindings": package,
        "cuda.bindings.driver": own,
    }.items():
        monkeypatch.setitem(sys.modules, name, module)
    return own


GRAPH = SimpleNamespace(raw_cuda_graph=lambda: 7, raw_cuda_graph_exec=lambda: 8)


def test_it_lists_nodes_and_edges(driver):
    kernel, copy, fill = graph_nodes.rows_of(GRAPH)
    assert kernel == {
        "kind": "kernel",
        "kernel": "at::native()",
        "blocks": 6,
        "threads": 128,
        "bytes": 0,
    }
    assert (copy["kind"], copy["bytes"], fill["kind"], fill["bytes"]) == (
        "memcpy",
        4096,
        "memset",
        8,
    )
    assert graph_nodes.edges_of(GRAPH) == [[0, 1], [1, 2]]


def test_it_reads_and_changes_a_kernels_parameters(driver):
    assert graph_nodes.parameters_of(1) == VALUES
    other = [VALUES[0], struct.pack("f", -0.05), VALUES[2]]
    graph_nodes.set_parameters(GRAPH, 1, other)
    assert driver.given[1] == other and graph_nodes.parameters_of(1) == VALUES


def test_it_gives_a_copy_another_source(driver):
    source = torch.zeros(3)
    graph_nodes.set_source(GRAPH, 2, source)
    assert driver.given[2] == (source.data_ptr(), 0, "context")


def test_it_switches_nodes_and_names_the_drivers_errors(driver):
    graph_nodes.set_enabled(GRAPH, 2, False)
    assert driver.given[2] == 0
    with pytest.raises(RuntimeError, match="cuFuncGetParamInfo: CUDA_ERROR_INVALID_VALUE"):
        graph_nodes.ask("cuFuncGetParamInfo", "function", 3)
