"""Open a captured CUDA graph: list its nodes and edges, compare it with another, change it.

In your script, two lines save what a capture holds:

    graph = torch.cuda.CUDAGraph(keep_graph=True)  # 1. keep the definition (torch 2.8)
    with torch.cuda.graph(graph):
        static_loss = training_step()
    graph_nodes.save(graph, "today.json")          # 2. write nodes and edges

In a shell, without a GPU, this prints what differs; the exit status is 1 if something does:

    python examples/graph_nodes.py yesterday.json today.json

cuda.bindings, which comes with torch's CUDA builds, asks the driver about nodes and edges.
set_parameters and update change the executable graph, which replay() launches: call
instantiate() before. The definition stays as it was captured.
"""

import ctypes
import json
import struct
import sys
from argparse import ArgumentParser
from contextlib import suppress
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import torch

WIDTH = 72  # of a kernel's name in a line
EDGE_TYPES = {0: "full", 1: "programmatic"}  # the driver's CUgraphDependencyType


def ask(function: str, *arguments: Any) -> list:
    """What a function of the CUDA driver returns, behind its error code. Raises RuntimeError with
    the error's name.
    """
    from cuda.bindings import driver

    error, *answers = getattr(driver, function)(*arguments)
    if int(error):
        raise RuntimeError(f"{function}: {error.name}")
    return answers


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


def kernel_parameters_of(node: Any) -> list[bytes]:
    """The parameters of a kernel, each as bytes."""
    p, sizes = ask("cuGraphKernelNodeGetParams", node)[0], []
    with suppress(RuntimeError):  # there is none behind the last
        while True:
            sizes.append(ask("cuFuncGetParamInfo", p.func, len(sizes))[1])
    if not int(p.kernelParams):  # packed into one buffer by the launch
        return []
    pointers = (ctypes.c_void_p * len(sizes)).from_address(int(p.kernelParams))
    return [ctypes.string_at(pointer, size) for pointer, size in zip(pointers, sizes, strict=True)]


def typed_edges_of(graph: torch.cuda.CUDAGraph) -> list[list]:
    """The edges with their types: sorted lists of two nodes' numbers and "full" or "programmatic".

    Behind a full edge a kernel starts when the one before it has finished; behind a programmatic
    one it may start earlier.
    """
    from cuda.bindings import driver

    raw, number = graph.raw_cuda_graph(), {int(node): i for i, node in enumerate(nodes_of(graph))}
    # only the second version returns types; cuda.bindings 13 calls it cuGraphGetEdges
    name = "cuGraphGetEdges_v2" if hasattr(driver, "cuGraphGetEdges_v2") else "cuGraphGetEdges"
    count = ask(name, raw)[-1]
    if count == 0:
        return []
    sources, targets, data, *_ = ask(name, raw, count)
    return sorted(
        [number[int(one)], number[int(other)], EDGE_TYPES.get(int(edge.type), "unknown")]
        for one, other, edge in zip(sources, targets, data, strict=True)
    )


def scalar_parameters_of(node: Any) -> dict[str, str]:
    """The parameters of a kernel that are single numbers: those of two to four bytes. Longer ones
    may be addresses; one byte may be an empty C++ object, which nobody writes.

    {"3": "cdccccbd"}: parameter 3 is these bytes, in hexadecimal digits.
    """
    values = kernel_parameters_of(node)
    return {str(place): value.hex() for place, value in enumerate(values) if 1 < len(value) <= 4}


def definition_of(graph: torch.cuda.CUDAGraph) -> dict[str, list]:
    """The nodes of a graph, with the numbers of kernels, and its typed edges; JSON can hold it."""
    nodes = []
    for node, row in zip(nodes_of(graph), rows_of(graph), strict=True):
        numbers = scalar_parameters_of(node) if row["kind"] == "kernel" else {}
        nodes.append({**row, "numbers": numbers})
    return {"nodes": nodes, "edges": typed_edges_of(graph)}


def save(graph: torch.cuda.CUDAGraph, path: str | Path) -> None:
    """Write a graph's definition to a JSON file."""
    Path(path).write_text(json.dumps(definition_of(graph)))


def load(path: str | Path) -> dict[str, list]:
    """Read what save wrote. Raises ValueError for another file."""
    try:
        definition = json.loads(Path(path).read_text())
        return {"nodes": definition["nodes"], "edges": definition["edges"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not a file that graph_nodes.save wrote.") from error


def differences(old: dict[str, list], new: dict[str, list]) -> list[str]:
    """What differs between two definitions, a line each; none if they agree.

    "-": a node of old only; "+": a node of new only; "~": a node with other blocks, threads or
    numbers. If both have the same nodes, "edge" names an edge of only one of them. Addresses are
    not compared: they differ between any two captures.
    """
    old_names = [_short_name(node) for node in old["nodes"]]
    new_names = [_short_name(node) for node in new["nodes"]]
    matcher = SequenceMatcher(None, old_names, new_names, autojunk=False)
    lines = []
    for tag, start, end, new_start, new_end in matcher.get_opcodes():
        if tag != "equal":
            lines += [f"- {row} {old_names[row][:WIDTH]}" for row in range(start, end)]
            lines += [f"+ {row} {new_names[row][:WIDTH]}" for row in range(new_start, new_end)]
            continue
        for row in range(new_start, new_end):
            changed = _changed(old["nodes"][row - new_start + start], new["nodes"][row])
            if changed:
                lines.append(f"~ {row} {new_names[row][:WIDTH]}: {changed}")
    if old_names == new_names:
        lines += _extra_edge_lines(old, new, "old") + _extra_edge_lines(new, old, "new")
    return lines


def _extra_edge_lines(graph, other, name):
    """The edges that graph, of this name, has and the other one has not."""
    known = {tuple(edge) for edge in other["edges"]}
    edges = [edge for edge in graph["edges"] if tuple(edge) not in known]
    return [f"edge of {name} only: {one} -> {two}, {kind}" for one, two, kind in edges]


def _short_name(node):
    """A kernel's name without the namespaces that most of them share, or a node's kind and size."""
    if node["kind"] != "kernel":
        return f"{node['kind']} {node['bytes']} bytes" if node["bytes"] else node["kind"]
    name = node["kernel"].removeprefix("void ")
    return name.replace("at::native::", "").replace("(anonymous namespace)::", "")


def _changed(before, after):
    """How the launch and the numbers of two kernels of one name differ."""
    words = [
        f"{what} {before[what]} -> {after[what]}"
        for what in ("blocks", "threads")
        if before[what] != after[what]
    ]
    for place in sorted(before["numbers"].keys() | after["numbers"].keys(), key=int):
        one, other = (_format_number(node["numbers"].get(place, "")) for node in (before, after))
        if one != other:
            words.append(f"parameter {place}: {one} -> {other}")
    return ", ".join(words)


def _format_number(digits):
    """Bytes as a number: a float if they make one of ordinary size, else an integer."""
    data = bytes.fromhex(digits)
    if len(data) == 4:
        [value] = struct.unpack("f", data)
        if 1e-20 < abs(value) < 1e20:
            return f"{value:.6g}"
    return str(int.from_bytes(data, "little"))


def set_parameters(graph: torch.cuda.CUDAGraph, node: Any, values: list[bytes]) -> None:
    """Give a kernel of the executable graph other parameters; they are copied."""
    p = ask("cuGraphKernelNodeGetParams", node)[0]
    copies = [ctypes.create_string_buffer(value, len(value)) for value in values]
    pointers = (ctypes.c_void_p * len(copies))(*map(ctypes.addressof, copies))
    p.kernelParams = ctypes.addressof(pointers)
    ask("cuGraphExecKernelNodeSetParams", graph.raw_cuda_graph_exec(), node, p)


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


def main(argv: list[str] | None = None) -> int:
    """Print what differs between two saved graphs; 1 if something does, as diff returns."""
    parser = ArgumentParser(description="Compare two CUDA graphs node by node.")
    parser.add_argument("old", help="a file that graph_nodes.save wrote")
    parser.add_argument("new", help="another one")
    args = parser.parse_args(argv)
    try:
        old, new = load(args.old), load(args.new)
    except ValueError as error:
        parser.error(str(error))
    lines = differences(old, new)
    count = len(new["nodes"])
    print("\n".join(lines) or f"The same {count} nodes and {len(new['edges'])} edges.")
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
