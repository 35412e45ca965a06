"""A decoder on two ranks: one rank's graph on the stand-in, two eager ranks on the CPU."""

import json
import re

import pytest
import torch

from cpu_graph import cpu_graphs
from examples import small_llama, split_decoder
from tests.support.scripts import GLOO, changed_source, printed_by_two_ranks

CAPTURE = re.compile(
    r"        side_stream = .*        with torch\.cuda\.graph[^\n]*\n[^\n]*\n", re.DOTALL
)
EAGER = "        self.graph = Eager(self)\n"
EAGER_GRAPH = '''

class Eager:
    """In place of a graph."""

    def __init__(self, decoder):
        self.decoder = decoder

    def replay(self):
        self.decoder.logits = self.decoder.step()

    def reset(self):
        pass


class DecodeGraph'''
ON_THE_CPU = {
    '"cuda"': '"cpu"',
    "\n\nclass DecodeGraph": EAGER_GRAPH,
    "N_TOKENS = 120": "N_TOKENS = 40",
}


def test_the_graph_of_a_rank_decodes_as_eager(monkeypatch):
    model, config = small_llama.load("model")
    with cpu_graphs() as device:
        split_decoder.split(model.to("cuda"), 0, 1, lambda x: x)
        decoder = split_decoder.DecodeGraph(model, config)
        texts = []
        for step in (decoder.graph.replay, decoder.step):
            decoder.start(ord("K"))
            tokens = []
            for _ in range(20):
                step()
                tokens.append(decoder.token.clone())
            texts.append(small_llama.decode(torch.cat(tokens)))
        assert texts[0] == texts[1] and len(set(texts[0])) > 5
        assert device.launches["graphs"] == 20


@pytest.mark.weekly
def test_parallelize_module_splits_as_the_script_does(tmp_path):
    """And a rank without the sums is far off."""
    source = changed_source("split_decoder", smaller=(ON_THE_CPU | GLOO).items())
    (tmp_path / "split_on_the_cpu.py").write_text(CAPTURE.sub(EAGER, source))
    fewer = {
        '"cuda"': '"cpu"',
        "examples.split_decoder": "split_on_the_cpu",
        ', ("1B", 16), ("8B", 4)]': "]",
        ', "one-shot", "none"]': ', "none"]',
        "[-400:]": "[-50:]",
    }
    file = tmp_path / "compare_splits.py"
    file.write_text(changed_source("compare_splits", smaller=fewer.items()))
    found = json.loads(printed_by_two_ranks(file, "logits")[-1])["logits"]["trained"]
    assert found["parallelize_module"] == found["NCCL"]
    assert found["NCCL"]["equals NCCL"] and found["NCCL"]["ranks equal"]
    assert found["NCCL"]["distance"] < 2 * found["one GPU"]["distance"] < 0.1
    assert found["none"]["distance"] > 0.3 and not found["none"]["ranks equal"]
