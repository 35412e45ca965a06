"""examples.graph_nodes against a driver that knows one graph:
a kernel with four parameters, and a copy that waits.
"""

import ctypes
import json
import struct
import sys
from enum import IntEnum
from types import ModuleType, SimpleNamespace

import pytest
import torch

from cpu_graph import cpu_graphs
from examples import graph_nodes

KINDS = {1: "KERNEL", 2: "MEMCPY", 3: "MEMSET"}
VALUES = [struct.pack("i", 1000), struct.pack("f", -0.1), b"three pointers", b"?"]
Result = IntEnum("Result", {"CUDA_SUCCESS": 0, "CUDA_ERROR_INVALID_VALUE": 1})
FINE = Result.CUDA_SUCCESS


class Driver(ModuleType):
    """As much of cuda.bindings.driver as graph_nodes asks."""

    def __init__(self):
        super().__init__("cuda.bindings.driver")
        self.buffers = [ctypes.create_string_buffer(value, len(value)) for value in VALUES]
        self.pointers = (ctypes.c_void_p * len(VALUES))(*map(ctypes.addressof, self.buffers))
        self.given = {}

    def cuGraphGetNodes(self, raw, count=0):
        return FINE, [1, 2, 3] if count else None, 3

    def cuGraphGetEdges(self, raw, count=0):
        types = [SimpleNamespace(type=kind) for kind in (0, 1)]
        return FINE, [2, 1][: count or None], [3, 2][: count or None], types, 2

    def cuGraphNodeGetType(self, node):
        return FINE, SimpleNamespace(name=f"CU_GRAPH_NODE_TYPE_{KINDS[node]}")

    def cuGraphKernelNodeGetParams(self, node):
        sizes = {"gridDimX": 2, "gridDimY": 3, "gridDimZ": 1}
        sizes |= {"blockDimX": 32, "blockDimY": 4, "blockDimZ": 1}
        values = ctypes.addressof(self.pointers)
        return FINE, SimpleNamespace(func="function", kernelParams=values, **sizes)

    def cuFuncGetName(self, function):
        return FINE, b"_ZN2at6nativeEv"

    def cuFuncGetParamInfo(self, function, number):
        return (
            (FINE, 0, len(VALUES[number]))
            if number < len(VALUES)
            else (Result.CUDA_ERROR_INVALID_VALUE, None, None)
        )

    def cuGraphMemcpyNodeGetParams(self, node):
        return FINE, SimpleNamespace(WidthInBytes=4096, Height=1, Depth=1)

    def cuGraphMemsetNodeGetParams(self, node):
        return FINE, SimpleNamespace(width=4, height=2, elementSize=1)

    def cuGraphExecKernelNodeSetParams(self, executable, node, p):
        pointers = (ctypes.c_void_p * len(VALUES)).from_address(p.kernelParams)
        self.given[node] = [
            ctypes.string_at(at, len(value)) for at, value in zip(pointers, VALUES, strict=True)
        ]
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
    assert list(kernel.values()) == ["kernel", "at::native()", 6, 128, 0]
    assert [copy["kind"], copy["bytes"]] == ["memcpy", 4096]
    assert [fill["kind"], fill["bytes"]] == ["memset", 8]
    assert graph_nodes.edges_of(GRAPH) == [[0, 1], [1, 2]]


def test_it_reads_and_changes_a_kernels_parameters(driver):
    assert graph_nodes.parameters_of(1) == VALUES
    other = [VALUES[0], struct.pack("f", -0.05), *VALUES[2:]]
    graph_nodes.set_parameters(GRAPH, 1, other)
    assert driver.given[1] == other and graph_nodes.parameters_of(1) == VALUES


def test_it_names_the_drivers_errors(driver):
    with pytest.raises(RuntimeError, match="cuFuncGetParamInfo: CUDA_ERROR_INVALID_VALUE"):
        graph_nodes.ask("cuFuncGetParamInfo", "function", len(VALUES))


def test_without_keep_graph_nothing_is_saved(driver, tmp_path):
    with cpu_graphs():
        graph = torch.cuda.CUDAGraph()  # line 1 left out
        with torch.cuda.graph(graph):
            torch.zeros(4, device="cuda")
        with pytest.raises(RuntimeError, match="keep_graph"):
            graph_nodes.save(graph, tmp_path / "graph.json")
    assert not (tmp_path / "graph.json").exists()


def test_it_saves_nodes_with_their_numbers_and_edges_with_their_types(driver, tmp_path):
    graph_nodes.save(GRAPH, tmp_path / "graph.json")
    definition = graph_nodes.load(tmp_path / "graph.json")
    assert definition == graph_nodes.definition_of(GRAPH)
    numbers = {"0": VALUES[0].hex(), "1": VALUES[1].hex()}  # not pointers, not a byte
    assert [node["numbers"] for node in definition["nodes"]] == [numbers, {}, {}]
    assert definition["edges"] == [[0, 1, "programmatic"], [1, 2, "full"]]


def kernel(name, rate=-0.1, blocks=1):
    numbers = {"3": struct.pack("f", rate).hex()}
    return {
        "kind": "kernel",
        "kernel": f"void at::native::{name}<float>(int)",
        "blocks": blocks,
        "threads": 128,
        "bytes": 0,
        "numbers": numbers,
    }


def chain(*nodes, kind="full"):
    return {"nodes": list(nodes), "edges": [[n, n + 1, kind] for n in range(len(nodes) - 1)]}


OLD = chain(kernel("sin"), kernel("mul"), kernel("add"))
CHANGES = {
    "nothing": (OLD, []),
    "a number": (
        chain(kernel("sin"), kernel("mul"), kernel("add", rate=-0.05)),
        ["~ 2 add<float>(int): parameter 3: -0.1 -> -0.05"],
    ),
    "the launch": (
        chain(kernel("sin", blocks=2), kernel("mul"), kernel("add")),
        ["~ 0 sin<float>(int): blocks 1 -> 2"],
    ),
    "one more, and a number behind it": (
        chain(kernel("sin"), kernel("fill"), kernel("mul"), kernel("add", rate=-0.05)),
        ["+ 1 fill<float>(int)", "~ 3 add<float>(int): parameter 3: -0.1 -> -0.05"],
    ),
    "another kernel": (
        chain(kernel("sin"), kernel("div"), kernel("add")),
        ["- 1 mul<float>(int)", "+ 1 div<float>(int)"],
    ),
    "a branch": (
        OLD | {"edges": [[0, 1, "full"], [0, 2, "full"]]},
        ["edge of old only: 1 -> 2, full", "edge of new only: 0 -> 2, full"],
    ),
    "an edge's type": (
        OLD | {"edges": [[0, 1, "programmatic"], [1, 2, "full"]]},
        ["edge of old only: 0 -> 1, full", "edge of new only: 0 -> 1, programmatic"],
    ),
}


@pytest.mark.parametrize(("new", "said"), CHANGES.values(), ids=CHANGES)
def test_it_says_what_differs(new, said):
    assert graph_nodes.differences(OLD, new) == said


def test_the_command_compares_two_files_and_refuses_another_one(tmp_path, capsys):
    new, said = CHANGES["a number"]
    paths = [tmp_path / name for name in ("old.json", "new.json", "other.json")]
    for path, content in zip(paths, (OLD, new, [1, 2]), strict=True):
        path.write_text(json.dumps(content))
    old, changed, other = map(str, paths)
    assert graph_nodes.main([old, changed]) == 1 and capsys.readouterr().out == said[0] + "\n"
    assert graph_nodes.main([old, old]) == 0
    assert capsys.readouterr().out == "The same 3 nodes and 2 edges.\n"
    for path in (other, str(tmp_path / "none.json")):
        with pytest.raises(SystemExit):
            graph_nodes.main([old, path])
        assert f"{path} is not a file that graph_nodes.save wrote" in capsys.readouterr().err
