"""The stand-in in a project of its own: the pytest plugin, the example, an installation."""

import os
import re
import shutil

import pytest

from course.paths import ROOT
from tests.support.processes import run_python

EXAMPLE = ROOT / "cpu_graph" / "example"


def pytest_on(folder, *options):
    """Run pytest on a folder, with the plugin as if it were installed."""
    plugins = ["-q", "-p", "pytest_cpu_graph", "-p", "no:cacheprovider"]
    places = ["--rootdir", folder, "-c", os.devnull]
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "cpu_graph")))
    alone = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # of the plugins installed here: seconds each
    environment = {"PYTHONPATH": paths, "PYTEST_ADDOPTS": ""} | alone
    command = ["-m", "pytest", *plugins, *places, *options, folder]
    return run_python(*command, folder=folder, **environment)


MARKED = """
import unittest
import pytest, torch

class TestOfUnittest(unittest.TestCase):
    @pytest.mark.cuda_graphs
    def test_a_method(self):
        self.assertTrue(torch.ones(1, device="cuda").is_cuda)
"""
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


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """One run of pytest on all of them."""
    folder = tmp_path_factory.mktemp("project")
    shutil.copytree(EXAMPLE, folder, dirs_exist_ok=True)
    (folder / "test_marked.py").write_text(MARKED)
    (folder / "test_hinted.py").write_text(HINTED)
    return pytest_on(folder, "-rA", "-k", "stand or hinted or method")


def results(run, name):
    """(passed or failed, test) of each test of a file."""
    return re.findall(rf"^(PASSED|FAILED) {name}\.py::(\S+)", run.stdout, re.M)


def test_the_example_passes(run):
    ends = [ending for ending, _ in results(run, "test_graph_runner")]
    assert ends and set(ends) == {"PASSED"}, run.stdout


def test_a_method_of_unittests_runs_on_the_stand_in(run):
    assert [ending for ending, _ in results(run, "test_marked")] == ["PASSED"]


def test_a_failed_test_shows_what_was_noticed(run):
    assert [ending for ending, _ in results(run, "test_hinted")] == ["FAILED"]
    assert "what the stand-in for CUDA graphs noticed" in run.stdout
    assert "reads memory whose tensor is gone (aten::mul.Tensor at test_hinted.py:8)" in run.stdout


def test_a_project_that_takes_every_name_early_runs_as_it_is():
    run = pytest_on(ROOT / "tests" / "cpu_graph" / "project", "--cpu-graphs", "-rA")
    ends = [ending for ending, _ in results(run, "test_early_names")]
    assert run.returncode == 0 and ends == ["PASSED"] * 3, run.stdout
