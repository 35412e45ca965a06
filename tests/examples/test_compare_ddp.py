"""DDP and FSDP2 on two ranks, in eager mode on the CPU, and one GPU's graph on the stand-in."""

import torch.distributed as dist

from cpu_graph import cpu_graphs
from tests.support.scripts import names_of

SMALLER = {"4096": "32", "2048": "16", "1024": "16", "512": "8", "256": "4", "640": "8"}


def test_one_gpu_trains_the_same_in_a_graph(monkeypatch):
    names = names_of(
        "compare_ddp", smaller={"range(22)": "range(3)", "range(20)": "range(2)"}.items()
    )
    train_ddp = names_of("train_ddp", smaller=SMALLER.items())
    names |= {name: train_ddp[name] for name in ("make_model", "make_batches")}
    monkeypatch.setattr(dist, "get_rank", lambda: 0)
    monkeypatch.setattr(dist, "barrier", lambda: None)
    with cpu_graphs() as device:
        found = names["compare"](["one GPU, eager", "one GPU, graph"], None, None)
        assert device.launches["graphs"] == 4 + 3 * 2
    assert found["trained"]["one GPU, eager"] == found["trained"]["one GPU, graph"]
    assert len(found["trained"]["one GPU, eager"]) == 4 + 1
    assert [row[0] for row in found["times"]] == ["one GPU, eager", "one GPU, graph"]
