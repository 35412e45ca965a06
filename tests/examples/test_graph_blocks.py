"""The partial graphs to copy, and what each numbered line of graph_blocks is for."""

import pytest
import torch

from cpu_graph import cpu_graphs
from examples import graph_blocks
from exercises.answers.graph_use import watch_graphs
from tests.support.scripts import names_of


@pytest.fixture(autouse=True)
def stand_in(monkeypatch):
    monkeypatch.setattr(graph_blocks, "DIM", 8)
    monkeypatch.setattr(graph_blocks, "BATCH_SIZE", 4)
    with cpu_graphs():
        yield


def changed(old, new):
    """The example's training, with some of its source replaced."""
    names = names_of("graph_blocks", (old, new))
    names.update(DIM=8, BATCH_SIZE=4)
    return names["train"]


def test_graphs_train_as_eager():
    eager = graph_blocks.train(graphed=False, steps=4)
    assert graph_blocks.train(graphed=True, steps=4) == eager
    assert len(set(eager)) == 8


def test_a_sample_that_requires_no_gradient_is_noticed():
    train = changed("hidden.requires_grad_()", "pass")
    with pytest.raises(RuntimeError, match=r"encoder\.0\.weight gets no gradient"):
        train(graphed=True, steps=2)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("parameter.grad = torch.zeros_like(parameter)", "pass"),
        ("zero_grad(set_to_none=False)", "zero_grad()"),
    ],
)
def test_without_gradients_in_place_the_losses_are_others(old, new):
    train = changed(old, new)
    assert train(graphed=True, steps=4) != train(graphed=False, steps=4)


def test_each_micro_batch_replays_two_graphs_of_both_blocks():
    with watch_graphs() as seen:
        graph_blocks.train(graphed=True, steps=1)
    assert len(seen.captured) == 4 and len(seen.replayed) == 8


def test_the_callers_batch_is_not_overwritten():
    model = graph_blocks.Model().cuda()
    inputs = torch.ones(4, 8, device="cuda")
    graph_blocks.graph_blocks(model, inputs)
    model(torch.zeros(4, 8, device="cuda"))
    assert (inputs == 1).all()
