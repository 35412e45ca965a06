"""Sequences of many lengths by a few graphs: padding, masks, and results read one batch later.

    python examples/pad_to_buckets.py

It needs a CUDA GPU and nothing but PyTorch. Numbered lines keep the results right.
"""

from collections.abc import Callable, Iterable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SIZES = (16, 64, 256)  # tokens; a batch is padded to the next of them
BATCH_SIZE = 8


class Encoder(nn.Module):
    """Yours. It embeds sequences of tokens, and ignores what is behind their lengths."""

    def __init__(self, vocab_size: int = 100, dim: int = 64, n_heads: int = 4) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.embedding = nn.Embedding(vocab_size, dim)
        self.qkv = nn.Linear(dim, 3 * dim)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """tokens: (B, T), lengths: (B,). The mean over each sequence, (B, dim)."""
        index = torch.arange(tokens.shape[1], device=tokens.device)
        valid = index < lengths[:, None]  # 1. the lengths are a tensor
        heads = self.qkv(self.embedding(tokens)).unflatten(-1, (3, self.n_heads, -1))
        q, k, v = heads.permute(2, 0, 3, 1, 4)  # each (B, n_heads, T, head_dim)
        mask = valid[:, None, None, :]
        x = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)  # 2. attention has a mask
        x = x.transpose(1, 2).flatten(2)  # (B, T, dim)
        x = torch.where(valid[..., None], x, 0)  # 3. so has the mean
        return x.sum(1) / lengths[:, None]


@torch.no_grad()
def graphed(model: nn.Module) -> Callable[[Tensor, Tensor], Tensor]:
    """A function of tokens and lengths like model. Its next call overwrites the result."""
    static_tokens = torch.zeros(BATCH_SIZE * max(SIZES), dtype=torch.long, device="cuda")
    static_lengths = torch.ones(BATCH_SIZE, dtype=torch.long, device="cuda")
    inputs = {n: static_tokens[: BATCH_SIZE * n].view(BATCH_SIZE, n) for n in SIZES}
    side_stream = torch.cuda.Stream()
    side_stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side_stream):
        for size in SIZES:
            model(inputs[size], static_lengths)  # the warm-up
    torch.cuda.current_stream().wait_stream(side_stream)

    pool = torch.cuda.graph_pool_handle()
    graphs = {}
    outputs = {}
    for size in sorted(SIZES, reverse=True):
        graphs[size] = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graphs[size], pool=pool):
            outputs[size] = model(inputs[size], static_lengths)

    def encode(tokens: Tensor, lengths: Tensor) -> Tensor:
        length = tokens.shape[1]
        if length > max(SIZES):
            raise ValueError(f"{length} tokens are more than {max(SIZES)}: split the sequences.")
        size = min(size for size in SIZES if size >= length)
        inputs[size][:, :length].copy_(tokens)
        static_lengths.copy_(lengths)
        graphs[size].replay()
        return outputs[size]

    return encode


def encode_batches(encode: Callable, batches: Iterable[tuple[Tensor, Tensor]]) -> Iterator[Tensor]:
    """The results of all batches on the CPU; each is read while the GPU works on the next one."""
    waiting: list[tuple[Tensor, torch.cuda.Event]] = []
    for tokens, lengths in batches:
        output = encode(tokens, lengths)
        host_output = torch.empty(output.shape, dtype=output.dtype, pin_memory=True)
        host_output.copy_(output, non_blocking=True)
        copied = torch.cuda.Event()
        copied.record()
        waiting.append((host_output, copied))
        if len(waiting) == 2:
            yield wait_for_output(*waiting.pop(0))
    for host_output, copied in waiting:
        yield wait_for_output(host_output, copied)


def wait_for_output(host_output: Tensor, copied: torch.cuda.Event) -> Tensor:
    """A result on the CPU."""
    copied.synchronize()  # 4. without this it may be the memory's old content
    return host_output


def main() -> None:
    """Encode batches of many lengths, and compare with the eager model without padding."""
    torch.manual_seed(0)
    model = Encoder().cuda().eval()
    batches = []
    for longest in (200, 20, 64, 3, 100, 5):
        tokens = torch.randint(100, (BATCH_SIZE, longest), device="cuda")
        lengths = torch.randint(1, longest + 1, (BATCH_SIZE,), device="cuda")
        batches.append((tokens, lengths))

    with torch.no_grad():
        expected = [model(*batch).cpu() for batch in batches]
    found = encode_batches(graphed(model), batches)
    close = [torch.allclose(*pair, atol=1e-5) for pair in zip(found, expected, strict=True)]
    print("as the eager model:", all(close))


if __name__ == "__main__":
    main()
