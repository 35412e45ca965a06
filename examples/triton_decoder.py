"""The decoder's step for one sequence in Triton kernels, each idea behind a switch.

    decoder = TritonDecoder(model, config, splits=4, argmax_in_head=True, pdl=True)
    decoder.step(tokens, input_pos, kv_cache)  # the next token and position, in place

A matrix-vector product reads each weight once, so at best it takes as long as the weights take to
arrive. All that surrounds it goes into its kernel: the RMSNorm before it, silu and the residual
after it. A norm divides by a single number, so the division can wait until the product is done.

The switches:
  splits          programs that share one head's cache (flash-decoding); 1: one program per head
  argmax_in_head  the head's product also finds the largest logit of each program's rows
  pdl             programmatic dependent launch: a kernel starts, and loads weights, while the one
                  before it still runs; it waits only before it reads that kernel's output
  preload_cache   the attention, too, loads its share of the cache before it waits
  fp8             weights as float8_e4m3fn with one scale per row: half the bytes

The model is in bfloat16. Triton comes with PyTorch for CUDA.
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

# For each product: rows of the weight per program, columns per load, warps. They were found by a
# search on an H200, in the graph of a whole step. gate_up always loads whole rows.
TILES = {
    "qkv": (4, 1024, 4),
    "output": (1, 2048, 1),
    "gate_up": (1, 2048, 2),
    "down": (2, 4096, 16),
    "head": (4, 1024, 4),
}
TILES_FP8 = {
    "qkv": (4, 1024, 4),
    "output": (2, 2048, 2),
    "gate_up": (2, 2048, 2),
    "down": (2, 4096, 8),
    "head": (8, 2048, 4),
}
GATE_UP_PROGRAMS = 8  # on each multiprocessor
MAX_PROGRAMS = 32  # that a multiprocessor holds at once: the most of all GPUs


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
def _load_weights(tile):
    """Weights are read once a token, so they need not stay in the L2 cache."""
    return tl.load(tile, eviction_policy="evict_first")


@triton.jit
def _as_pairs(pointer):
    """Load two neighbours as one number: two of bfloat16 as 32 bits, two of fp8 as 16.

    Else the compiler unpacks weights where it loads them: before the wait, which then begins only
    when they have come.
    """
    if pointer.dtype.element_ty == tl.bfloat16:
        pairs = pointer.to(tl.pointer_type(tl.int32))
    else:
        pairs = pointer.to(tl.pointer_type(tl.int16))
    return pairs


@triton.jit
def _unpack(pairs):
    """The first and the second neighbours, in float32."""
    if pairs.dtype == tl.int32:  # bfloat16 is the upper half of a float32
        even = (pairs << 16).to(tl.float32, bitcast=True)
        odd = (pairs & -65536).to(tl.float32, bitcast=True)
    else:
        even = (pairs & 255).to(tl.int8).to(tl.float8e4nv, bitcast=True).to(tl.float32)
        odd = (pairs >> 8).to(tl.int8).to(tl.float8e4nv, bitcast=True).to(tl.float32)
    return even, odd


@triton.jit
def _matvec_kernel(
    x,
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
    PDL: tl.constexpr,
):
    """out = weight @ x, with what the arguments that are not None add to it.

    norm_weight: x is normalized first. token: the residual if there is one, else x, is that row of
    the embedding. For the others see _apply_epilogue.
    """
    _let_next_kernel_start(PDL)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, BLOCK // 2)  # of pairs
    tile = _as_pairs(weight) + rows[:, None].to(tl.int64) * (DIM // 2) + columns
    w = _load_weights(tile)  # no kernel writes weights, so they need not wait
    _wait_for_previous_kernel(PDL)

    if token is not None:
        row = tl.load(token) * DIM
        if residual is not None:
            residual += row
        else:
            x += row
    squares = tl.zeros((BLOCK // 2,), tl.float32)
    products = tl.zeros((ROWS, BLOCK // 2), tl.float32)
    for start in tl.static_range(0, DIM // 2, BLOCK // 2):
        if start > 0:
            w = _load_weights(tile + start)
        even, odd = _unpack(tl.load(_as_pairs(x) + start + columns))
        if norm_weight is not None:
            squares += even * even + odd * odd
            even, odd = _times_gain(even, odd, norm_weight, start + columns)
        w_even, w_odd = _unpack(w)
        products += w_even * even + w_odd * odd

    y = tl.sum(products, 1)
    if norm_weight is not None:
        y *= tl.rsqrt(tl.sum(squares, 0) / DIM + norm_eps)
    _apply_epilogue(y, rows, weight_scale, residual, out, best_logits, best_tokens)


@triton.jit
def _times_gain(even, odd, norm_weight, columns):
    """A normalized vector times the norm's weight, in pairs."""
    gain_even, gain_odd = _unpack(tl.load(_as_pairs(norm_weight) + columns))
    return even * gain_even, odd * gain_odd


@triton.jit
def _apply_epilogue(y, rows, weight_scale, residual, out, best_logits, best_tokens):
    """Scale an fp8 weight's rows, add the residual, store; in the head, note the largest logit."""
    if weight_scale is not None:
        y *= tl.load(weight_scale + rows)
    if residual is not None:
        y += tl.load(residual + rows).to(tl.float32)
    tl.store(out + rows, y.to(out.dtype.element_ty))
    if best_logits is not None:
        best, row = tl.max(y, 0, return_indices=True)
        tl.store(best_logits + tl.program_id(0), best)
        tl.store(best_tokens + tl.program_id(0), tl.program_id(0) * y.shape[0] + row)


@triton.jit
def _gate_up_kernel(
    x,
    norm_weight,
    weight,
    weight_scale,
    out,
    norm_eps,
    N_ROWS,
    DIM: tl.constexpr,
    ROWS: tl.constexpr,
    PDL: tl.constexpr,
):
    """out = silu(gate @ x) * (up @ x) of the normalized x; weight is gate, and up below it.

    This is the largest product of a block. A program walks over the rows, and the next rows are on
    their way while it adds up these: so the memory has work without a pause.
    """
    _let_next_kernel_start(PDL)
    columns = tl.arange(0, DIM // 2)  # of pairs
    pairs = _as_pairs(weight) + columns
    i = tl.arange(0, ROWS)
    start = tl.program_id(0) * ROWS
    step = tl.num_programs(0) * ROWS
    gate_w = _load_weights(pairs + (start + i)[:, None].to(tl.int64) * (DIM // 2))
    up_w = _load_weights(pairs + (N_ROWS + start + i)[:, None].to(tl.int64) * (DIM // 2))
    _wait_for_previous_kernel(PDL)

    even, odd = _unpack(tl.load(_as_pairs(x) + columns))
    scale = tl.rsqrt(tl.sum(even * even + odd * odd, 0) / DIM + norm_eps)
    even, odd = _times_gain(even, odd, norm_weight, columns)
    while start < N_ROWS:
        rows = start + i
        next_rows = tl.where(start + step < N_ROWS, rows + step, rows)[:, None].to(tl.int64)
        next_gate_w = _load_weights(pairs + next_rows * (DIM // 2))  # the last ones twice
        next_up_w = _load_weights(pairs + (N_ROWS + next_rows) * (DIM // 2))
        gate_y = _dot(gate_w, even, odd, weight_scale, rows) * scale
        up_y = _dot(up_w, even, odd, weight_scale, N_ROWS + rows) * scale
        y = gate_y * tl.sigmoid(gate_y) * up_y
        tl.store(out + rows, y.to(out.dtype.element_ty))
        gate_w = next_gate_w
        up_w = next_up_w
        start += step


@triton.jit
def _dot(w, even, odd, weight_scale, rows):
    """The products of some rows, w in pairs, with x."""
    w_even, w_odd = _unpack(w)
    y = tl.sum(w_even * even + w_odd * odd, 1)
    if weight_scale is not None:
        y *= tl.load(weight_scale + rows)
    return y


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
    HEAD_DIM: tl.constexpr,
    SLOTS: tl.constexpr,
    PRELOAD: tl.constexpr,
    PDL: tl.constexpr,
):
    """Rotate q and k, attend to SLOTS slots of the cache, write k and v to it.

    Program (head, split) serves one query head and the slots from split * SLOTS on. lse is None if
    one split holds the whole cache; else it takes the log of each split's sum of exponentials, by
    which _combine weights the splits.
    """
    _let_next_kernel_start(PDL)
    head = tl.program_id(0)
    split = tl.program_id(1)
    n_heads = tl.num_programs(0)
    kv_head = head // (n_heads // N_KV_HEADS)
    i = tl.arange(0, HEAD_DIM)
    slots = split * SLOTS + tl.arange(0, SLOTS)
    cached = (kv_head * MAX_SEQ_LEN + slots[:, None]) * HEAD_DIM + i
    if PRELOAD:  # earlier steps wrote these slots; those from the position on are replaced below
        old_k = tl.load(keys + cached)
        old_v = tl.load(values + cached)
    _wait_for_previous_kernel(PDL)

    pos = tl.load(input_pos)
    if not PRELOAD:  # the position is known: read nothing behind it
        old_k = tl.load(keys + cached, slots[:, None] < pos, 0.0)
        old_v = tl.load(values + cached, slots[:, None] < pos, 0.0)
    q = _rotated(qkv + head * HEAD_DIM, cos_table, sin_table, pos, HEAD_DIM) * HEAD_DIM**-0.5
    k = _rotated(qkv + (n_heads + kv_head) * HEAD_DIM, cos_table, sin_table, pos, HEAD_DIM)
    v = tl.load(qkv + (n_heads + N_KV_HEADS + kv_head) * HEAD_DIM + i).to(tl.float32)

    all_k = _with_new(old_k, k, slots, pos)
    y, log_total = _attend(q, all_k, _with_new(old_v, v, slots, pos), slots, pos)
    tl.store(out + (split * n_heads + head) * HEAD_DIM + i, y.to(out.dtype.element_ty))
    if lse is not None:
        tl.store(lse + split * n_heads + head, log_total)
    if (head * N_KV_HEADS % n_heads == 0) & (split == pos // SLOTS):  # one writes for its group
        new = (kv_head * MAX_SEQ_LEN + pos) * HEAD_DIM + i
        tl.store(keys + new, k.to(keys.dtype.element_ty))
        tl.store(values + new, v.to(values.dtype.element_ty))


@triton.jit
def _attend(q, k, v, slots, pos):
    """Softmax over the slots up to pos: its weighted sum of v, and the log of its total."""
    scores = tl.where(slots <= pos, tl.sum(k * q, 1), float("-inf"))
    top = tl.maximum(tl.max(scores, 0), -1e30)  # a number even if the split is behind the position
    weights = tl.exp(scores - top)
    total = tl.sum(weights, 0)
    y = tl.sum(weights[:, None] * v, 0) / tl.maximum(total, 1e-30)
    return y, top + tl.log(total)


@triton.jit
def _rotated(x, cos_table, sin_table, pos, HEAD_DIM: tl.constexpr):
    """A head, its halves rotated by the angles of its position."""
    HALF: tl.constexpr = HEAD_DIM // 2
    i = tl.arange(0, HEAD_DIM)
    cos = tl.load(cos_table + pos * HALF + i % HALF)
    sin = tl.load(sin_table + pos * HALF + i % HALF)
    partner = tl.load(x + (i + HALF) % HEAD_DIM).to(tl.float32)
    return tl.load(x + i).to(tl.float32) * cos + tl.where(i < HALF, -partner, partner) * sin


@triton.jit
def _with_new(old, new, slots, pos):
    """The cached rows before pos, the new one at pos, zeros behind it."""
    slots = slots[:, None]
    new = new.to(old.dtype)[None, :]
    return tl.where(slots < pos, old, tl.where(slots == pos, new, 0.0)).to(tl.float32)


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
    """Add up the attention of all splits, y (SPLITS, DIM), by their shares of the softmax."""
    _let_next_kernel_start(PDL)
    columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    n_heads: tl.constexpr = DIM // HEAD_DIM
    lse += columns // HEAD_DIM
    _wait_for_previous_kernel(PDL)

    top = tl.load(lse)
    for split in tl.static_range(1, SPLITS):
        top = tl.maximum(top, tl.load(lse + split * n_heads))
    total = tl.zeros_like(top)
    result = tl.zeros_like(top)
    for split in tl.static_range(SPLITS):
        share = tl.exp(tl.load(lse + split * n_heads) - top)
        total += share
        result += share * tl.load(y + split * DIM + columns)
    tl.store(out + columns, (result / total).to(out.dtype.element_ty))


@triton.jit
def _next_token_kernel(
    best_logits,
    best_tokens,
    tokens,
    input_pos,
    N: tl.constexpr,
    BLOCK: tl.constexpr,
    PDL: tl.constexpr,
):
    """The second stage of the argmax: one program compares the best logits of all programs."""
    _let_next_kernel_start(PDL)
    i = tl.arange(0, BLOCK)
    _wait_for_previous_kernel(PDL)
    logits = tl.load(best_logits + i, i < N, float("-inf"))
    token = tl.load(best_tokens + tl.argmax(logits, 0))
    tl.store(tokens, token.to(tl.int64))
    tl.store(input_pos, tl.load(input_pos) + 1)


@triton.jit
def _read_kernel(data, out, BLOCK: tl.constexpr, LOADS: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * BLOCK * LOADS
    total = tl.zeros((BLOCK,), tl.int32)
    for load in tl.static_range(LOADS):
        total += tl.load(data + start + load * BLOCK + tl.arange(0, BLOCK))
    tl.store(out + tl.program_id(0), tl.sum(total, 0))


def read_all(data: Tensor) -> Tensor:
    """Read data, whose bytes are a multiple of 32 KiB, and do hardly anything else."""
    numbers = data.view(torch.int32).flatten()
    sums = torch.empty(len(numbers) // 8192, device=data.device, dtype=torch.int32)
    _read_kernel[(len(sums),)](numbers, sums, BLOCK=2048, LOADS=4, num_warps=8)
    return sums


def quantize_fp8(weight: Tensor) -> tuple[Tensor, Tensor]:
    """weight (rows, dim) as float8_e4m3fn, and the scale of each row, float32."""
    largest = torch.finfo(torch.float8_e4m3fn).max
    scale = weight.abs().amax(1).float() / largest
    return (weight / scale[:, None]).to(torch.float8_e4m3fn), scale


def check_preload_safety(head_programs: int) -> None:
    """Raise ValueError unless the attention may load its cache before it waits.

    With dependent launch a kernel starts when all programs of the one before it have started. So
    within a graph of several tokens it could start, in theory, while the same layer of the token
    before still writes the cache. It cannot if the head has more programs than the GPU holds: the
    last of them starts when others have ended, and none ends before all earlier kernels are done.
    """
    gpu = torch.cuda.get_device_properties()
    held = gpu.multi_processor_count * MAX_PROGRAMS
    if head_programs <= held:
        raise ValueError(
            f"preload_cache with pdl needs a head of more than {held} programs, not "
            f"{head_programs}: an attention kernel could read the cache before it is written."
        )


class TritonDecoder:
    """The model's forward pass for tokens and input_pos (1, 1) and a cache of one sequence.

    It is called like the model and returns its logits, (1, vocab_size). step also writes the next
    token and position in place. nbytes: the weights that a step reads, but for the norms'.
    """

    def __init__(
        self,
        model: Decoder,
        config: Config,
        *,
        splits: int = 1,
        argmax_in_head: bool = False,
        pdl: bool = False,
        preload_cache: bool = False,
        fp8: bool = False,
        tiles: dict[str, tuple[int, int, int]] | None = None,
    ) -> None:
        self.model = model
        self.config = config
        self.splits = splits
        self.argmax_in_head = argmax_in_head
        self.pdl = pdl
        self.launch = {"launch_pdl": True} if pdl else {}
        self.preload_cache = preload_cache
        self.tiles = (TILES_FP8 if fp8 else TILES) | (tiles or {})
        if pdl and preload_cache:
            check_preload_safety(config.vocab_size // self.tiles["head"][0])
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
        parts = [part for pair in self.weights.values() for part in pair if part is not None]
        self.nbytes = sum(part.nbytes for part in parts)

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
        _next_token_kernel[(1,)](
            *best, tokens, input_pos, n_programs, block, self.pdl, num_warps=16, **self.launch
        )
        return logits[None]

    def run_blocks(self, tokens: Tensor, input_pos: Tensor, kv_cache: Tensor) -> Tensor:
        """The output of the last block, (dim)."""
        x = self.model.embedding.weight  # the first block takes the token's row of it
        token: Tensor | None = tokens
        for layer, block in enumerate(self.model.blocks):
            qkv = self.matvec("qkv", layer, x, token=token, norm=block.attention_norm)
            y = self.attend(qkv, kv_cache[layer], input_pos)
            x = self.matvec("output", layer, y, token=token, residual=x)
            token = None
            y = self.gate_up(layer, x, block.feed_forward_norm)
            x = self.matvec("down", layer, y, residual=x)
        return x

    def matvec(
        self,
        kind: str,
        layer: int,
        x: Tensor,
        *,
        token: Tensor | None = None,
        norm: nn.RMSNorm | None = None,
        residual: Tensor | None = None,
        best: tuple[Tensor | None, Tensor | None] = (None, None),
    ) -> Tensor:
        """weight @ x as one kernel, with what goes around it; the head returns float32."""
        weight, weight_scale = self.weights[kind, layer]
        rows, block, warps = self.tiles[kind]
        n_rows, dim = weight.shape
        dtype = torch.float32 if kind == "head" else x.dtype
        out = torch.empty(n_rows, device=x.device, dtype=dtype)
        norm_weight = None if norm is None else norm.weight
        norm_eps = 0.0 if norm is None else norm.eps
        tensors = (x, token, norm_weight, weight, weight_scale, residual, out, *best)
        sizes = (dim, rows, gcd(dim, block))
        _matvec_kernel[(n_rows // rows,)](
            *tensors, norm_eps, *sizes, self.pdl, num_warps=warps, **self.launch
        )
        return out

    def gate_up(self, layer: int, x: Tensor, norm: nn.RMSNorm) -> Tensor:
        """silu(gate @ x) * (up @ x) of the normalized x, (hidden_dim), as one kernel."""
        weight, weight_scale = self.weights["gate_up", layer]
        rows, _, warps = self.tiles["gate_up"]
        n_rows = len(weight) // 2
        n_programs = n_rows // rows
        if x.is_cuda:
            gpu = torch.cuda.get_device_properties(x.device)
            n_programs = min(n_programs, GATE_UP_PROGRAMS * gpu.multi_processor_count)
        out = torch.empty(n_rows, device=x.device, dtype=x.dtype)
        tensors = (x, norm.weight, weight, weight_scale, out)
        sizes = (n_rows, weight.shape[1], rows)
        _gate_up_kernel[(n_programs,)](
            *tensors, norm.eps, *sizes, self.pdl, num_warps=warps, **self.launch
        )
        return out

    def attend(self, qkv: Tensor, layer_cache: Tensor, input_pos: Tensor) -> Tensor:
        """The attention's output, (dim), of q, k and v in one vector; writes into the cache."""
        config = self.config
        keys, values = layer_cache
        out = torch.empty_like(qkv[: config.dim])
        y: Tensor = out
        lse: Tensor | None = None
        if self.splits > 1:
            y = torch.empty(self.splits, config.dim, device=qkv.device)
            lse = torch.empty(self.splits, config.n_heads, device=qkv.device)
        slots = config.max_seq_len // self.splits
        tensors = (qkv, self.model.cos, self.model.sin, input_pos, keys, values, y, lse)
        sizes = (config.n_kv_heads, config.max_seq_len, config.head_dim, slots)
        _attention_kernel[(config.n_heads, self.splits)](
            *tensors,
            *sizes,
            self.preload_cache,
            self.pdl,
            num_warps=8 if slots > 128 else 4,
            **self.launch,
        )
        if lse is not None:
            block = min(config.dim, 128)
            sizes = (config.dim, config.head_dim, self.splits, block)
            _combine_kernel[(config.dim // block,)](
                y, lse, out, *sizes, self.pdl, num_warps=1, **self.launch
            )
        return out


def triton_decoder(model: Decoder, config: Config, **switches: Any) -> TritonDecoder:
    """The model's forward pass in Triton kernels, called like the model."""
    return TritonDecoder(model, config, **switches)
