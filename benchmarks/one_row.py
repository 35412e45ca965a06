"""The decoder's forward for one token of one row, in five Triton kernels a block: how near is the bandwidth floor?

A product with one row reads each weight once, so it takes as long as its weights take to come. What stands around it
goes into the same kernel: the norm before it, silu and the residual behind it. A norm's factor is a single number, so
it can be multiplied in at the end. Triton comes with PyTorch for CUDA.
"""

from collections.abc import Callable
from math import gcd

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from examples.decoder import Config, Decoder

# rows and columns of the weights that a program takes at a time: the fastest of ten on an H200
TILES = {"qkv": (2, 1024), "output": (1, 1024), "gate_up": (2, 1024), "down": (1, 2048), "head": (4, 1024)}


@triton.jit
def _product(
    x, norm, weight, residual, out, eps, K: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, GATED: tl.constexpr
):
    """weight @ x, x normed if norm is given; with GATED silu(first half) * second half; plus the residual, if any."""
    rows, square = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.zeros((BLOCK,), tl.float32)
    sums, others = tl.zeros((ROWS, BLOCK), tl.float32), tl.zeros((ROWS, BLOCK), tl.float32)
    for start in range(0, K, BLOCK):
        at = start + tl.arange(0, BLOCK)
        part = tl.load(x + at).to(tl.float32)
        if norm is not None:
            square += part * part
            part *= tl.load(norm + at).to(tl.float32)
        here = weight + rows[:, None] * K + at
        sums += tl.load(here).to(tl.float32) * part
        if GATED:
            others += tl.load(here + tl.num_programs(0) * ROWS * K).to(tl.float32) * part
    factor = 1.0
    if norm is not None:
        factor = tl.rsqrt(tl.sum(square, 0) / K + eps)
    y = tl.sum(sums, 1) * factor
    if GATED:
        y *= tl.sigmoid(y) * tl.sum(others, 1) * factor
    if residual is not None:
        y += tl.load(residual + rows).to(tl.float32)
    tl.store(out + rows, y.to(out.dtype.element_ty))


@triton.jit
def _attend(qkv, angles, position, keys, values, out, KV: tl.constexpr, SLOTS: tl.constexpr, HALF: tl.constexpr):
    """One query head a program: turn q and k, write k and v into the cache, and attend to it."""
    head, heads, now, i = tl.program_id(0), tl.num_programs(0), tl.load(position), tl.arange(0, HALF)
    group = head // (heads // KV)
    cos, sin = tl.load(angles + now * HALF + i), tl.load(angles + (SLOTS + now) * HALF + i)
    q1, q2 = _turned(qkv + head * 2 * HALF + i, cos, sin, HALF)
    k1, k2 = _turned(qkv + (heads + group) * 2 * HALF + i, cos, sin, HALF)
    v = qkv + (heads + KV + group) * 2 * HALF + i
    v1, v2 = tl.load(v), tl.load(v + HALF)
    slots = tl.arange(0, SLOTS)[:, None]
    at, new = (group * SLOTS + slots) * 2 * HALF + i, (group * SLOTS + now) * 2 * HALF + i
    products = _known(keys + at, k1, slots, now) * q1 + _known(keys + at + HALF, k2, slots, now) * q2
    scores = tl.where(slots <= now, tl.sum(products, 1, keep_dims=True) / tl.sqrt(2.0 * HALF), float("-inf"))
    weights = tl.exp(scores - tl.max(scores, 0, keep_dims=True))
    weights /= tl.sum(weights, 0, keep_dims=True)
    _store(out + head * 2 * HALF + i, *_weighted(values + at, weights, v1, v2, slots, now, HALF), HALF)
    if head % (heads // KV) == 0:
        _store(keys + new, k1, k2, HALF)
        _store(values + new, v1, v2, HALF)


@triton.jit
def _turned(x, cos, sin, HALF: tl.constexpr):
    """The two halves of a head, turned by its position's angles."""
    left, right = tl.load(x).to(tl.float32), tl.load(x + HALF).to(tl.float32)
    return left * cos - right * sin, right * cos + left * sin


@triton.jit
def _known(cached, new, slots, now):
    """What the cache holds before now, and at now what is new: nobody need wait until it is written."""
    old = tl.load(cached, slots < now, 0.0)
    return tl.where(slots == now, new.to(old.dtype)[None, :], old).to(tl.float32)


@triton.jit
def _weighted(cached, weights, v1, v2, slots, now, HALF: tl.constexpr):
    """The weighted sum of the values, in halves."""
    y1 = tl.sum(weights * _known(cached, v1, slots, now), 0)
    return y1, tl.sum(weights * _known(cached + HALF, v2, slots, now), 0)


@triton.jit
def _store(at, left, right, HALF: tl.constexpr):
    tl.store(at, left.to(at.dtype.element_ty))
    tl.store(at + HALF, right.to(at.dtype.element_ty))


def product(
    kind: str, x: Tensor, weight: Tensor, norm: nn.RMSNorm | None = None, residual: Tensor | None = None
) -> Tensor:
    """weight (rows, width) times x (width,), with what goes into the same kernel; the head's result is float32."""
    (rows, block), gated = TILES[kind], kind == "gate_up"
    count = len(weight) // 2 if gated else len(weight)
    out = torch.empty(count, device=x.device, dtype=torch.float32 if kind == "head" else x.dtype)
    scale, eps = (None, 0.0) if norm is None else (norm.weight, norm.eps)
    _product[(count // rows,)](x, scale, weight, residual, out, eps, len(x), rows, gcd(len(x), block), gated)
    return out


def one_row(model: Decoder, config: Config) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """The model's forward for tokens and positions (1, 1) and a cache of one row; gives the logits, (1, vocabulary)."""

    def forward(tokens: Tensor, positions: Tensor, cache: Tensor) -> Tensor:
        x = model.embedding(tokens[0, 0])
        sizes = (config.kv_heads, config.context, config.head // 2)
        for block, (keys, values) in zip(model.blocks, cache, strict=True):
            own, y = block.attention, torch.empty_like(x)
            qkv = product("qkv", x, own.qkv.weight, block.attention_norm)
            _attend[(config.heads,)](qkv, model.rotations, positions, keys, values, y, *sizes, num_warps=8)
            x = product("output", y, own.output.weight, residual=x)
            y = product("gate_up", x, block.gate_up.weight, block.feed_norm)
            x = product("down", y, block.down.weight, residual=x)
        return product("head", x, model.embedding.weight, model.norm)[None]

    return forward
