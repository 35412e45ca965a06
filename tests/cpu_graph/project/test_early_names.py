"""Tests as projects have them: every name is taken at the top, and there has to be a GPU.

They run on a GPU as they are, and without one by `pytest --cpu-graphs`.
"""

import unittest

import pytest
import torch
from torch.cuda import CUDAGraph, graph, is_available

DEVICE = "cuda" if is_available() else "cpu"
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
pytestmark = needs_gpu


@pytest.fixture(scope="module")
def weights():
    return torch.ones(4, device=DEVICE)


def captured(function):
    held = CUDAGraph()
    with graph(held):
        output = function()
    return held, output


def test_a_graph_by_names_taken_early(weights):
    held, output = captured(lambda: weights * 2)
    held.replay()
    assert isinstance(held, CUDAGraph) and output.tolist() == [2] * 4


def test_a_failed_capture(weights):
    with pytest.raises(torch.AcceleratorError, match="previous error during capture"):
        captured(lambda: weights.sum().item())


@unittest.skipUnless(is_available(), "needs a GPU")
class TestOfUnittest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.shared = torch.arange(3.0, device="cuda")

    def setUp(self):
        torch.set_default_device("cuda")
        self.addCleanup(torch.set_default_device, None)

    def test_a_graph_in_a_method(self):
        held, output = captured(lambda: self.shared + torch.ones(3))
        held.replay()
        self.assertEqual(output.tolist(), [1, 2, 3])
        self.assertTrue(torch.zeros(1).is_cuda)
