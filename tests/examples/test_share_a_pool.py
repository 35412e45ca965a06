"""Graphs in one pool predict as the eager model does, as long as their outputs are cloned."""

import pytest
import torch

from cpu_graph import cpu_graphs
from examples import share_a_pool

SOURCE = share_a_pool.__spec__.loader.get_source(share_a_pool.__name__)


def said(source, capsys):
    namespace = {"__name__": "changed"}
    with cpu_graphs():
        exec(source, namespace)
        namespace["main"]()
    return capsys.readouterr().out


def test_it_predicts_as_the_eager_model(capsys):
    assert "as the eager model: True" in said(SOURCE, capsys)


def test_an_output_that_is_not_cloned_is_overwritten(capsys):
    line = "outputs[rows][: len(batch)].clone()"
    assert SOURCE.count(line) == 1
    changed = SOURCE.replace(line, "outputs[rows][: len(batch)]")
    assert "as the eager model: False" in said(changed, capsys)


def test_a_batch_that_is_too_large_is_refused():
    with cpu_graphs():
        predict = share_a_pool.graphed(
            share_a_pool.build_model(), torch.zeros(1, 64, device="cuda")
        )
        with pytest.raises(ValueError, match="129 rows are more than 128: split the batch"):
            predict(torch.zeros(129, 64, device="cuda"))
