"""What examples.graph_nodes says of two saved graphs; *Look inside a graph* records what it reads
and changes on a GPU.
"""

import json
import struct

import pytest
import torch

from cpu_graph import cpu_graphs
from examples import graph_nodes


def test_without_keep_graph_nothing_is_saved(tmp_path):
    with cpu_graphs():
        graph = torch.cuda.CUDAGraph()  # line 1 left out
        with torch.cuda.graph(graph):
            torch.zeros(4, device="cuda")
        with pytest.raises(RuntimeError, match="keep_graph"):
            graph_nodes.save(graph, tmp_path / "graph.json")
    assert not (tmp_path / "graph.json").exists()


def kernel(name, rate=-0.1, blocks=1):
    node = {"kind": "kernel", "kernel": f"void at::native::{name}<float>(int)"}
    size = {"blocks": blocks, "threads": 128, "bytes": 0}
    return node | size | {"numbers": {"3": struct.pack("f", rate).hex()}}


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
