"""Graphs in one pool predict as the eager model does, as long as their outputs are cloned."""

import pytest
import torch

from cpu_graph import cpu_graphs
from examples import share_a_pool
from tests.support.scripts import printed_by


def test_it_predicts_as_the_eager_model():
    assert "as the eager model: True" in printed_by("share_a_pool")


def test_an_output_that_is_not_cloned_is_overwritten():
    change = "outputs[rows][: len(batch)].clone()", "outputs[rows][: len(batch)]"
    assert "as the eager model: False" in printed_by("share_a_pool", change)


def test_a_batch_that_is_too_large_is_refused():
    with cpu_graphs():
        sample = torch.zeros(1, 64, device="cuda")
        predict = share_a_pool.capture_all_sizes(share_a_pool.build_model(), sample)
        with pytest.raises(ValueError, match="129 rows are more than 128: split the batch"):
            predict(torch.zeros(129, 64, device="cuda"))
