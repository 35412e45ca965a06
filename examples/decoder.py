"""A decoder of the Llama family with a static key-value cache, ready for a CUDA graph.

    model = Decoder(Config(), "cuda", torch.bfloat16)
    kv_cache = new_kv_cache(Config(), batch_size=1, device="cuda", dtype=torch.bfloat16)
    logits = model(tokens, input_pos, kv_cache)
    tokens = sample(logits, temperature=0.8)

Tokens, positions and cache are tensors on the GPU, and a step reads none of them back to the CPU:
so a graph can hold it. In the comments B is the batch size, and T the number of tokens that a call
reads: that of the prompt in a prefill, 1 in a decode step. The default sizes are those of Llama
3.2 1B: https://huggingface.co/meta-llama/Llama-3.2-1B
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Config:
    """The sizes of a decoder; the defaults make 1.24 billion parameters."""

    n_layers: int = 16
    dim: int = 2048
    n_heads: int = 32
    n_kv_heads: int = 8
    hidden_dim: int = 8192
    vocab_size: int = 128256
    max_seq_len: int = 512
    rope_theta: float = 500000.0
    norm_eps: float = 1e-5

    @property
    def head_dim(self) -> int:
        """The width of one head."""
        return self.dim // self.n_heads


def new_kv_cache(config: Config, batch_size: int, device: str, dtype: torch.dtype) -> Tensor:
    """Zeros for keys and values, (n_layers, 2, batch_size, n_kv_heads, max_seq_len, head_dim)."""
    shape = (batch_size, config.n_kv_heads, config.max_seq_len, config.head_dim)
    return torch.zeros(config.n_layers, 2, *shape, device=device, dtype=dtype)


def rope_tables(config: Config, device: str) -> tuple[Tensor, Tensor]:
    """The cosines and sines of every position, each (max_seq_len, 1, head_dim / 2)."""
    exponents = torch.arange(0, config.head_dim, 2, device=device) / config.head_dim
    positions = torch.arange(config.max_seq_len, device=device)
    angles = positions[:, None, None] / config.rope_theta**exponents
    return angles.cos(), angles.sin()


def apply_rotary_emb(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate x (B, T, heads, head_dim) by the angles of its positions, (B, T, 1, head_dim / 2)."""
    left, right = x.float().chunk(2, dim=-1)
    rotated = torch.cat((left * cos - right * sin, right * cos + left * sin), dim=-1)
    return rotated.to(x.dtype)


def write_at(cache: Tensor, input_pos: Tensor, new: Tensor) -> None:
    """Write new (B, T, n_kv_heads, head_dim) into cache (B, n_kv_heads, max_seq_len, head_dim)."""
    new = new.transpose(1, 2)  # (B, n_kv_heads, T, head_dim)
    index = input_pos[:, None, :, None].expand_as(new)
    cache.scatter_(2, index, new)  # in place: the address and the shape stay


class Attention(nn.Module):
    """Grouped-query attention over a static cache."""

    def __init__(self, config: Config, **factory_kwargs: Any) -> None:
        super().__init__()
        self.n_heads = config.n_heads
        self.n_kv_heads = config.n_kv_heads
        self.head_dim = config.head_dim
        qkv_dim = (config.n_heads + 2 * config.n_kv_heads) * config.head_dim
        self.qkv = nn.Linear(config.dim, qkv_dim, bias=False, **factory_kwargs)
        self.output = nn.Linear(config.dim, config.dim, bias=False, **factory_kwargs)

    def forward(
        self, x: Tensor, kv_cache: Tensor, input_pos: Tensor, cos: Tensor, sin: Tensor, mask: Tensor
    ) -> Tensor:
        """x (B, T, dim) to the same shape; writes its keys and values into kv_cache at input_pos.

        kv_cache: (2, B, n_kv_heads, max_seq_len, head_dim). input_pos: (B, T). cos, sin: (B, T, 1,
        head_dim / 2). mask: (B, 1, 1, T, max_seq_len), True where a token must not look.
        """
        qkv = self.qkv(x).unflatten(-1, (-1, self.head_dim))  # (B, T, heads, head_dim)
        q, k, v = qkv.split([self.n_heads, self.n_kv_heads, self.n_kv_heads], dim=2)
        q = apply_rotary_emb(q, cos, sin)
        k = apply_rotary_emb(k, cos, sin)
        keys, values = kv_cache  # each (B, n_kv_heads, max_seq_len, head_dim)
        write_at(keys, input_pos, k)
        write_at(values, input_pos, v)
        return self.output(self.attend(q, keys, values, mask))

    def attend(self, q: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        """q (B, T, n_heads, head_dim) to (B, T, dim), by products that repeat their bits.

        A fused kernel may give other bits in each run. keys, values: (B, n_kv_heads, max_seq_len,
        head_dim); each head of them serves a group of query heads.
        """
        q = q.unflatten(2, (self.n_kv_heads, -1)) * self.head_dim**-0.5
        q = q.permute(0, 2, 3, 1, 4)  # (B, n_kv_heads, group, T, head_dim)
        scores = q.flatten(2, 3) @ keys.mT  # (B, n_kv_heads, group * T, max_seq_len)
        scores.unflatten(2, q.shape[2:4]).masked_fill_(mask, -torch.inf)
        y = scores.softmax(dim=-1) @ values  # (B, n_kv_heads, group * T, head_dim)
        y = y.unflatten(2, q.shape[2:4])  # (B, n_kv_heads, group, T, head_dim)
        return y.permute(0, 3, 1, 2, 4).flatten(2)


class FeedForward(nn.Module):
    """A gated linear unit: silu(gate) * up, projected down."""

    def __init__(self, config: Config, **factory_kwargs: Any) -> None:
        super().__init__()
        self.gate_up = nn.Linear(config.dim, 2 * config.hidden_dim, bias=False, **factory_kwargs)
        self.down = nn.Linear(config.hidden_dim, config.dim, bias=False, **factory_kwargs)

    def forward(self, x: Tensor) -> Tensor:
        """x (B, T, dim) to the same shape."""
        gate, up = self.gate_up(x).chunk(2, dim=-1)  # each (B, T, hidden_dim)
        return self.down(F.silu(gate) * up)


class Block(nn.Module):
    """Attention and feed-forward, each on the normalized input and added to it."""

    def __init__(self, config: Config, **factory_kwargs: Any) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(config.dim, config.norm_eps, **factory_kwargs)
        self.attention = Attention(config, **factory_kwargs)
        self.feed_forward_norm = nn.RMSNorm(config.dim, config.norm_eps, **factory_kwargs)
        self.feed_forward = FeedForward(config, **factory_kwargs)

    def forward(
        self, x: Tensor, kv_cache: Tensor, input_pos: Tensor, cos: Tensor, sin: Tensor, mask: Tensor
    ) -> Tensor:
        """x (B, T, dim) to the same shape; the other arguments are the attention's."""
        x = x + self.attention(self.attention_norm(x), kv_cache, input_pos, cos, sin, mask)
        return x + self.feed_forward(self.feed_forward_norm(x))


class Decoder(nn.Module):
    """A Llama-style decoder with random weights; the embedding is also the head."""

    def __init__(
        self,
        config: Config,
        device: str = "cpu",
        dtype: torch.dtype = torch.float32,
        seed: int = 0,
    ) -> None:
        super().__init__()
        factory_kwargs = {"device": device, "dtype": dtype}
        self.embedding = nn.Embedding(config.vocab_size, config.dim, **factory_kwargs)
        self.blocks = nn.ModuleList(Block(config, **factory_kwargs) for _ in range(config.n_layers))
        self.norm = nn.RMSNorm(config.dim, config.norm_eps, **factory_kwargs)
        cos, sin = rope_tables(config, device)
        self.register_buffer("cos", cos)
        self.register_buffer("sin", sin)
        self.register_buffer("positions", torch.arange(config.max_seq_len, device=device))
        generator = torch.Generator(device).manual_seed(seed)
        for weight in self.parameters():
            if weight.dim() == 2:  # with a smaller std it would say the same token again and again
                weight.data.normal_(std=2 * weight.shape[1] ** -0.5, generator=generator)

    def forward(self, tokens: Tensor, input_pos: Tensor, kv_cache: Tensor) -> Tensor:
        """The logits of the last token, (B, vocab_size), float32; writes into the cache in place.

        tokens, input_pos: (B, T), int64. kv_cache: (n_layers, 2, B, n_kv_heads, max_seq_len,
        head_dim); kv_cache[:, :, :b] is a cache of b rows.
        """
        x = self.hidden_states(tokens, input_pos, kv_cache)
        return project(self.norm(x[:, -1]), self.embedding.weight)

    def hidden_states(
        self, tokens: Tensor, input_pos: Tensor, kv_cache: Tensor | Sequence[Any]
    ) -> Tensor:
        """What the last block makes of each token, (B, T, dim); writes into the cache in place."""
        x = self.embedding(tokens)  # (B, T, dim)
        cos, sin = self.cos[input_pos], self.sin[input_pos]  # (B, T, 1, head_dim / 2)
        mask = self.positions > input_pos[..., None]  # (B, T, max_seq_len)
        mask = mask[:, None, None]  # (B, 1, 1, T, max_seq_len)
        for block, layer_cache in zip(self.blocks, kv_cache, strict=True):
            x = block(x, layer_cache, input_pos, cos, sin, mask)
        return x


def prefill(
    model: Decoder, config: Config, prompts: Sequence[Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """Read each prompt (1, T) into its row of a new cache; their lengths may differ.

    Returns the state of the first decode step: tokens and input_pos, (B, 1), and the cache.
    """
    weight = model.embedding.weight
    kv_cache = new_kv_cache(config, len(prompts), weight.device.type, weight.dtype)
    tokens = []
    for row, prompt in enumerate(prompts):
        input_pos = model.positions[None, : prompt.shape[1]]
        tokens.append(sample(model(prompt, input_pos, kv_cache[:, :, row : row + 1])))
    lengths = [[prompt.shape[1]] for prompt in prompts]
    return torch.cat(tokens), torch.tensor(lengths, device=weight.device), kv_cache


def project(x: Tensor, weight: Tensor) -> Tensor:
    """x (B, dim) times the head (vocab_size, dim), in float32, because logits in bfloat16 tie."""
    if x.is_cuda and x.dtype != torch.float32:
        return torch.mm(x, weight.t(), out_dtype=torch.float32)
    return F.linear(x, weight).float()


def sample(
    logits: Tensor, temperature: float = 0.0, generator: torch.Generator | None = None
) -> Tensor:
    """The next tokens (B, 1): the most likely ones at temperature 0, else drawn.

    They are drawn from the softmax by the Gumbel trick: add noise to the logits, take the largest.
    The noise comes from the generator, or from the default one of the device.
    """
    if temperature == 0:
        return logits.argmax(dim=-1, keepdim=True)
    noise = torch.empty_like(logits).exponential_(generator=generator).log()
    return (logits / temperature - noise).argmax(dim=-1, keepdim=True)
