"""Open a captured CUDA graph: list its nodes and edges, and change what they do.

A graph captured in torch.cuda.CUDAGraph(keep_graph=True) keeps its description (torch 2.8), and
cuda.bindings, which comes with torch's CUDA builds, asks the driver about it. What is changed is
the executable graph, which replay() launches: call instantiate() before. The description stays as
it was captured.
"""

import ctypes
import tempfile
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch


def open_graph(
    work: Callable[[], Any], warmup: int = 3, pool: tuple | None = None
) -> tuple[torch.cuda.CUDAGraph, Any]:
    """Capture work() so that the graph can be opened; the graph, not yet instantiated, and the
    output.

    warmup: how often work runs before, on a side
    stream. pool: of another graph, to share its memory.
    """
    side, main = torch.cuda.Stream(), torch.cuda.current_stream()
    side.wait_stream(main)
    with torch.cuda.stream(side):
        for _ in range(warmup):
            work()
    main.wait_stream(side)
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph, pool=pool):
        output = work()
    return graph, output


def ask(function: str, *arguments: Any) -> list:
    """What a function of the CUDA driver returns, behind its error code. Raises RuntimeError with
    the error's name.
    """
    from cuda.bindings import driver

    error, *answers = getattr(driver, function)(*arguments)
    if int(error):
        raise RuntimeError(f"{function}: {error.name}")
    return answers


def captured_nodes() -> int:
    """How many nodes the capture that is under way on the current stream has; 0 if there
    is none.
    """
    if not torch.cuda.is_current_stream_capturing():
        return 0
    raw = ask("cuStreamGetCaptureInfo", torch.cuda.current_stream().cuda_stream)[2]
    return ask("cuGraphGetNodes", raw)[-1]


def nodes_of(graph: torch.cuda.CUDAGraph) -> list:
    """The nodes, as the driver's handles, in the order of the capture."""
    raw = graph.raw_cuda_graph()
    return ask("cuGraphGetNodes", raw, ask("cuGraphGetNodes", raw)[-1])[0]


def edges_of(graph: torch.cuda.CUDAGraph) -> list[list[int]]:
    """The edges, as sorted pairs of a node's number and that of a node that waits for it."""
    raw, number = graph.raw_cuda_graph(), {int(node): i for i, node in enumerate(nodes_of(graph))}
    sources, targets, *_ = ask("cuGraphGetEdges", raw, ask("cuGraphGetEdges", raw)[-1])
    return sorted(
        [number[int(one)], number[int(other)]] for one, other in zip(sources, targets, strict=True)
    )


def describe(node: Any) -> dict[str, str | int]:
    """A node's kind; a kernel's name, blocks and threads per block; how many bytes a copy or a fill
    writes.
    """
    kind = ask("cuGraphNodeGetType", node)[0].name.removeprefix("CU_GRAPH_NODE_TYPE_").lower()
    row = {"kind": kind, "kernel": "", "blocks": 0, "threads": 0, "bytes": 0}
    if kind == "kernel":
        p = ask("cuGraphKernelNodeGetParams", node)[0]
        row["kernel"] = torch._C._demangle(ask("cuFuncGetName", p.func)[0].decode())
        row["blocks"] = p.gridDimX * p.gridDimY * p.gridDimZ
        row["threads"] = p.blockDimX * p.blockDimY * p.blockDimZ
    elif kind == "memcpy":
        p = ask("cuGraphMemcpyNodeGetParams", node)[0]
        row["bytes"] = p.WidthInBytes * p.Height * p.Depth
    elif kind == "memset":
        p = ask("cuGraphMemsetNodeGetParams", node)[0]
        row["bytes"] = p.width * p.height * p.elementSize
    return row


def rows_of(graph: torch.cuda.CUDAGraph) -> list[dict[str, str | int]]:
    """What describe says of each node."""
    return [describe(node) for node in nodes_of(graph)]


def dot_of(graph: torch.cuda.CUDAGraph) -> str:
    """The graph in DOT, which Graphviz draws; debug_dump writes it, with a warning that it does."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(action="ignore"):
        graph.debug_dump(f"{folder}/graph.dot")
        return Path(folder, "graph.dot").read_text()


def parameters_of(node: Any) -> list[bytes]:
    """The parameters of a kernel, each as bytes."""
    p, sizes = ask("cuGraphKernelNodeGetParams", node)[0], []
    with suppress(RuntimeError):  # there is none behind the last
        while True:
            sizes.append(ask("cuFuncGetParamInfo", p.func, len(sizes))[1])
    pointers = (ctypes.c_void_p * len(sizes)).from_address(int(p.kernelParams))
    return [ctypes.string_at(pointer, size) for pointer, size in zip(pointers, sizes, strict=True)]


def set_parameters(graph: torch.cuda.CUDAGraph, node: Any, values: list[bytes]) -> None:
    """Give a kernel of the executable graph other parameters; they are copied."""
    p = ask("cuGraphKernelNodeGetParams", node)[0]
    copies = [ctypes.create_string_buffer(value, len(value)) for value in values]
    pointers = (ctypes.c_void_p * len(copies))(*map(ctypes.addressof, copies))
    p.kernelParams = ctypes.addressof(pointers)
    ask("cuGraphExecKernelNodeSetParams", graph.raw_cuda_graph_exec(), node, p)


def set_source(graph: torch.cuda.CUDAGraph, node: Any, source: torch.Tensor) -> None:
    """Let a copy of the executable graph read another tensor, of the same size and in the same kind
    of memory.
    """
    p = ask("cuGraphMemcpyNodeGetParams", node)[0]
    setattr(p, "srcDevice" if source.is_cuda else "srcHost", source.data_ptr())
    ask(
        "cuGraphExecMemcpyNodeSetParams",
        graph.raw_cuda_graph_exec(),
        node,
        p,
        ask("cuCtxGetCurrent")[0],
    )


def set_enabled(graph: torch.cuda.CUDAGraph, node: Any, on: bool) -> None:
    """Switch a kernel, copy or fill of the executable graph on or off."""
    ask("cuGraphNodeSetEnabled", graph.raw_cuda_graph_exec(), node, int(on))


def upload(graph: torch.cuda.CUDAGraph) -> None:
    """Write an executable graph into the GPU's memory, which its first launch does otherwise."""
    ask("cuGraphUpload", graph.raw_cuda_graph_exec(), torch.cuda.current_stream().cuda_stream)


class _Info(ctypes.Structure):
    """The driver's CUgraphExecUpdateResultInfo."""

    _fields_ = [
        ("result", ctypes.c_int),
        ("node", ctypes.c_void_p),
        ("other_node", ctypes.c_void_p),
    ]


def update(graph: torch.cuda.CUDAGraph, new: torch.cuda.CUDAGraph) -> str:
    """Give an executable graph all that a new capture holds; "success", or why the driver refuses.

    cuda.bindings keeps that reason to itself, so this calls
    the driver. Keep new: its memory is used from now on.
    """
    from cuda.bindings import driver

    info, pair = _Info(), (graph.raw_cuda_graph_exec(), new.raw_cuda_graph())
    ctypes.CDLL("libcuda.so.1").cuGraphExecUpdate_v2(
        *map(ctypes.c_void_p, pair), ctypes.byref(info)
    )
    return (
        driver.CUgraphExecUpdateResult(info.result)
        .name.removeprefix("CU_GRAPH_EXEC_UPDATE_")
        .lower()
    )
