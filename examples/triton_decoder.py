"""The decoder's forward pass for one token of one sequence, in five Triton kernels per block.

How near can a decode step come to the bandwidth floor? A matrix-vector product reads each weight
once, so it takes as long as the weights take to arrive. Everything around it goes into the same
kernel: the RMSNorm before it, silu and the residual after it. A norm divides by a single number, so
the division can wait until the product is done. Triton comes with PyTorch for CUDA.
"""

# mypy: allow-incomplete-defs
# because Triton gives the arguments of a kernel their types

from collections.abc import Callable
from math import gcd

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from examples.decoder import Block, Config, Decoder

# Rows of the weight for each program, and columns it reads at a time: the fastest of ten on an H200
TILES = {
    "qkv": (2, 1024),
    "output": (1, 1024),
    "gate_up": (2, 1024),
    "down": (1, 2048),
    "head": (4, 1024),
}


@triton.jit
def _matvec_kernel(
    x,
    norm_weight,
    weight,
    residual,
    out,
    norm_eps,
    DIM: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    GATED: tl.constexpr,
):
    """out = weight @ x, with what the arguments that are not None add to it.

    norm_weight: x is normalized first. GATED: the weight is (gate, up) one below the other, and the
    result silu(gate @ x) * (up @ x). residual: added at the end.
    """
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    squares = tl.zeros((BLOCK,), tl.float32)
    products = tl.zeros((ROWS, BLOCK), tl.float32)
    up_products = tl.zeros((ROWS, BLOCK), tl.float32)
    for start in range(0, DIM, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        part = tl.load(x + columns).to(tl.float32)
        if norm_weight is not None:
            squares += part * part
            part *= tl.load(norm_weight + columns).to(tl.float32)
        tile = weight + rows[:, None] * DIM + columns
        products += tl.load(tile).to(tl.float32) * part
        if GATED:
            up_tile = tile + tl.num_programs(0) * ROWS * DIM
            up_products += tl.load(up_tile).to(tl.float32) * part
    scale = 1.0
    if norm_weight is not None:
        scale = tl.rsqrt(tl.sum(squares, 0) / DIM + norm_eps)
    y = tl.sum(products, 1) * scale
    if GATED:
        y *= tl.sigmoid(y) * tl.sum(up_products, 1) * scale
    if residual is not None:
        y += tl.load(residual + rows).to(tl.float32)
    tl.store(out + rows, y.to(out.dtype.element_ty))


@triton.jit
def _attention_kernel(
    qkv,
    cos_table,
    sin_table,
    input_pos,
    keys,
    values,
    out,
    N_KV_HEADS: tl.constexpr,
    MAX_SEQ_LEN: tl.constexpr,
    HALF: tl.constexpr,
):
    """Each program serves one query head: rotate q and k, attend to the cache, write k and v to it.

    HALF is head_dim / 2: rotary embeddings pair the halves of a head, so all is done in halves.
    """
    head = tl.program_id(0)
    n_heads = tl.num_programs(0)
    group_size = n_heads // N_KV_HEADS
    kv_head = head // group_size
    pos = tl.load(input_pos)
    i = tl.arange(0, HALF)
    cos = tl.load(cos_table + pos * HALF + i)
    sin = tl.load(sin_table + pos * HALF + i)
    q_left, q_right = _rotate(qkv + head * 2 * HALF + i, cos, sin, HALF)
    k_left, k_right = _rotate(qkv + (n_heads + kv_head) * 2 * HALF + i, cos, sin, HALF)
    v = qkv + (n_heads + N_KV_HEADS + kv_head) * 2 * HALF + i
    v_left = tl.load(v)
    v_right = tl.load(v + HALF)

    slots = tl.arange(0, MAX_SEQ_LEN)[:, None]
    cached = (kv_head * MAX_SEQ_LEN + slots) * 2 * HALF + i
    left = _with_new(keys + cached, k_left, slots, pos) * q_left
    right = _with_new(keys + cached + HALF, k_right, slots, pos) * q_right
    scores = tl.sum(left + right, 1, keep_dims=True) / tl.sqrt(2.0 * HALF)
    scores = tl.where(slots <= pos, scores, float("-inf"))
    weights = tl.exp(scores - tl.max(scores, 0, keep_dims=True))
    weights /= tl.sum(weights, 0, keep_dims=True)
    y_left = tl.sum(weights * _with_new(values + cached, v_left, slots, pos), 0)
    y_right = tl.sum(weights * _with_new(values + cached + HALF, v_right, slots, pos), 0)
    _store_halves(out + head * 2 * HALF + i, y_left, y_right, HALF)

    if head % group_size == 0:  # one of the group writes for all
        new = (kv_head * MAX_SEQ_LEN + pos) * 2 * HALF + i
        _store_halves(keys + new, k_left, k_right, HALF)
        _store_halves(values + new, v_left, v_right, HALF)


@triton.jit
def _rotate(x, cos, sin, HALF: tl.constexpr):
    """The two halves of a head, rotated by the angles of its position."""
    left = tl.load(x).to(tl.float32)
    right = tl.load(x + HALF).to(tl.float32)
    return left * cos - right * sin, right * cos + left * sin


@triton.jit
def _with_new(cached, new, slots, pos):
    """What the cache holds before pos, and the new row at pos, whether or not it is written yet."""
    old = tl.load(cached, slots < pos, 0.0)
    return tl.where(slots == pos, new.to(old.dtype)[None, :], old).to(tl.float32)


@triton.jit
def _store_halves(at, left, right, HALF: tl.constexpr):
    tl.store(at, left.to(at.dtype.element_ty))
    tl.store(at + HALF, right.to(at.dtype.element_ty))


def matvec(
    kind: str,
    x: Tensor,
    weight: Tensor,
    norm: nn.RMSNorm | None = None,
    residual: Tensor | None = None,
) -> Tensor:
    """weight (rows, dim) times x (dim), as one kernel with what goes around it; one of TILES.

    "gate_up" returns rows / 2 numbers, silu(gate) * up. "head" returns float32, others x's dtype.
    """
    tile_rows, tile_columns = TILES[kind]
    gated = kind == "gate_up"
    n_rows = len(weight) // 2 if gated else len(weight)
    out = torch.empty(n_rows, device=x.device, dtype=torch.float32 if kind == "head" else x.dtype)
    norm_weight = None if norm is None else norm.weight
    norm_eps = 0.0 if norm is None else norm.eps
    block = gcd(len(x), tile_columns)
    grid = (n_rows // tile_rows,)
    _matvec_kernel[grid](
        x, norm_weight, weight, residual, out, norm_eps, len(x), tile_rows, block, gated
    )
    return out


def triton_decoder(model: Decoder, config: Config) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """The model's forward pass for tokens and input_pos (1, 1) and a cache of one sequence.

    It is called like the model, and returns its logits, (1, vocab_size).
    """

    def attend(qkv: Tensor, layer_cache: Tensor, input_pos: Tensor) -> Tensor:
        keys, values = layer_cache
        out = torch.empty(config.dim, device=qkv.device, dtype=qkv.dtype)
        sizes = (config.n_kv_heads, config.max_seq_len, config.head_dim // 2)
        _attention_kernel[(config.n_heads,)](
            qkv, model.cos, model.sin, input_pos, keys, values, out, *sizes, num_warps=8
        )
        return out

    def run(block: Block, x: Tensor, layer_cache: Tensor, input_pos: Tensor) -> Tensor:
        attention, feed_forward = block.attention, block.feed_forward
        qkv = matvec("qkv", x, attention.qkv.weight, norm=block.attention_norm)
        y = attend(qkv, layer_cache, input_pos)
        x = matvec("output", y, attention.output.weight, residual=x)
        y = matvec("gate_up", x, feed_forward.gate_up.weight, norm=block.feed_forward_norm)
        return matvec("down", y, feed_forward.down.weight, residual=x)

    def forward(tokens: Tensor, input_pos: Tensor, kv_cache: Tensor) -> Tensor:
        x = model.embedding(tokens[0, 0])  # (dim)
        for block, layer_cache in zip(model.blocks, kv_cache, strict=True):
            x = run(block, x, layer_cache, input_pos)
        return matvec("head", x, model.embedding.weight, norm=model.norm)[None]

    return forward
