"""Answers by graphs are those without graphs.

FlashAttention runs on GPUs only, so attention is written out here, with what the test is about: as
many blocks of queries as max_q needs, and no result in the rows that none of them computes.
"""

import torch

from cpu_graph import cpu_graphs
from examples.decoder import Config
from examples.serving import Request
from tests.support.scripts import names_of

QUERIES = 4  # of a block
TINY = Config(
    n_layers=1, dim=16, n_heads=2, n_kv_heads=1, hidden_dim=16, vocab_size=29, max_seq_len=16
)


def attention(q, k, v, rows, key_start, max_q):
    starts, lengths = rows.long()
    index = torch.arange(len(q), device="cuda")
    slot = (torch.searchsorted(starts, index, right=True) - 1).clamp(0, len(starts) - 2)
    number = index - starts[slot]  # of the query in its request
    position = lengths[slot] - (starts[slot + 1] - starts[slot]) + number
    key = torch.arange(len(k), device="cuda") - key_start.long()[slot][:, None]
    seen = (key >= 0) & (key <= position[:, None])  # (tokens, keys)
    scores = torch.einsum("qhd,kd->hqk", q, k[:, 0]).masked_fill(~seen, -torch.inf)
    values = torch.where(seen[..., None], v[:, 0], 0)  # (tokens, keys, head_dim)
    output = torch.einsum("hqk,qkd->qhd", scores.softmax(-1), values)
    assert max_q > 1, "one query in every slot: FlashAttention would take another kernel"
    blocks = -(-max_q // QUERIES)
    return torch.where((number < blocks * QUERIES)[:, None, None], output, 7.0)


def requests(count):
    torch.manual_seed(1)
    lengths = torch.randint(1, 10, (count,)).tolist()
    prompts = [torch.randint(29, (length,)).tolist() for length in lengths]
    return [Request(prompt, limit=3, arrival=0.0) for prompt in prompts]


def printed(capsys, *changes):
    names = names_of("serve_decoder", *changes, ("*range(8, BUDGET + 1, 8)", "8"))
    names |= {"CONFIG": TINY, "DTYPE": torch.float32, "SLOTS": 2, "BUDGET": 8}
    names |= {"varlen_attention": attention, "make_requests": requests}
    with cpu_graphs():
        names["main"](6)
    return capsys.readouterr().out


def test_its_answers_are_those_of_the_eager_server(capsys):
    assert "6 of 6 answers are equal, 3 graphs" in printed(capsys)


def test_tokens_may_be_read_later(capsys):
    assert "6 of 6" in printed(capsys, ("ahead: int = 1", "ahead: int = 3"))
