"""DDP and FSDP2 on two ranks, in eager mode on the CPU, and one GPU's graph on the stand-in."""

import json
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

from cpu_graph import cpu_graphs
from examples import overlap_ddp
from tests.support.scripts import GLOO, changed_source, names_of, printed_by_two_ranks

SMALLER = {"4096": "32", "2048": "16", "1024": "16", "512": "8", "256": "4", "640": "8"}
SCRIPT = {
    "from examples.train_ddp": "from train_ddp",
    "from examples.split_decoder": "from split_decoder",
    "range(22)": "range(3)",
    "range(20)": "range(2)",
}
ON_THE_CPU = {
    "torch.cuda.synchronize()": "pass",
    "torch.cuda.Stream()": "None",
    "with torch.cuda.stream(side_stream):": "if True:",
    '("eager", "graph")\n]': '("eager",)\n]',
}


def test_one_gpu_trains_the_same_in_a_graph(monkeypatch):
    fewer = {"range(22)": "range(3)", "range(20)": "range(2)"}
    names = names_of("compare_ddp", smaller=fewer.items())
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


@pytest.mark.weekly
def test_two_ranks_agree_and_fsdp2_trains_as_ddp(tmp_path):
    cpu = {".cuda()": "", ', device="cuda"': ""}
    smaller = {"compare_ddp": SCRIPT | ON_THE_CPU, "train_ddp": SMALLER | cpu}
    smaller["split_decoder"] = GLOO
    for name, instead in smaller.items():
        (tmp_path / f"{name}.py").write_text(changed_source(name, smaller=instead.items()))
    trained = json.loads(printed_by_two_ranks(tmp_path / "compare_ddp.py")[-1])["trained"]
    assert trained["FSDP2, eager"][:-1] == pytest.approx(trained["DDP, eager"][:-1], rel=1e-5)
    assert trained["one GPU, eager"] != trained["DDP, eager"]


def test_the_hook_averages_a_bucket_on_its_own_stream(monkeypatch):
    calls = []

    class Future:  # torch's own wants CUDA's driver
        def __init__(self, devices):
            self.devices = devices

        def set_result(self, result):
            calls.append(("result", torch.cuda.current_stream(), result))

    def all_reduce(gradients, op):
        calls.append((op, torch.cuda.current_stream(), gradients))

    monkeypatch.setattr(torch.futures, "Future", Future)
    monkeypatch.setattr(dist, "all_reduce", all_reduce)
    with cpu_graphs():
        stream = torch.cuda.Stream()
        gradients = torch.ones(3, device="cuda")
        bucket = SimpleNamespace(buffer=lambda: gradients)
        future = overlap_ddp.all_reduce_on(stream, bucket)
        assert torch.cuda.current_stream() != stream
        assert future.devices == [gradients.device]
    assert calls == [(dist.ReduceOp.AVG, stream, gradients), ("result", stream, gradients)]
