"""Tests of the runner that need no GPU, and use one where there is one: `pytest
cpu_graph/example`.
"""

import pytest
import torch
from graph_runner import GraphRunner

pytestmark = pytest.mark.cuda_graphs


@pytest.fixture
def model():
    torch.manual_seed(0)
    return (
        torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
        .to("cuda")
        .eval()
    )


@pytest.fixture
def runner(model):
    return GraphRunner(model, sizes=[1, 2, 4], features=8)


def requests(*sizes):
    return [torch.randn(size, 8, device="cuda") for size in sizes]


def test_results_are_the_models(runner, model):
    for batch in requests(4, 1, 3, 2):
        torch.testing.assert_close(runner(batch), model(batch).detach())


def test_results_can_be_kept(runner, model):
    batches = requests(2, 2, 4, 2)
    results = [runner(batch) for batch in batches]
    for batch, result in zip(batches, results, strict=True):
        torch.testing.assert_close(result, model(batch).detach())


def test_new_weights_are_used(runner, model):
    (batch,) = requests(2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2)
    torch.testing.assert_close(runner(batch), model(batch).detach())


def test_too_large_batch_raises(runner):
    with pytest.raises(ValueError, match="5"):
        runner(torch.zeros(5, 8, device="cuda"))
