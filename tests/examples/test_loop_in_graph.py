"""The example solves as many iterations as it needs, and each numbered line is needed."""

import pytest
import torch

from cpu_graph import NotModelled, cpu_graphs
from exercises.scenarios.loop_on_gpu import count_runs
from tests.support.scripts import names_of, numbered_lines, outcome_of_change

CAPTURE = "    graph = torch.cuda.CUDAGraph()\n    with torch.cuda.graph(graph):\n"
CHANGES = {  # a text, what takes its place, and what happens
    "1": ("graph.set_conditional_handle_for_current_node(going)", "pass", "raises"),  # endless
    "2": ("graph.end_capture_to_conditional_node()", "pass", "same"),  # a block that raises: below
    "3": (
        f"{CAPTURE}        x = torch.zeros_like(b)",
        f"    x = torch.zeros_like(b)\n{CAPTURE}",
        "silent",
    ),
    "4": ("x += alpha * direction", "x = x + alpha * direction", "silent"),
    "4, the error": ("error.copy_(new_error)", "error = new_error", "silent"),
    "5": ("error > enough, count < limit, out", "error > enough, error > enough, out", "silent"),
    "6": ("solve.kept = matrix", "pass", "silent"),
}


def solved(*changes, limits=(40, 2)):
    """For each limit and each of two systems: the iterations, and whether the solution is right."""
    make_solver = names_of("loop_in_graph", *changes)["make_solver"]
    found = []
    with cpu_graphs(), count_runs(most=50):
        torch.manual_seed(0)
        factor = torch.randn(16, 16, device="cuda")
        matrix = factor @ factor.T + torch.eye(16, device="cuda")
        b = torch.randn(16, device="cuda")
        for limit in limits:
            solve = make_solver(matrix.clone(), 1e-4, limit)
            for scale in (1, 3):
                x, count = solve(scale * b)
                error = (matrix @ x - scale * b).norm() / b.norm()
                found.append((count.item(), bool(error < 1e-2)))
    return found


def test_it_solves_three_systems(capsys):
    with cpu_graphs():
        names_of("loop_in_graph", smaller=[("512", "64")])["main"]()
    first, second, third = capsys.readouterr().out.splitlines()
    assert second == "0 iterations, right: True"
    assert all(line.endswith("iterations, right: True") for line in (first, third))


def test_it_stops_at_the_accuracy_or_at_the_limit():
    one, other, *limited = solved()
    assert one == other and 2 < one[0] < 40 and one[1]
    assert limited == [(2, False), (2, False)]


@pytest.mark.parametrize("change", CHANGES)
def test_without_a_line_it_ends_otherwise(change):
    *line, expected = CHANGES[change]
    assert outcome_of_change(lambda: solved(line), solved(), errors=NotModelled) == expected


def test_every_numbered_line_is_left_out():
    assert {change[0] for change in CHANGES} == set(numbered_lines("loop_in_graph"))


@pytest.mark.parametrize("changes", [[], [CHANGES["2"][:2]]], ids=["as it is", "without line 2"])
def test_a_body_that_raises_an_error_leaves_no_open_node(changes):
    while_node = names_of("loop_in_graph", *changes)["while_node"]
    with cpu_graphs():
        graph = torch.cuda.CUDAGraph()
        x = torch.ones((), device="cuda")
        with torch.cuda.graph(graph):
            with pytest.raises(ZeroDivisionError), while_node(graph, x > 0):
                1 / 0  # noqa: B018
            x.mul_(2)
        assert (len(graph.capture.bodies) > 1) == bool(changes)
        x.zero_()
        graph.replay()
        assert x.item() == 0
