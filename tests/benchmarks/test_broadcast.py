"""The page on weights from another GPU counts tokens, and one GPU is not enough."""

import pandas as pd
import torch

from benchmarks import broadcast


def test_the_page_counts_tokens_over_all_updates():
    rows = {"ms": [8.0, 9.0], "equal": [64, 63], "as before": [7, 9], "GB": [2.5, 2.5]}
    page = broadcast.report(pd.DataFrame(rows))
    assert "| 127 of 128 | 16 of 128 |" in page
    assert "8.50 [8.25, 8.75]" in page


def test_one_gpu_is_refused_in_a_sentence(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert broadcast.main() == 2
    assert "needs two CUDA GPUs" in capsys.readouterr().err
