"""Graphs of a few sizes encode sequences of all lengths as the eager model does; what the numbered
lines are for.
"""

import pytest
import torch

from cpu_graph import cpu_graphs
from examples import pad_to_buckets

SOURCE = pad_to_buckets.__spec__.loader.get_source(pad_to_buckets.__name__)


def said(source, capsys):
    namespace = {"__name__": "changed"}
    with cpu_graphs():
        exec(source, namespace)
        namespace["main"]()
    return capsys.readouterr().out


def test_it_encodes_as_the_eager_model(capsys):
    assert "as the eager model: True" in said(SOURCE, capsys)


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("attn_mask=mask", "attn_mask=None"),
        ("x = torch.where(valid[..., None], x, 0)", "pass"),
        ("copied.synchronize()", "pass"),
        ("static_lengths.copy_(lengths)", "pass"),
    ],
)
def test_each_line_is_needed(capsys, line, instead):
    assert SOURCE.count(line) == 1
    assert "as the eager model: False" in said(SOURCE.replace(line, instead), capsys)


def test_sequences_that_are_too_long_are_refused():
    with cpu_graphs():
        encode = pad_to_buckets.graphed(pad_to_buckets.Encoder().cuda())
        tokens = torch.zeros(8, 257, dtype=torch.long, device="cuda")
        lengths = torch.ones(8, dtype=torch.long, device="cuda")
        with pytest.raises(ValueError, match="257 tokens are more than 256: split the sequences"):
            encode(tokens, lengths)
