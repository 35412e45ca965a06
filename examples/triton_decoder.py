"""The decoder's step for one sequence in Triton kernels, each idea behind a switch.

    decoder = TritonDecoder(model, config, splits=8, argmax_in_head=True, pdl=True)
    decoder.step(tokens, input_pos, kv_cache)  # the next token and position, in place

How near can a decode step come to the bandwidth floor? A matrix-vector product reads each weight
once, so it takes as long as the weights take to arrive. Everything around it goes into the same
kernel: the RMSNorm before it, silu and the residual after it. A norm divides by a single number, so
the division can wait until the product is done. Triton comes with PyTorch for CUDA.

The switches:
  splits            programs that share one head's cache (flash-decoding); 1: one program per head
  combine_in_output the output projection adds up the splits itself, without a kernel of its own
  preload_cache     the attention loads its share of the cache before it waits for q, k and v
  argmax_in_head    the head's product also finds the largest logit of each program's rows
  pdl               programmatic dependent launch: a kernel starts, and loads weights, while the one
                    before it still runs; it waits only before it reads that kernel's output
  fp8               weights as float8_e4m3fn with one scale per row: half the bytes
"""

# mypy: allow-incomplete-defs
# because Triton gives the arguments of a kernel their types

from math import gcd
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from examples.decoder import Config, Decoder, sample

# For each product: rows of the weight per program, columns per load, warps
TILES = {
    "qkv": (8, 2048, 8),
    "output": (4, 2048, 4),
    "gate_up": (1, 2048, 4),
    "down": (1, 8192, 8),
    "head": (4, 2048, 4),
}


@triton.jit
def _let_next_kernel_start(PDL: tl.constexpr):
    """The next kernel starts when all programs of this one have come here, or have ended."""
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def _wait_for_previous_kernel(PDL: tl.constexpr):
    """Wait until the kernel before this one is done, and its results can be read.

    Every program of every kernel waits, so when it goes on, all earlier kernels are done, too.
    """
    if PDL:
        tl.extra.cuda.gdc_wait()


@triton.jit
def _matvec_kernel(
    x,
    lse,
    token,
    norm_weight,
    weight,
    weight_scale,
    residual,
    out,
    best_logits,
    best_tokens,
    norm_eps,
    DIM: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    GATED: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    SPLITS: tl.constexpr,
    EVICTION: tl.constexpr,
    PDL: tl.constexpr,
):
    """out = weight @ x, with what the arguments that are not None add to it.

    lse: x holds the attention of each split, to be combined first. token: x, or the residual if
    there is one, is that row of the embedding. norm_weight: x is normalized first. GATED: the
    weight is (gate, up) one below the other, and the result silu(gate @ x) * (up @ x).
    weight_scale: of each row of an fp8 weight. residual: added at the end. best_logits,
    best_tokens: the largest result of each program, and its row.
    """
    _let_next_kernel_start(PDL)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, BLOCK)
    tile = weight + rows[:, None].to(tl.int64) * DIM + columns
    up_tile = tile + tl.num_programs(0).to(tl.int64) * ROWS * DIM
    w = tl.load(tile, eviction_policy=EVICTION)  # no kernel writes weights: no need to wait
    if GATED:
        up_w = tl.load(up_tile, eviction_policy=EVICTION)
    if norm_weight is not None:
        gain = tl.load(norm_weight + columns)
    _wait_for_previous_kernel(PDL)

    if token is not None:
        offset = tl.load(token) * DIM
        if residual is not None:
            residual += offset
        else:
            x += offset
    squares = tl.zeros((BLOCK,), tl.float32)
    products = tl.zeros((ROWS, BLOCK), tl.float32)
    up_products = tl.zeros((ROWS, BLOCK), tl.float32)
    for start in tl.static_range(0, DIM, BLOCK):
        if start > 0:
            w = tl.load(tile + start, eviction_policy=EVICTION)
            if GATED:
                up_w = tl.load(up_tile + start, eviction_policy=EVICTION)
            if norm_weight is not None:
                gain = tl.load(norm_weight + start + columns)
        if lse is not None:
            part = _combine(x, lse, start + columns, DIM, HEAD_DIM, SPLITS)
        else:
            part = tl.load(x + start + columns).to(tl.float32)
        if norm_weight is not None:
            squares += part * part
            part *= gain.to(tl.float32)
        products += w.to(tl.float32) * part
        if GATED:
            up_products += up_w.to(tl.float32) * part

    scale = 1.0
    if norm_weight is not None:
        scale = tl.rsqrt(tl.sum(squares, 0) / DIM + norm_eps)
    y = tl.sum(products, 1) * scale
    if weight_scale is not None:
        y *= tl.load(weight_scale + rows)
    if GATED:
        up = tl.sum(up_products, 1) * scale
        if weight_scale is not None:
            up *= tl.load(weight_scale + tl.num_programs(0) * ROWS + rows)
        y *= tl.sigmoid(y) * up
    if residual is not None:
        y += tl.load(residual + rows).to(tl.float32)
    tl.store(out + rows, y.to(out.dtype.element_ty))
    if best_logits is not None:
        best, row = tl.max(y, 0, return_indices=True)
        tl.store(best_logits + tl.program_id(0), best)
        tl.store(best_tokens + tl.program_id(0), tl.program_id(0) * ROWS + row)


@triton.jit
def _attention_kernel(
    qkv,
    cos_table,
    sin_table,
    input_pos,
    keys,
    values,
    out,
    lse,
    N_KV_HEADS: tl.constexpr,
    MAX_SEQ_LEN: tl.constexpr,
    HALF: tl.constexpr,
    SLOTS: tl.constexpr,
    PRELOAD: tl.constexpr,
    PDL: tl.constexpr,
):
    """Rotate q and k, attend to SLOTS slots of the cache, write k and v to it.

    Program (head, split) serves one query head and the slots from split * SLOTS on. HALF is
    head_dim / 2: rotary embeddings pair the halves of a head, so all is done in halves. lse is None
    if one split holds the whole cache; else it takes the log of each split's sum of exponentials,
    by which the splits are weighted when they are added up.
    """
    _let_next_kernel_start(PDL)
    head = tl.program_id(0)
    split = tl.program_id(1)
    n_heads = tl.num_programs(0)
    group_size = n_heads // N_KV_HEADS
    kv_head = head // group_size
    i = tl.arange(0, HALF)
    slots = split * SLOTS + tl.arange(0, SLOTS)[:, None]
    cached = (kv_head * MAX_SEQ_LEN + slots) * 2 * HALF + i
    if PRELOAD:  # earlier steps wrote these slots; those from the position on are replaced below
        old_k_left = tl.load(keys + cached)
        old_k_right = tl.load(keys + cached + HALF)
        old_v_left = tl.load(values + cached)
        old_v_right = tl.load(values + cached + HALF)
    _wait_for_previous_kernel(PDL)

    pos = tl.load(input_pos)
    if not PRELOAD:  # the position is known: read nothing behind it
        old_k_left = tl.load(keys + cached, slots < pos, 0.0)
        old_k_right = tl.load(keys + cached + HALF, slots < pos, 0.0)
        old_v_left = tl.load(values + cached, slots < pos, 0.0)
        old_v_right = tl.load(values + cached + HALF, slots < pos, 0.0)
    cos = tl.load(cos_table + pos * HALF + i)
    sin = tl.load(sin_table + pos * HALF + i)
    q_left, q_right = _rotate(qkv + head * 2 * HALF + i, cos, sin, HALF)
    k_left, k_right = _rotate(qkv + (n_heads + kv_head) * 2 * HALF + i, cos, sin, HALF)
    v = qkv + (n_heads + N_KV_HEADS + kv_head) * 2 * HALF + i
    v_left = tl.load(v)
    v_right = tl.load(v + HALF)

    left = _with_new(old_k_left, k_left, slots, pos) * q_left
    right = _with_new(old_k_right, k_right, slots, pos) * q_right
    scores = tl.sum(left + right, 1, keep_dims=True) / tl.sqrt(2.0 * HALF)
    scores = tl.where(slots <= pos, scores, float("-inf"))
    top = tl.maximum(tl.max(scores, 0), -1e30)  # a number even if the split is behind the position
    weights = tl.exp(scores - top)
    total = tl.sum(weights, 0)
    weights /= tl.maximum(total, 1e-30)
    y_left = tl.sum(weights * _with_new(old_v_left, v_left, slots, pos), 0)
    y_right = tl.sum(weights * _with_new(old_v_right, v_right, slots, pos), 0)
    y = out + (split * n_heads + head) * 2 * HALF + i
    _store_halves(y, y_left, y_right, HALF)
    if lse is not None:
        one = tl.arange(0, 1)
        tl.store(lse + split * n_heads + head + one, top + tl.log(total))

    if (head % group_size == 0) & (split == pos // SLOTS):  # one program writes for all
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
def _with_new(old, new, slots, pos):
    """The cached rows before pos, the new one at pos, zeros behind it."""
    new = new.to(old.dtype)[None, :]
    return tl.where(slots < pos, old, tl.where(slots == pos, new, 0.0)).to(tl.float32)


@triton.jit
def _store_halves(at, left, right, HALF: tl.constexpr):
    tl.store(at, left.to(at.dtype.element_ty))
    tl.store(at + HALF, right.to(at.dtype.element_ty))


@triton.jit
def _combine(y, lse, columns, DIM: tl.constexpr, HEAD_DIM: tl.constexpr, SPLITS: tl.constexpr):
    """The attention of all splits, (SPLITS, DIM), each weighted by its share of the softmax."""
    heads = columns // HEAD_DIM
    n_heads = DIM // HEAD_DIM
    top = tl.load(lse + heads)
    for split in tl.static_range(1, SPLITS):
        top = tl.maximum(top, tl.load(lse + split * n_heads + heads))
    total = tl.zeros_like(top)
    result = tl.zeros_like(top)
    for split in tl.static_range(SPLITS):
        share = tl.exp(tl.load(lse + split * n_heads + heads) - top)
        total += share
        result += share * tl.load(y + split * DIM + columns)
    return result / total


@triton.jit
def _combine_kernel(
    y,
    lse,
    out,
    DIM: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    SPLITS: tl.constexpr,
    BLOCK: tl.constexpr,
    PDL: tl.constexpr,
):
    _let_next_kernel_start(PDL)
    columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    _wait_for_previous_kernel(PDL)
    result = _combine(y, lse, columns, DIM, HEAD_DIM, SPLITS)
    tl.store(out + columns, result.to(out.dtype.element_ty))


@triton.jit
def _next_token_kernel(
    best_logits,
    best_tokens,
    tokens,
    input_pos,
    generated,
    N: tl.constexpr,
    BLOCK: tl.constexpr,
    PDL: tl.constexpr,
):
    """The second stage of the argmax: one program compares the best logits of all programs."""
    _let_next_kernel_start(PDL)
    i = tl.arange(0, BLOCK)
    _wait_for_previous_kernel(PDL)
    logits = tl.load(best_logits + i, i < N, float("-inf"))
    token = tl.load(best_tokens + tl.argmax(logits, 0)).to(tl.int64)
    pos = tl.load(input_pos) + 1
    if generated is not None:
        tl.store(generated + pos, token)
    tl.store(tokens, token)
    tl.store(input_pos, pos)


def quantize_fp8(weight: Tensor) -> tuple[Tensor, Tensor]:
    """weight (rows, dim) as float8_e4m3fn, and the scale of each row, float32."""
    largest = torch.finfo(torch.float8_e4m3fn).max
    scale = weight.abs().amax(1).float() / largest
    return (weight / scale[:, None]).to(torch.float8_e4m3fn), scale


class TritonDecoder:
    """The model's forward pass for tokens and input_pos (1, 1) and a cache of one sequence.

    It is called like the model and returns its logits, (1, vocab_size). step also writes the next
    token and position in place. generated (max_seq_len), if given, takes each token at its
    position, so that several steps in one graph leave all their tokens. It needs argmax_in_head.
    """

    def __init__(
        self,
        model: Decoder,
        config: Config,
        *,
        splits: int = 1,
        combine_in_output: bool = False,
        preload_cache: bool = False,
        argmax_in_head: bool = False,
        pdl: bool = False,
        fp8: bool = False,
        eviction: str = "",
        tiles: dict[str, tuple[int, int, int]] | None = None,
        attention_warps: int = 4,
        generated: Tensor | None = None,
    ) -> None:
        self.model = model
        self.config = config
        self.splits = splits
        self.combine_in_output = combine_in_output
        self.preload_cache = preload_cache
        self.argmax_in_head = argmax_in_head
        self.pdl = pdl
        self.launch = {"launch_pdl": True} if pdl else {}
        self.eviction = eviction
        self.tiles = TILES | (tiles or {})
        self.attention_warps = attention_warps
        self.generated = generated
        weights = {("head", -1): model.embedding.weight}
        for layer, block in enumerate(model.blocks):
            weights["qkv", layer] = block.attention.qkv.weight
            weights["output", layer] = block.attention.output.weight
            weights["gate_up", layer] = block.feed_forward.gate_up.weight
            weights["down", layer] = block.feed_forward.down.weight
        self.weights = {
            name: quantize_fp8(weight) if fp8 else (weight, None)
            for name, weight in weights.items()
        }

    def __call__(self, tokens: Tensor, input_pos: Tensor, kv_cache: Tensor) -> Tensor:
        """The logits of the next token, (1, vocab_size), float32; writes into the cache."""
        x = self.run_blocks(tokens, input_pos, kv_cache)
        return self.matvec("head", -1, x, norm=self.model.norm)[None]

    def step(self, tokens: Tensor, input_pos: Tensor, kv_cache: Tensor) -> Tensor:
        """The logits, and in place the most likely token and its position."""
        if not self.argmax_in_head:
            logits = self(tokens, input_pos, kv_cache)
            tokens.copy_(sample(logits))
            input_pos.add_(1)
            return logits
        x = self.run_blocks(tokens, input_pos, kv_cache)
        n_programs = self.config.vocab_size // self.tiles["head"][0]
        best_logits = torch.empty(n_programs, device=x.device, dtype=torch.float32)
        best_tokens = torch.empty(n_programs, device=x.device, dtype=torch.int32)
        best = (best_logits, best_tokens)
        logits = self.matvec("head", -1, x, norm=self.model.norm, best=best)
        block = triton.next_power_of_2(n_programs)
        arguments = (*best, tokens, input_pos, self.generated, n_programs, block, self.pdl)
        _next_token_kernel[(1,)](*arguments, num_warps=16, **self.launch)
        return logits[None]

    def run_blocks(self, tokens: Tensor, input_pos: Tensor, kv_cache: Tensor) -> Tensor:
        """The output of the last block, (dim)."""
        x = self.model.embedding.weight  # the first block takes the token's row of it
        token: Tensor | None = tokens
        for layer, block in enumerate(self.model.blocks):
            qkv = self.matvec("qkv", layer, x, token=token, norm=block.attention_norm)
            y, lse = self.attend(qkv, kv_cache[layer], input_pos)
            x = self.matvec("output", layer, y, lse=lse, token=token, residual=x)
            token = None
            y = self.matvec("gate_up", layer, x, norm=block.feed_forward_norm)
            x = self.matvec("down", layer, y, residual=x)
        return x

    def matvec(
        self,
        kind: str,
        layer: int,
        x: Tensor,
        *,
        lse: Tensor | None = None,
        token: Tensor | None = None,
        norm: nn.RMSNorm | None = None,
        residual: Tensor | None = None,
        best: tuple[Tensor | None, Tensor | None] = (None, None),
    ) -> Tensor:
        """The product of a weight with x as one kernel, with what goes around it.

        "gate_up" returns silu(gate) * up. "head" returns float32, others the model's dtype.
        """
        weight, weight_scale = self.weights[kind, layer]
        rows, block, warps = self.tiles[kind]
        gated = kind == "gate_up"
        n_rows = len(weight) // 2 if gated else len(weight)
        dim = weight.shape[1]
        dtype = torch.float32 if kind == "head" else self.model.embedding.weight.dtype
        out = torch.empty(n_rows, device=x.device, dtype=dtype)
        norm_weight = None if norm is None else norm.weight
        norm_eps = 0.0 if norm is None else norm.eps
        tensors = (x, lse, token, norm_weight, weight, weight_scale, residual, out, *best)
        sizes = (dim, rows, gcd(dim, block), gated, self.config.head_dim, self.splits)
        _matvec_kernel[(n_rows // rows,)](
            *tensors, norm_eps, *sizes, self.eviction, self.pdl, num_warps=warps, **self.launch
        )
        return out

    def attend(
        self, qkv: Tensor, layer_cache: Tensor, input_pos: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """The attention's output (dim) and None; or that of each split, (splits, dim), and lse."""
        config = self.config
        keys, values = layer_cache
        factory_kwargs: dict[str, Any] = {"device": qkv.device, "dtype": torch.float32}
        if self.splits == 1:
            y = torch.empty_like(qkv[: config.dim])
            lse = None
        else:
            y = torch.empty(self.splits, config.dim, **factory_kwargs)
            lse = torch.empty(self.splits, config.n_heads, **factory_kwargs)
        sizes = (config.n_kv_heads, config.max_seq_len, config.head_dim // 2)
        slots = config.max_seq_len // self.splits
        _attention_kernel[(config.n_heads, self.splits)](
            *(qkv, self.model.cos, self.model.sin, input_pos, keys, values, y, lse, *sizes, slots),
            *(self.preload_cache, self.pdl),
            num_warps=self.attention_warps,
            **self.launch,
        )
        if lse is None or self.combine_in_output:
            return y, lse
        out = torch.empty_like(qkv[: config.dim])
        block = min(config.dim, 128)
        _combine_kernel[(config.dim // block,)](
            *(y, lse, out, config.dim, config.head_dim, self.splits, block, self.pdl),
            num_warps=1,
            **self.launch,
        )
        return out, None


def triton_decoder(model: Decoder, config: Config, **switches: Any) -> TritonDecoder:
    """The model's forward pass in Triton kernels, called like the model."""
    return TritonDecoder(model, config, **switches)
