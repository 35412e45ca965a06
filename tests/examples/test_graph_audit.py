"""GraphAudit on the stand-in: captures, replays, and the line that captured."""

import torch
from pytest import fixture

from cpu_graph import cpu_graphs
from examples import graph_audit, graph_nodes


@fixture
def audit(monkeypatch):
    kinds = [{"kind": "kernel"}, {"kind": "memset"}]
    monkeypatch.setattr(graph_nodes, "rows_of", lambda graph: kinds)
    monkeypatch.setattr(graph_audit, "_pool_mib", lambda pool: 2.0)
    with cpu_graphs():
        audit = graph_audit.GraphAudit()
        yield audit
        audit.stop()


def capture():
    x = torch.ones(4, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        graph.x, graph.result = x, x * 2
    return graph


def test_each_capture_has_a_row_with_its_line_and_its_replays(audit):
    graphs = [capture(), capture()]
    for _ in range(3):
        graphs[1].replay()
    table = audit.table()
    assert table.replays.tolist() == [0, 3]
    assert table[["nodes", "kernels", "copies, fills"]].to_numpy().tolist() == [[2, 1, 1]] * 2
    assert table.code.tolist() == ["with torch.cuda.graph(graph):"] * 2
    assert table["captured at"].str.contains("test_graph_audit.py:").all()


def test_a_graph_captured_before_is_no_row_and_replays_as_ever():
    with cpu_graphs():
        graph = capture()
        audit = graph_audit.GraphAudit()
        graph.replay()
        audit.stop()
        assert audit.table().empty
        assert graph.result.tolist() == [2.0] * 4


def test_a_graph_captured_again_counts_its_last_capture(audit):
    graph = capture()
    graph.replay()
    graph.reset()
    with torch.cuda.graph(graph):
        torch.ones(4, device="cuda") * 3
    graph.replay()
    assert audit.table().replays.tolist() == [1, 1]


def test_after_stop_nothing_is_noted(audit):
    audit.stop()
    capture().replay()
    assert audit.table().empty
