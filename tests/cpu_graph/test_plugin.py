"""The stand-in in a project of its own: the pytest plugin, the example, an installation."""

import os
import subprocess
import sys

import pytest

from course.paths import ROOT

EXAMPLE = ROOT / "cpu_graph" / "example"
# what a change of the runner breaks: (its text, what stands there then, a test that fails)
FAULTS = [
    ("self.inputs[:rows].copy_(batch)", "self.inputs = batch", "results_are_the_models"),
    ("[:rows].clone()", "[:rows]", "results_can_be_kept"),
    ("torch.zeros(max(sizes), features", "torch.zeros(1, features", None),
]


def pytest_on(folder, *options):
    """Run pytest on a folder, with the plugin as if it were installed."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "pytest_cpu_graph",
        "-p",
        "no:cacheprovider",
    ]
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "cpu_graph")))
    environment = os.environ | {"PYTHONPATH": paths, "PYTEST_ADDOPTS": ""}
    command += ["--rootdir", str(folder), "-c", os.devnull, *options, str(folder)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, cwd=folder)


@pytest.mark.parametrize("fault", [None, *FAULTS])
def test_the_example_passes_and_its_faults_are_found(fault, tmp_path):
    for path in EXAMPLE.glob("*.py"):
        text = path.read_text()
        if fault and path.name == "graph_runner.py":
            assert fault[0] in text
            text = text.replace(fault[0], fault[1])
        (tmp_path / path.name).write_text(text)
    run = pytest_on(tmp_path)
    assert (run.returncode == 0) == (fault is None), run.stdout
    if fault and fault[2]:
        assert f"test_{fault[2]}" in run.stdout


HINTED = """
import torch

def test_it(cpu_graphs):
    x = torch.ones(4, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x * 2
    del x
    graph.replay()
    assert len(cpu_graphs.hints) == 2
"""


def test_a_failed_test_shows_what_was_noticed(tmp_path):
    (tmp_path / "test_hinted.py").write_text(HINTED)
    run = pytest_on(tmp_path)
    assert run.returncode == 1 and "noticed" in run.stdout
    assert "reads memory whose tensor is gone (aten::mul.Tensor)" in run.stdout
