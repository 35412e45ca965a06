"""A decoder of the Llama family with a static key-value cache, in pure PyTorch: ready for a CUDA graph.

    model = Decoder(Config(), "cuda", torch.bfloat16)
    cache = new_cache(Config(), batch=1, device="cuda", dtype=torch.bfloat16)
    logits = model(tokens, positions, cache)
    tokens = sample(logits, temperature=0.8)

Token, position and cache are tensors on the device: the step reads nothing back, so a graph can hold it.
The shape is that of Llama 3.2 1B: https://huggingface.co/meta-llama/Llama-3.2-1B
"""

from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Config:
    """The sizes of a decoder; the defaults make 1.24 billion parameters."""

    layers: int = 16
    width: int = 2048
    heads: int = 32
    kv_heads: int = 8
    hidden: int = 8192
    vocabulary: int = 128256
    context: int = 512
    rope_theta: float = 500000.0
    eps: float = 1e-5

    @property
    def head(self) -> int:
        """The width of one head."""
        return self.width // self.heads


def new_cache(config: Config, batch: int, device: str, dtype: torch.dtype) -> Tensor:
    """Keys and values of shape (layers, 2, batch, kv_heads, context, head); b rows of it are `cache[:, :, :b]`."""
    shape = (config.layers, 2, batch, config.kv_heads, config.context, config.head)
    return torch.zeros(shape, device=device, dtype=dtype)


def rotations(config: Config, device: str) -> Tensor:
    """RoPE's cosines and sines of every position, (2, context, 1, head / 2)."""
    powers = torch.arange(0, config.head, 2, device=device) / config.head
    angles = torch.arange(config.context, device=device)[:, None, None] / config.rope_theta**powers
    return torch.stack((angles.cos(), angles.sin()))


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x (B, T, heads, head), turned by cosines and sines (B, T, 1, head / 2)."""
    left, right = x.float().chunk(2, dim=-1)
    return torch.cat((left * cos - right * sin, right * cos + left * sin), dim=-1).to(x.dtype)


class Attention(nn.Module):
    """Grouped-query attention that writes its keys and values into a static cache."""

    def __init__(self, config: Config, **place) -> None:
        super().__init__()
        self.groups, self.head = (config.heads, config.kv_heads, config.kv_heads), config.head
        self.qkv = nn.Linear(config.width, sum(self.groups) * config.head, bias=False, **place)
        self.output = nn.Linear(config.width, config.width, bias=False, **place)

    def forward(self, x: Tensor, keys: Tensor, values: Tensor, where: tuple, turns: Tensor, hidden: Tensor) -> Tensor:
        """x (B, T, width) attends to the cache, itself included, but for what is hidden: (B, 1, 1, T, context)."""
        q, k, v = self.qkv(x).unflatten(-1, (-1, self.head)).split(self.groups, dim=2)
        keys[where] = rotate(k, *turns)
        values[where] = v
        return self.output(self.attend(rotate(q, *turns), keys, values, hidden))

    def attend(self, q: Tensor, keys: Tensor, values: Tensor, hidden: Tensor) -> Tensor:
        """q (B, T, heads, head) to (B, T, width). In plain products: a fused kernel need not repeat its bits."""
        q = q.unflatten(2, (keys.shape[1], -1)).permute(0, 2, 3, 1, 4) * self.head**-0.5
        scores = q.flatten(2, 3) @ keys.mT
        scores.view(*q.shape[:-1], -1).masked_fill_(hidden, -torch.inf)
        y = scores.softmax(dim=-1) @ values
        return y.view(q.shape).permute(0, 3, 1, 2, 4).flatten(2)


class Block(nn.Module):
    """Attention and a gated feed-forward, each behind an RMSNorm and added to what came in."""

    def __init__(self, config: Config, **place) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(config.width, config.eps, **place)
        self.attention = Attention(config, **place)
        self.feed_norm = nn.RMSNorm(config.width, config.eps, **place)
        self.gate_up = nn.Linear(config.width, 2 * config.hidden, bias=False, **place)
        self.down = nn.Linear(config.hidden, config.width, bias=False, **place)

    def forward(self, x: Tensor, *cached: Tensor | tuple) -> Tensor:
        """x (B, T, width) to the same shape; cached is what the attention takes."""
        x = x + self.attention(self.attention_norm(x), *cached)
        gate, up = self.gate_up(self.feed_norm(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class Decoder(nn.Module):
    """A Llama-style decoder with random weights; the embedding is also the head."""

    def __init__(self, config: Config, device: str = "cpu", dtype: torch.dtype = torch.float32, seed: int = 0) -> None:
        super().__init__()
        place = {"device": device, "dtype": dtype}
        self.embedding = nn.Embedding(config.vocabulary, config.width, **place)
        self.blocks = nn.ModuleList(Block(config, **place) for _ in range(config.layers))
        self.norm = nn.RMSNorm(config.width, config.eps, **place)
        self.register_buffer("slots", torch.arange(config.context, device=device))
        self.register_buffer("rotations", rotations(config, device))
        generator = torch.Generator(device).manual_seed(seed)
        for weight in (one for one in self.parameters() if one.dim() == 2):
            # narrower weights would give the same token again and again
            weight.data.normal_(std=2 * weight.shape[1] ** -0.5, generator=generator)

    def forward(self, tokens: Tensor, positions: Tensor, cache: Tensor) -> Tensor:
        """Tokens and positions (B, T), int64, and a cache of B rows, written in place: the last token's logits."""
        x, turns = self.embedding(tokens), self.rotations[:, positions]
        where = torch.arange(len(tokens), device=x.device)[:, None], slice(None), positions
        hidden = (self.slots > positions[..., None])[:, None, None]
        for block, (keys, values) in zip(self.blocks, cache, strict=True):
            x = block(x, keys, values, where, turns, hidden)
        return project(self.norm(x[:, -1]), self.embedding.weight)


def project(x: Tensor, weight: Tensor) -> Tensor:
    """x (B, width) times the head (vocabulary, width), in float32: bfloat16 logits tie."""
    if x.is_cuda and x.dtype != torch.float32:
        return torch.mm(x, weight.t(), out_dtype=torch.float32)
    return F.linear(x, weight).float()


def sample(logits: Tensor, temperature: float = 0.0, generator: torch.Generator | None = None) -> Tensor:
    """The next tokens (B, 1): the most likely ones at 0, else drawn from the generator or the device's default one."""
    if temperature == 0:
        return logits.argmax(dim=-1, keepdim=True)
    noise = torch.empty_like(logits).exponential_(generator=generator).log()
    return (logits / temperature - noise).argmax(dim=-1, keepdim=True)
