"""compare: what differs between an eager step and one with graphs is found, and nothing else."""

import pytest
import torch

from capturable import compare
from capturable.__main__ import main
from tests.capturable.compared_pairs import RIGHT, WRONG


@pytest.mark.parametrize(("kind", "cause", "eager", "graphed"), WRONG)
def test_what_differs_is_found_with_its_cause(kind, cause, eager, graphed):
    found = compare(eager, graphed, calls=6)
    assert found.difference, str(found)
    assert found.difference.kind == kind
    assert cause in "\n".join(found.causes)


@pytest.mark.parametrize(("eager", "graphed", "options"), RIGHT)
def test_right_steps_are_equal(eager, graphed, options):
    found = compare(eager, graphed, calls=6, **options)
    assert found.equal, str(found)
    assert "1 graph" in found.counted


EAGER = """
import torch

torch.manual_seed(5)

def make():
    weight = torch.rand(4, device="cuda")
    return (lambda x: x * weight), torch.arange(8.0, device="cuda").view(2, 4)
"""
GRAPHED = """
import torch

def make():
    weight, static_x = torch.rand(4, device="cuda"), torch.zeros(2, 4, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = static_x * weight

    def step(x, weight=weight):
        static_x.copy_(x)
        graph.replay()
        return y

    return step
"""


def test_two_files_are_compared_with_an_exit_status(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.py").write_text(EAGER)
    (tmp_path / "two.py").write_text(GRAPHED)
    command = ["compare", "one.py:make", "two.py:make", "--calls", "3"]
    assert main([*command, "--read-at-once"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("Equal, bit for bit: the results of 3 calls")
    assert "1 capture at the construction, 0 in 3 calls, 3 replays" in said
    assert main(command) == 1
    assert "read after call 3" in capsys.readouterr().out
    assert main([*command, "--pad", "no_such"]) == 2
    assert "reaches no tensor named no_such" in capsys.readouterr().err


def test_factories_that_share_their_state_are_refused():
    with pytest.raises(ValueError, match="belongs to two of the steps"):
        weight = torch.nn.Parameter(torch.ones(4))
        compare(*[lambda: ((lambda x: x * weight), torch.ones(2, 4))] * 2)


def test_a_lost_capture_is_named_by_its_first_error(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.py").write_text(EAGER)
    (tmp_path / "two.py").write_text(GRAPHED.replace("* weight", "* weight.sum().item()"))
    assert main(["compare", "one.py:make", "two.py:make"]) == 2
    said = capsys.readouterr().err
    assert "two.py:8: AcceleratorError: CUDA error: operation not permitted" in said
