"""The example solves as many iterations as it needs, and each numbered line is needed."""

import pytest
import torch

from cpu_graph import cpu_graphs
from examples import loop_in_graph
from tests.support.scripts import names_of


def system(size=16):
    factor = torch.randn(size, size, device="cuda")
    return factor @ factor.T + torch.eye(size, device="cuda"), torch.randn(size, device="cuda")


def solved(functions, limit=40):
    """The solutions of two systems and their iterations, and whether they are right."""
    with cpu_graphs():
        torch.manual_seed(0)
        matrix, b = system()
        solve = functions["make_solver"](matrix, 1e-4, limit)
        found = [solve(one) for one in (b, 3 * b)]
        counts = [count.item() for _, count in found]
        errors = [
            (matrix @ x - n * b).norm() / b.norm() for (x, _), n in zip(found, (1, 3), strict=True)
        ]
        return counts, [bool(error < 1e-2) for error in errors]


def test_it_solves_three_systems(capsys):
    with cpu_graphs():
        loop_in_graph.main()
    first, second, third = capsys.readouterr().out.splitlines()
    assert second == "0 iterations, right: True"
    assert all(line.endswith("iterations, right: True") for line in (first, third))


def test_it_stops_at_the_accuracy_or_at_the_limit():
    counts, right = solved(vars(loop_in_graph))
    assert right == [True, True] and 1 < counts[0] == counts[1] < 40
    assert solved(vars(loop_in_graph), limit=2) == ([2, 2], [False, False])


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("x += alpha * direction", "x = x + alpha * direction"),
        ("error.copy_(new_error)", "error = new_error"),
    ],
)
def test_without_writing_in_place_it_is_wrong(line, instead):
    assert solved(names_of("loop_in_graph", (line, instead)), limit=20)[1] == [False, False]


def test_state_from_before_the_capture_is_not_reset():
    before = "    graph = torch.cuda.CUDAGraph()\n    with torch.cuda.graph(graph):\n"
    moved = "        x = torch.zeros_like(b)"
    change = before + moved, "    x = torch.zeros_like(b)\n" + before
    functions = names_of("loop_in_graph", change)
    assert solved(functions)[1] == [True, False]


@pytest.mark.parametrize("line", ["    solve.kept = matrix", "    pass  # nothing kept"])
def test_the_function_keeps_the_matrix(line):
    functions = names_of("loop_in_graph", ("    solve.kept = matrix", line))
    with cpu_graphs() as device:
        solve = functions["make_solver"](system()[0], 1e-4, limit=40)
        solve(torch.ones(16, device="cuda"))
        lost = any("memory whose tensor is gone" in hint for hint in device.hints)
    assert lost == ("kept =" not in line)


def test_a_body_that_raises_an_error_leaves_no_open_node():
    with cpu_graphs():
        graph = torch.cuda.CUDAGraph()
        x = torch.ones((), device="cuda")
        with torch.cuda.graph(graph):
            with pytest.raises(ZeroDivisionError), loop_in_graph.while_node(graph, x > 0):
                1 / 0  # noqa: B018
            x.mul_(2)
        assert all(not isinstance(node, list) for node in graph.capture.nodes)
        x.zero_()
        graph.replay()
        assert x.item() == 0 and len(graph.capture.bodies) == 1
