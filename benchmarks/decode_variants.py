"""The step of examples/triton_decoder.py with the ideas that benchmarks.decode_step tries."""

# mypy: allow-incomplete-defs
# because Triton gives the arguments of a kernel their types

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from examples.decoder import Config, Decoder
from examples.triton_decoder import (
    TritonDecoder,
    _as_pairs,
    _attend,
    _combine_kernel,
    _let_next_kernel_start,
    _load_weights,
    _times_gain,
    _unpack,
    _wait_for_previous_kernel,
    _with_new,
)

MEETING_PROGRAMS = 4  # on each multiprocessor: their threads take all of its registers
REGISTERS = 128  # of each thread, so that all of them are on the GPU at once


@triton.jit
def _prefetch(gate_up, UP: tl.constexpr, BYTES: tl.constexpr, THREADS: tl.constexpr):
    """Each thread prefetches BYTES of gate, and of up, which is UP numbers behind, into L2."""
    program = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
    offsets = (program * THREADS + tl.arange(0, THREADS)).to(tl.int64) * BYTES
    for half in tl.static_range(2 if BYTES > 0 else 0):
        tl.inline_asm_elementwise(
            "cp.async.bulk.prefetch.L2.global [$1], $2; mov.u32 $0, 0;",
            "=r,l,r",
            [(gate_up + half * UP).to(tl.int64) + offsets, tl.full((THREADS,), BYTES, tl.int32)],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )


@triton.jit
def _rotate(x, cos, sin, HEAD_DIM: tl.constexpr):
    HALF: tl.constexpr = HEAD_DIM // 2
    i = tl.arange(0, HEAD_DIM)
    partner = tl.load(x + (i + HALF) % HEAD_DIM).to(tl.float32)
    return tl.load(x + i).to(tl.float32) * cos + tl.where(i < HALF, -partner, partner) * sin


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
    gate_up,
    N_KV_HEADS: tl.constexpr,
    MAX_SEQ_LEN: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    SLOTS: tl.constexpr,
    HEADS: tl.constexpr,  # query heads of a program
    UP: tl.constexpr,  # see _prefetch
    BYTES: tl.constexpr,
    THREADS: tl.constexpr,
    PDL: tl.constexpr,
):
    """The attention of examples.triton_decoder, which also loads its angles before it waits."""
    _let_next_kernel_start(PDL)
    program = tl.program_id(0)
    split = tl.program_id(1)
    n_heads = tl.num_programs(0) * HEADS
    _prefetch(gate_up, UP, BYTES, THREADS)
    kv_head = program * HEADS // (n_heads // N_KV_HEADS)
    i = tl.arange(0, HEAD_DIM)
    slots = split * SLOTS + tl.arange(0, SLOTS)
    cached = (kv_head * MAX_SEQ_LEN + slots[:, None]) * HEAD_DIM + i
    old_k = tl.load(keys + cached)
    old_v = tl.load(values + cached)
    pos = tl.load(input_pos)
    angles = pos * (HEAD_DIM // 2) + i % (HEAD_DIM // 2)
    cos = tl.load(cos_table + angles)
    sin = tl.load(sin_table + angles)
    _wait_for_previous_kernel(PDL)

    k = _rotate(qkv + (n_heads + kv_head) * HEAD_DIM, cos, sin, HEAD_DIM)
    v = tl.load(qkv + (n_heads + N_KV_HEADS + kv_head) * HEAD_DIM + i).to(tl.float32)
    all_k = _with_new(old_k, k, slots, pos)
    all_v = _with_new(old_v, v, slots, pos)
    for one in tl.static_range(HEADS):
        head = program * HEADS + one
        q = _rotate(qkv + head * HEAD_DIM, cos, sin, HEAD_DIM) * HEAD_DIM**-0.5
        y, log_total = _attend(q, all_k, all_v, slots, pos)
        tl.store(out + (split * n_heads + head) * HEAD_DIM + i, y.to(out.dtype.element_ty))
        tl.store(lse + split * n_heads + head, log_total)
    if (program * HEADS * N_KV_HEADS % n_heads == 0) & (split == pos // SLOTS):
        new = (kv_head * MAX_SEQ_LEN + pos) * HEAD_DIM + i
        tl.store(keys + new, k.to(keys.dtype.element_ty))
        tl.store(values + new, v.to(values.dtype.element_ty))


@triton.jit
def _merging_output_kernel(
    y,
    lse,
    token,
    weight,
    residual,
    out,
    DIM: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    SPLITS: tl.constexpr,
    ROWS: tl.constexpr,
    PDL: tl.constexpr,
):
    """The attention's output product, which adds up the splits, y (SPLITS, DIM), by itself."""
    _let_next_kernel_start(PDL)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, DIM // 2)  # of pairs
    n_heads: tl.constexpr = DIM // HEAD_DIM
    w = _load_weights(_as_pairs(weight) + rows[:, None].to(tl.int64) * (DIM // 2) + columns)
    heads = columns // (HEAD_DIM // 2)
    _wait_for_previous_kernel(PDL)

    if token is not None:
        residual += tl.load(token) * DIM
    top = tl.load(lse + heads)
    for split in tl.static_range(1, SPLITS):
        top = tl.maximum(top, tl.load(lse + split * n_heads + heads))
    total = tl.zeros_like(top)
    even = tl.zeros_like(top)
    odd = tl.zeros_like(top)
    for split in tl.static_range(SPLITS):
        share = tl.exp(tl.load(lse + split * n_heads + heads) - top)
        y_even, y_odd = _unpack(tl.load(_as_pairs(y + split * DIM) + columns))
        total += share
        even += share * y_even
        odd += share * y_odd
    w_even, w_odd = _unpack(w)
    result = tl.sum(w_even * (even / total) + w_odd * (odd / total), 1)
    result += tl.load(residual + rows).to(tl.float32)
    tl.store(out + rows, result.to(out.dtype.element_ty))


@triton.jit
def _output_gate_up_kernel(
    y,
    token,
    output_weight,
    residual,
    x,
    norm_weight,
    weight,
    out,
    counter,
    norm_eps,
    N_ROWS,
    DIM: tl.constexpr,
    OUTPUT_ROWS: tl.constexpr,
    PDL: tl.constexpr,
):
    """x = output_weight @ y + residual; all programs meet; then _gate_up_kernel's work on x."""
    _let_next_kernel_start(PDL)
    columns = tl.arange(0, DIM // 2)  # of pairs
    rows = tl.program_id(0) * OUTPUT_ROWS + tl.arange(0, OUTPUT_ROWS)
    own = rows < DIM
    first = tl.minimum(rows, DIM - 1)[:, None] * (DIM // 2)
    w = _load_weights(_as_pairs(output_weight) + first + columns)
    pairs = _as_pairs(weight) + columns
    gate_w, up_w = _load_gate_up(pairs, tl.program_id(0), N_ROWS, DIM)
    _wait_for_previous_kernel(PDL)

    if token is not None:
        residual += tl.load(token) * DIM
    even, odd = _unpack(tl.load(_as_pairs(y) + columns))
    result = _dot(w, even, odd, 1) + tl.load(residual + rows, own, 0.0).to(tl.float32)
    tl.store(x + rows, result.to(x.dtype.element_ty), own)
    _meet(counter)

    even, odd = _unpack(tl.load(_as_pairs(x) + columns, cache_modifier=".cg"))
    scale = tl.rsqrt(tl.sum(even * even + odd * odd, 0) / DIM + norm_eps)
    even, odd = _times_gain(even, odd, norm_weight, columns)
    start = tl.program_id(0)
    while start < N_ROWS:
        following = start + tl.num_programs(0)
        next_row = tl.where(following < N_ROWS, following, start)  # the last one twice
        next_gate_w, next_up_w = _load_gate_up(pairs, next_row, N_ROWS, DIM)
        gate_y = _dot(gate_w, even, odd, 0) * scale
        up_y = _dot(up_w, even, odd, 0) * scale
        tl.store(out + start, (gate_y * tl.sigmoid(gate_y) * up_y).to(out.dtype.element_ty))
        gate_w = next_gate_w
        up_w = next_up_w
        start = following


@triton.jit
def _load_gate_up(pairs, row, N_ROWS, DIM: tl.constexpr):
    gate_w = _load_weights(pairs + row.to(tl.int64) * (DIM // 2))
    up_w = _load_weights(pairs + (N_ROWS + row).to(tl.int64) * (DIM // 2))
    return gate_w, up_w


@triton.jit
def _dot(w, even, odd, AXIS: tl.constexpr):
    w_even, w_odd = _unpack(w)
    return tl.sum(w_even * even + w_odd * odd, AXIS)


@triton.jit
def _meet(counter):
    """Wait until all programs are here. All must be on the GPU at once, or they wait forever."""
    n_programs = tl.num_programs(0)
    tl.debug_barrier()  # all threads have stored
    ticket = tl.atomic_add(counter, 1, sem="acq_rel", scope="gpu")
    target = (ticket // n_programs + 1) * n_programs  # the counter is never reset
    seen = ticket + 1
    while seen < target:
        seen = tl.atomic_add(counter, 0, sem="acquire", scope="gpu")
    tl.debug_barrier()


class Variant(TritonDecoder):
    """TritonDecoder whose attention loads the position and its angles before it waits.

    So a graph may hold one token only: a token before it could still write the position. Its own
    switches:
      mb_ahead  MiB of the gate and up weights that the attention prefetches into the L2 cache
      merge     the output product adds up the splits
      grouped   one program of the attention serves all query heads of a key head
      meet      one kernel for the output product, and gate and up
    """

    def __init__(
        self,
        model: Decoder,
        config: Config,
        *,
        mb_ahead: int = 0,
        merge: bool = False,
        grouped: bool = False,
        meet: bool = False,
        **switches: Any,
    ) -> None:
        super().__init__(model, config, **switches)
        self.mb_ahead = mb_ahead
        self.merge = merge
        self.grouped = grouped
        self.meet = meet
        self.counter = torch.zeros(1, dtype=torch.int32, device=model.embedding.weight.device)

    def run_blocks(self, tokens: Tensor, input_pos: Tensor, kv_cache: Tensor) -> Tensor:
        """The output of the last block, (dim)."""
        x = self.model.embedding.weight  # the first block takes the token's row of it
        token: Tensor | None = tokens
        for layer, block in enumerate(self.model.blocks):
            qkv = self.matvec("qkv", layer, x, token=token, norm=block.attention_norm)
            y, lse = self.attend_splits(qkv, kv_cache[layer], input_pos, layer)
            if not self.merge:
                y = self.combine(y, lse)
            if self.meet:
                x, y = self.output_gate_up(layer, y, token, x, block.feed_forward_norm)
            else:
                if self.merge:
                    x = self.merging_output(layer, y, lse, token, x)
                else:
                    x = self.matvec("output", layer, y, token=token, residual=x)
                y = self.gate_up(layer, x, block.feed_forward_norm)
            token = None
            x = self.matvec("down", layer, y, residual=x)
        return x

    def attend_splits(
        self, qkv: Tensor, layer_cache: Tensor, input_pos: Tensor, layer: int
    ) -> tuple[Tensor, Tensor]:
        """Each split's output, (splits, dim), and logs of its totals, (splits, n_heads)."""
        config = self.config
        keys, values = layer_cache
        dtype = qkv.dtype if self.merge or self.splits == 1 else torch.float32
        y = torch.empty(self.splits, config.dim, device=qkv.device, dtype=dtype)
        lse = torch.empty(self.splits, config.n_heads, device=qkv.device)
        gate_up = self.weights["gate_up", layer][0]
        tensors = (qkv, self.model.cos, self.model.sin, input_pos, keys, values, y, lse, gate_up)

        slots = config.max_seq_len // self.splits
        heads = config.n_heads // config.n_kv_heads if self.grouped else 1
        grid = (config.n_heads // heads, self.splits)
        num_warps = max(2, slots // 32)
        threads = 32 * num_warps
        n_bytes = self.mb_ahead * 2**20 // (2 * grid[0] * grid[1] * threads)
        sizes = (config.n_kv_heads, config.max_seq_len, config.head_dim, slots, heads)
        ahead = (gate_up.numel() // 2, n_bytes, threads)
        options = self.launch | {"num_warps": num_warps}
        _attention_kernel[grid](*tensors, *sizes, *ahead, self.pdl, **options)
        return y, lse

    def combine(self, y: Tensor, lse: Tensor) -> Tensor:
        """The splits added up, (dim)."""
        if self.splits == 1:
            return y[0]
        config = self.config
        out = y.new_empty(config.dim, dtype=torch.bfloat16)
        block = min(config.dim, 128)
        sizes = (config.dim, config.head_dim, self.splits, block)
        grid = (config.dim // block,)
        _combine_kernel[grid](y, lse, out, *sizes, self.pdl, num_warps=1, **self.launch)
        return out

    def merging_output(
        self, layer: int, y: Tensor, lse: Tensor, token: Tensor | None, residual: Tensor
    ) -> Tensor:
        """The splits added up, the output product and the residual, (dim)."""
        config = self.config
        out = y.new_empty(config.dim)
        tensors = (y, lse, token, self.weights["output", layer][0], residual, out)
        rows = 4  # of a program
        sizes = (config.dim, config.head_dim, self.splits, rows)
        grid = (config.dim // rows,)
        _merging_output_kernel[grid](*tensors, *sizes, self.pdl, num_warps=4, **self.launch)
        return out

    def output_gate_up(
        self, layer: int, y: Tensor, token: Tensor | None, residual: Tensor, norm: nn.RMSNorm
    ) -> tuple[Tensor, Tensor]:
        """The output product with its residual, (dim), and gate and up of it, (hidden_dim)."""
        config = self.config
        gpu = torch.cuda.get_device_properties()
        n_programs = MEETING_PROGRAMS * gpu.multi_processor_count
        rows = triton.next_power_of_2(triton.cdiv(config.dim, n_programs))
        x = y.new_empty(config.dim)
        out = y.new_empty(config.hidden_dim)
        output, gate_up = (self.weights[kind, layer][0] for kind in ("output", "gate_up"))
        tensors = (y, token, output, residual, x, norm.weight, gate_up, out, self.counter)
        sizes = (config.hidden_dim, config.dim, rows)
        options = self.launch | {"num_warps": 4, "maxnreg": REGISTERS}
        _output_gate_up_kernel[(n_programs,)](*tensors, norm.eps, *sizes, self.pdl, **options)
        return x, out
