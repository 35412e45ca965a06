"""The page on the decode step, and that its variants compute what the step computes."""

import pandas as pd
import pytest
import torch

from tests.support.processes import run_python

pytest.importorskip("triton")
from benchmarks import decode_step

IN_THE_INTERPRETER = """
import torch

from benchmarks.decode_variants import Variant
from examples.decoder import Config, Decoder, new_kv_cache
from examples.triton_decoder import TritonDecoder

sizes = {"n_layers": 2, "dim": 32, "n_heads": 4, "n_kv_heads": 2, "hidden_dim": 64}
config = Config(**sizes, vocab_size=64, max_seq_len=16)
tiles = {"qkv": (32, 32, 1), "output": (16, 32, 1), "gate_up": (16, 0, 1), "down": (16, 64, 1)}
switches = {"splits": 4, "argmax_in_head": True, "preload_cache": True}
switches["tiles"] = tiles | {"head": (16, 32, 1)}
model = Decoder(config, dtype=torch.bfloat16).requires_grad_(False)


def logits_of(decoder):
    kv_cache = new_kv_cache(config, 1, "cpu", torch.bfloat16)
    tokens, input_pos = torch.tensor([[5]]), torch.tensor([[0]])
    return torch.cat([decoder.step(tokens, input_pos, kv_cache) for _ in range(6)])


right = logits_of(TritonDecoder(model, config, **switches))
for more in {}, {"merge": True}, {"grouped": True}, {"splits": 1}:
    logits = logits_of(Variant(model, config, **switches | more))
    assert (logits - right).norm() < 0.02 * right.norm(), more
"""


@pytest.mark.parametrize(("data_sheet", "shares"), [(None, "50.0%"), (5.0, "50.0% | 40.0%")])
def test_the_page_has_a_share_of_each_limit(data_sheet, shares):
    row = {"q1": 990.0, "median": 1000.0, "q3": 1020.0, "error": 0.0375, "kernels": 98.0}
    found = pd.DataFrame([row], ["early"])
    page = decode_step.report(found, 2 * 10**9, read_bandwidth=4.0, data_sheet=data_sheet)
    assert f"| early | 1000.00 [990.00, 1020.00] | {shares} | 98 | 0.0375 |" in page
    assert ("--data-sheet 5`" in page) == (data_sheet is not None)
    assert f"- **early**: {decode_step.IDEAS['early'].reason}" in page


def test_without_a_gpu_it_says_what_it_needs(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert decode_step.main([]) == 2
    assert "compute capability 9.0" in capsys.readouterr().err


@pytest.mark.weekly
def test_variants_compute_the_same():
    """In Triton's interpreter: without prefetches and meetings, which the benchmark checks."""
    done = run_python("-c", IN_THE_INTERPRETER, TRITON_INTERPRET="1")
    assert done.returncode == 0, done.stderr[-800:]
