"""What Graph Megatron builds its training from, without Megatron."""

import subprocess
import sys

import torch

from course.paths import ROOT
from cpu_graph import cpu_graphs
from examples import megatron_gpt

WITHOUT = """
import sys

sys.modules["megatron"] = None  # an import of it would fail
import examples.megatron_gpt
import examples.megatron_pipeline
"""


def test_it_imports_without_megatron():
    subprocess.run([sys.executable, "-c", WITHOUT], cwd=ROOT, check=True)


def test_a_microbatch_has_the_next_tokens_as_labels():
    with cpu_graphs():
        torch.manual_seed(0)
        batch = megatron_gpt.make_microbatch(length=5, batch_size=3)
        assert {name: tuple(data.shape) for name, data in batch.items()} == dict.fromkeys(
            ("input_ids", "labels", "position_ids"), (3, 5)
        )
        assert torch.equal(batch["input_ids"][:, 1:], batch["labels"][:, :-1])
        assert batch["position_ids"].tolist() == 3 * [[0, 1, 2, 3, 4]]


def test_a_step_passes_the_microbatch_and_reports_the_mean_loss():
    def model(input_ids, labels, position_ids, attention_mask):
        assert attention_mask is None
        return (input_ids + labels + position_ids).float()

    ones = torch.ones(2, 3, dtype=torch.long)
    names = ("input_ids", "labels", "position_ids")
    losses, loss_func = megatron_gpt.forward_step(iter([dict.fromkeys(names, ones)]), model)
    loss, report = loss_func(losses)
    assert loss == report["lm loss"] == 3
    assert report["lm loss"].data_ptr() != loss.data_ptr()


def test_pools_are_counted_without_the_ordinary_memory(monkeypatch):
    segments = [
        {"segment_pool_id": (0, 0), "total_size": 7 << 20},
        {"segment_pool_id": (0, 1), "total_size": 2 << 20},
        {"segment_pool_id": (1, 0), "total_size": 3 << 20},
    ]
    monkeypatch.setattr(torch.cuda, "memory_snapshot", lambda: segments)
    assert megatron_gpt.pool_mib() == 5
