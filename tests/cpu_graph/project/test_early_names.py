"""Tests as projects have them: every name is taken at the top, and there has to be a GPU.

They run on a GPU as they are, and without one by `pytest --cpu-graphs`.
"""

import unittest

import pytest
import torch
from torch.cuda import CUDAGraph, Event, Stream, current_stream, graph, is_available
from torch.cuda import make_graphed_callables as graphed

DEVICE = "cuda" if is_available() else "cpu"
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
pytestmark = needs_gpu


@pytest.fixture(scope="module")
def weights():
    return torch.ones(4, device=DEVICE)


@pytest.fixture(scope="session")
def side():
    return Stream()


def captured(function):
    held = CUDAGraph()
    with graph(held):
        output = function()
    return held, output


def test_a_graph_by_names_taken_early(weights):
    held, output = captured(lambda: weights * 2)
    held.replay()
    assert isinstance(held, CUDAGraph) and output.tolist() == [2] * 4


def test_a_stream_of_the_session(weights, side):
    event = Event()
    side.wait_stream(current_stream())
    with torch.cuda.stream(side):
        doubled = weights * 2
        event.record()
    event.synchronize()
    assert isinstance(side, torch.Stream) and doubled.sum().item() == 8


def test_a_failed_capture(weights):
    with pytest.raises(torch.AcceleratorError, match="previous error during capture"):
        captured(lambda: weights.sum().item())


def test_nothing_is_left_of_a_failed_capture(weights):
    torch.cuda.set_stream(torch.cuda.default_stream())
    assert not torch.cuda.is_current_stream_capturing() and weights.sum().item() == 4


def test_a_graphed_callable(weights):
    assert graphed(lambda x: x * 3, (weights.clone(),))(weights).tolist() == [3] * 4


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
