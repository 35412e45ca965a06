"""A decoder on two ranks: one rank's graph on the stand-in, two ranks in eager mode on the CPU."""

import json
import re
import threading
from contextlib import redirect_stdout
from io import StringIO

import pytest
import torch

from cpu_graph import cpu_graphs
from examples import small_llama, split_decoder
from examples.decoder import new_kv_cache
from tests.support.machine import PATIENCE
from tests.support.scripts import GLOO, changed, numbered_lines, of_the_lesson, printed_by_two_ranks

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
GREEDY = {"TEMPERATURE = 0.8": "TEMPERATURE = 0.0", "torch.manual_seed(0)": "pass"}
CHANGED = of_the_lesson("split_decoder", "changed")
KINDS = {
    "1 qkv as one section": "wrong text",
    "2 all heads": "raises",
    "3 no sum after attention": "ranks differ",
    "4 sum after the block": "wrong text",
    "5 the whole cache": "raises",
    "6 a seed per rank": "ranks differ",
    "7 sum after attention.output": "same",
}


def script(*changes, instead):
    return CAPTURE.sub(EAGER, changed("split_decoder", *changes, smaller=instead.items()))


class Ranks:
    """torch.distributed for two threads of this process."""

    def __init__(self):
        self.barrier = threading.Barrier(2, timeout=PATIENCE)
        self.of_thread = threading.local()
        self.sent = [torch.empty(0)] * 2

    def get_rank(self):
        return self.of_thread.rank

    def get_world_size(self):
        return 2

    def all_reduce(self, x):
        self.sent[self.get_rank()] = x.clone()
        self.barrier.wait()
        x.copy_(sum(self.sent))
        self.barrier.wait()

    def destroy_process_group(self):
        pass


def printed_by_two(*changes):
    """What two ranks print, each on its own line, or "raises"."""
    names = {"__name__": "split_decoder"}
    exec(compile(script(*changes, instead=ON_THE_CPU | GREEDY), "split_decoder", "exec"), names)
    names["dist"] = ranks = Ranks()
    names["join"] = lambda: None
    raised = []

    def run(rank):
        ranks.of_thread.rank = rank
        try:
            names["main"]()
        except RuntimeError as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in (0, 1)]
    with redirect_stdout(StringIO()) as printed:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(raised) in (0, 2), raised
    return "raises" if raised else [line[8:] for line in printed.getvalue().splitlines()]


def kind(lines, right):
    if lines == "raises":
        return "raises"
    if lines[0] != lines[1]:
        return "ranks differ"
    return "same" if lines == right else "wrong text"


@pytest.fixture(scope="module")
def two_ranks():
    return printed_by_two()


def test_two_ranks_write_the_text_of_the_whole_model(two_ranks):
    model, config = small_llama.load("model")
    cache = new_kv_cache(config, 1, "cpu", torch.float32)
    token, text = torch.tensor([[ord("K")]]), []
    for position in range(40):
        token = model(token, torch.tensor([[position]]), cache).argmax(dim=-1, keepdim=True)
        text.append(token)
    assert two_ranks[0] == two_ranks[1]
    assert two_ranks[0].endswith(repr(small_llama.decode(torch.cat(text))))


@pytest.mark.parametrize("change", [name for name in KINDS if name[0] != "6"])
def test_a_changed_line_ends_as_the_lesson_says(change, two_ranks):
    assert kind(printed_by_two(CHANGED[change]), two_ranks) == KINDS[change]


def test_every_numbered_line_is_changed():
    numbers = {change[0] for change in CHANGED}
    assert CHANGED.keys() == KINDS.keys()
    assert set(numbered_lines("split_decoder")) <= numbers


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
    (tmp_path / "split_on_the_cpu.py").write_text(script(instead=ON_THE_CPU | GLOO))
    fewer = {
        '"cuda"': '"cpu"',
        "examples.split_decoder": "split_on_the_cpu",
        ', ("1B", 16), ("8B", 4)]': "]",
        ', "one-shot", "none"]': ', "none"]',
        "[-400:]": "[-50:]",
    }
    file = tmp_path / "compare_splits.py"
    file.write_text(changed("compare_splits", smaller=fewer.items()))
    found = json.loads(printed_by_two_ranks(file, "logits")[-1])["logits"]["trained"]
    assert found["parallelize_module"] == found["NCCL"]
    assert found["NCCL"]["equals NCCL"] and found["NCCL"]["ranks equal"]
    assert found["NCCL"]["distance"] < 2 * found["one GPU"]["distance"] < 0.1
    assert found["none"]["distance"] > 0.3 and not found["none"]["ranks equal"]
