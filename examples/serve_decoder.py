"""Serve a decoder by CUDA graphs, scheduling one step ahead:  python -m examples.serve_decoder

It needs a CUDA GPU of compute capability 8.0 or newer. The model is that of decoder.py, the traffic
that of serving.py: replace both. Numbered lines keep the answers right, or the GPU at work.
"""

import time
from dataclasses import replace

import torch
from torch import Tensor

from examples.decoder import Config, Decoder, new_kv_cache, project, sample
from examples.serving import (
    Request,
    advance,
    deliver,
    figures,
    fit,
    make_requests,
    pack,
    schedule,
)

CONFIG = Config(
    n_layers=8,
    dim=1024,
    n_heads=16,
    n_kv_heads=4,
    hidden_dim=4096,
    vocab_size=32000,
    max_seq_len=1024,
)
DTYPE = torch.bfloat16
SLOTS, BUDGET = 32, 512  # requests, and tokens of a step
SIZES = (1, 2, 4, *range(8, BUDGET + 1, 8))


def varlen_attention(
    q: Tensor, k: Tensor, v: Tensor, rows: Tensor, key_start: Tensor, max_q: int
) -> Tensor:
    """Each token attends to its own request: q (tokens, n_heads, head_dim) to the same shape."""
    output, *_ = torch.ops.aten._flash_attention_forward(
        q,
        k,
        v,
        cum_seq_q=rows[0],  # 1. lengths are tensors
        cum_seq_k=key_start,
        max_q=max(max_q, 2),  # 1 would mean: exactly one query in every slot
        max_k=CONFIG.max_seq_len,
        dropout_p=0.0,
        is_causal=True,
        return_debug_mask=False,
        seqused_k=rows[1, :SLOTS],
    )
    return output


class Server:
    """Serves requests by a graph for each size of a batch, one step ahead.

    eager: without graphs, and it reads the tokens of a step before it schedules the next one.
    """

    def __init__(self, model: Decoder, eager: bool = False) -> None:
        self.model, self.eager, self.ahead = model, eager, 0 if eager else 1
        places = replace(CONFIG, max_seq_len=(SLOTS + 1) * CONFIG.max_seq_len)  # one slot is spare
        self.kv_cache = new_kv_cache(places, 1, "cuda", DTYPE)
        self.tokens = torch.zeros(3, BUDGET, dtype=torch.long, device="cuda")
        self.rows = torch.zeros(2, SLOTS + 1, dtype=torch.int32, device="cuda")
        self.key_start = CONFIG.max_seq_len * torch.arange(
            SLOTS + 1, dtype=torch.int32, device="cuda"
        )
        self.next_tokens = torch.zeros(SLOTS, dtype=torch.long, device="cuda")
        for block in model.blocks:
            block.attention.attend = self.attend
        self.graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self.pool = torch.cuda.graph_pool_handle()
        self.write([None] * SLOTS, {})
        self.run(BUDGET)  # 2. the largest graph first: the others reuse its memory

    def attend(self, q: Tensor, keys: Tensor, values: Tensor, max_q: int) -> Tensor:
        """In place of the model's own attention, whose mask is max_q here."""
        k, v = keys[0].transpose(0, 1), values[0].transpose(0, 1)
        return varlen_attention(q[0], k, v, self.rows, self.key_start, max_q).flatten(1)[None]

    def step(self, size: int, max_q: int) -> None:
        """Compute the first size tokens of the static inputs, at most max_q of a request."""
        tokens, positions, places = self.tokens[:, None, :size]  # each (1, size)
        previous = self.next_tokens[(-1 - tokens).clamp(min=0)]
        tokens = torch.where(tokens < 0, previous, tokens)  # 3. tokens that the CPU has not read
        x = self.model.embedding(tokens)
        cos, sin = self.model.cos[positions], self.model.sin[positions]
        for block, layer_cache in zip(self.model.blocks, self.kv_cache, strict=True):
            x = block(x, layer_cache, places, cos, sin, max_q)
        last = (self.rows[0, 1:] - 1).clamp(0, size - 1).long()  # of each slot
        logits = project(self.model.norm(x[0, last]), self.model.embedding.weight)
        self.next_tokens.copy_(sample(logits)[:, 0])

    def run(self, count: int) -> None:
        """Compute a batch of count tokens by the smallest graph that holds them."""
        size = fit(SIZES, count)
        if size in self.graphs:
            self.graphs[size].replay()
            return
        self.step(size, max_q=size)  # 4. computes this batch, and is the warm-up of the capture
        if not self.eager:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self.pool):
                self.step(size, max_q=size)  # 5. frozen: one request may bring all tokens
            self.graphs[size] = graph

    def write(self, slots: list[Request | None], batch: dict[int, int]) -> None:
        """Write a batch into the static inputs."""
        tokens, rows = pack(slots, batch, CONFIG.max_seq_len, BUDGET)
        self.tokens.copy_(tokens.pin_memory(), non_blocking=True)
        self.rows.copy_(rows.pin_memory(), non_blocking=True)

    def serve(self, requests: list[Request]) -> list[Request]:
        """Serve all requests, which are in the order of their arrival, and return them."""
        waiting, start = requests[::-1], time.perf_counter()
        slots: list[Request | None] = [None] * SLOTS
        unread: list[tuple] = []
        while waiting or any(slots) or unread:
            now = time.perf_counter() - start
            while waiting and waiting[-1].arrival <= now and None in slots:
                slots[slots.index(None)] = waiting.pop()
            batch = schedule(slots, BUDGET)
            if batch:
                self.write(slots, batch)
                self.run(sum(batch.values()))
                host_tokens = torch.empty(SLOTS, dtype=torch.long, pin_memory=True)
                host_tokens.copy_(self.next_tokens, non_blocking=True)
                copied = torch.cuda.Event()
                copied.record()
                unread.append((advance(slots, batch), host_tokens, copied))
            if unread and (len(unread) > self.ahead or not batch):  # 6. the step before this one
                awaited, host_tokens, copied = unread.pop(0)
                copied.synchronize()  # 7. before that, the memory holds old tokens
                deliver(awaited, host_tokens.tolist(), time.perf_counter() - start)
        return requests


def main(count: int = 500) -> None:
    """Serve requests that are all there at the start, without and with graphs."""
    model = Decoder(CONFIG, "cuda", DTYPE).requires_grad_(False)
    expected = Server(model, eager=True).serve(make_requests(count))
    server = Server(model)
    served = server.serve(make_requests(count))
    equal = sum(one.tokens == other.tokens for one, other in zip(served, expected, strict=True))
    print(f"{equal} of {count} answers are equal, {len(server.graphs)} graphs")
    for name, requests in {"eager": expected, "graphs": served}.items():
        print(f"{name}: {figures(requests)['tokens per s']:.0f} tokens per s")


if __name__ == "__main__":
    main()
