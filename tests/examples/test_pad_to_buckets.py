"""Graphs of a few sizes encode sequences of all lengths as the eager model does; what the numbered
lines are for.
"""

import pytest
import torch

from cpu_graph import cpu_graphs
from examples import pad_to_buckets
from tests.support.scripts import printed_by


def test_it_encodes_as_the_eager_model():
    assert "as the eager model: True" in printed_by("pad_to_buckets")


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("attn_mask=mask", "attn_mask=None"),
        ("x = torch.where(valid[..., None], x, 0)", "pass"),
        ("copied.synchronize()", "pass"),
        ("static_lengths.copy_(lengths)", "pass"),
    ],
)
def test_each_line_is_needed(line, instead):
    assert "as the eager model: False" in printed_by("pad_to_buckets", (line, instead))


def test_sequences_that_are_too_long_are_refused():
    with cpu_graphs():
        encode = pad_to_buckets.graphed(pad_to_buckets.Encoder().cuda())
        tokens = torch.zeros(8, 257, dtype=torch.long, device="cuda")
        lengths = torch.ones(8, dtype=torch.long, device="cuda")
        with pytest.raises(ValueError, match="257 tokens are more than 256: split the sequences"):
            encode(tokens, lengths)
