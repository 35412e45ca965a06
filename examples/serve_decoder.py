"""Serve a decoder by CUDA graphs, scheduling one step ahead:  python -m examples.serve_decoder

It needs a CUDA GPU of compute capability 8.0 or newer. The model is that of decoder.py, the traffic
that of serving.py: replace both. Numbered lines keep the answers right, or the GPU at work.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from examples.decoder import Config, Decoder, new_kv_cache, project, sample
from examples.serving import Request, advance, deliver, figures, fit, make_requests, pack, schedule

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
MIN_Q = 2  # with 1, FlashAttention takes a kernel for exactly one query in every slot


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
        max_q=max_q,
        max_k=CONFIG.max_seq_len,
        dropout_p=0.0,
        is_causal=True,
        return_debug_mask=False,
        seqused_k=rows[1, :SLOTS],
    )
    return output


class Server:
    """Serves requests by a graph for each size of a batch, one step ahead."""

    def __init__(self, model: Decoder, sizes: Sequence[int] = SIZES) -> None:
        self.model, self.sizes = model, sizes
        places = replace(CONFIG, max_seq_len=(SLOTS + 1) * CONFIG.max_seq_len)  # one slot is spare
        self.kv_cache = new_kv_cache(places, 1, "cuda", DTYPE)
        self.tokens = torch.zeros(3, BUDGET, dtype=torch.long, device="cuda")
        self.rows = torch.zeros(2, SLOTS + 1, dtype=torch.int32, device="cuda")
        self.key_start = CONFIG.max_seq_len * torch.arange(
            SLOTS + 1, dtype=torch.int32, device="cuda"
        )
        self.next_tokens = torch.zeros(SLOTS, dtype=torch.long, device="cuda")
        self.use_attention(self.attend)
        self.graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self.pool = torch.cuda.graph_pool_handle()
        self.write_empty_batch()
        self.run(sizes[-1], sizes[-1])  # 2. the largest first: the others reuse its memory

    def use_attention(self, function: Callable) -> None:
        """Let the model call this function in place of its own attention, with max_q as mask."""
        for block in self.model.blocks:
            block.attention.attend = function

    def attend(self, q: Tensor, keys: Tensor, values: Tensor, max_q: int) -> Tensor:
        """q (1, T, n_heads, head_dim) to (1, T, dim)."""
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

    def run(self, count: int, max_q: int) -> None:
        """Compute a batch of count tokens by the smallest graph that holds them.

        Line 5 lets other threads pin memory during a capture. None may synchronize the device or
        capture meanwhile, in any mode: hold one lock around those and this call.
        """
        size = fit(self.sizes, count)
        if size in self.graphs:
            self.graphs[size].replay()
            return
        self.step(size, max_q)  # 4. computes this batch, and is the warm-up of the capture
        graph = torch.cuda.CUDAGraph()
        mode = "thread_local"  # 5. other threads may pin memory meanwhile
        with torch.cuda.graph(graph, pool=self.pool, capture_error_mode=mode):
            self.step(size, max_q=max(size, MIN_Q))  # 6. frozen: one request may bring all tokens
        self.graphs[size] = graph

    def write(self, slots: list[Request | None], batch: dict[int, int]) -> None:
        """Write a batch into the static inputs, without waiting for the GPU."""
        tokens, rows = pack(slots, batch, CONFIG.max_seq_len, BUDGET)
        self.tokens.copy_(tokens.pin_memory(), non_blocking=True)
        self.rows.copy_(rows.pin_memory(), non_blocking=True)

    def write_empty_batch(self) -> None:
        """Write a batch of no tokens, which fits into every size."""
        self.write([None] * SLOTS, {})

    def serve(
        self, requests: list[Request], run: Callable | None = None, ahead: int = 1
    ) -> list[Request]:
        """Serve all requests, which are in the order of their arrival, and return them.

        run: in place of self.run. ahead: how many steps may be launched and not yet read.
        """
        run = run or self.run
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
                run(sum(batch.values()), max(MIN_Q, *batch.values()))
                host_tokens = torch.empty(SLOTS, dtype=torch.long, pin_memory=True)
                host_tokens.copy_(self.next_tokens, non_blocking=True)
                copied = torch.cuda.Event()
                copied.record()
                unread.append((advance(slots, batch), host_tokens, copied))
            if unread and (len(unread) > ahead or not batch):  # 7. the step before this one
                awaited, host_tokens, copied = unread.pop(0)
                copied.synchronize()  # 8. before that, the memory holds old tokens
                deliver(awaited, host_tokens.tolist(), time.perf_counter() - start)
        return requests


def main(count: int = 500) -> None:
    """Serve requests that are all there at the start, without and with graphs."""
    server = Server(Decoder(CONFIG, "cuda", DTYPE).requires_grad_(False))

    def eager(count: int, max_q: int) -> None:
        server.step(fit(SIZES, count), max_q)

    expected = server.serve(make_requests(count), run=eager, ahead=0)
    served = server.serve(make_requests(count))
    equal = sum(one.tokens == other.tokens for one, other in zip(served, expected, strict=True))
    print(f"{equal} of {count} answers are equal, {len(server.graphs)} graphs")
    for name, requests in {"eager": expected, "graphs": served}.items():
        print(f"{name}: {figures(requests)['tokens per s']:.0f} tokens per s")


if __name__ == "__main__":
    main()
