"""Is a second GPU worth it for a decoder? Four ways to split it, compared; rank 0 prints JSON.

    torchrun --standalone --nproc-per-node=2 -m examples.compare_splits all-reduces
    torchrun --standalone --nproc-per-node=2 -m examples.compare_splits decoding
    torchrun --standalone --nproc-per-node=2 -m examples.compare_splits logits

all-reduces: rows of KiB, method, and the quartiles of the µs of one. decoding: rows of size,
blocks, method, and the quartiles of the µs per token. logits: how far each method is from one GPU
in float32. Replace SIZES by yours.
Set TORCH_SYMM_MEM_DISABLE_MULTICAST=1 where NVLink multicast is missing; ranks that share a GPU
need NCCL_MULTI_RANK_GPU_ENABLE=1 and TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES=1.
"""

import json
import time
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from examples import small_llama
from examples.decoder import Config, Decoder
from examples.split_decoder import DecodeGraph, fused_sizes, join_group, nccl_sum, own_rows, split

SIZES = {"1B": Config(), "8B": Config(dim=4096, hidden_dim=14336)}  # Llama 3.2 1B, Llama 3 8B
DEPTHS = [("1B", 2), ("1B", 4), ("1B", 16), ("8B", 2), ("8B", 4)]  # blocks of which steps are timed
COMPARED = [("trained", 6), ("1B", 16), ("8B", 4)]
METHODS = ["one GPU", "NCCL", "parallelize_module", "one-shot", "none"]
PLAN = {
    "attention.qkv": ColwiseParallel(),
    "attention.output": RowwiseParallel(),
    "feed_forward.gate_up": ColwiseParallel(),
    "feed_forward.down": RowwiseParallel(),
}


def parallelize(model: Decoder, n: int) -> None:
    """Split a decoder over n ranks, in place, by PyTorch's own function."""
    mesh = init_device_mesh("cuda", (n,))
    for block in model.blocks:
        linears = block.attention.qkv, block.feed_forward.gate_up
        for linear, sizes in zip(linears, fused_sizes(block), strict=True):
            shares = [own_rows(linear.weight, sizes, rank, n) for rank in range(n)]
            linear.weight.copy_(torch.cat(shares))  # sorted by rank
        parallelize_module(block, mesh, PLAN)
        block.attention.n_heads //= n
        block.attention.n_kv_heads //= n
    model.requires_grad_(False)


def one_shot_all_reduce(size: int, dtype: torch.dtype = torch.bfloat16) -> Callable:
    """An all-reduce of so many numbers through symmetric memory."""
    # alpha: the module has a private name
    import torch.distributed._symmetric_memory as symm_mem

    buffer = symm_mem.empty(size, dtype=dtype, device="cuda")
    group = dist.group.WORLD
    symm_mem.rendezvous(buffer, group)  # exchanges the addresses of all ranks

    def all_reduce(x):
        total = torch.ops.symm_mem.one_shot_all_reduce_copy(
            buffer, x.flatten(), "sum", group.group_name
        )
        return total.view_as(x)

    return all_reduce


def no_all_reduce(x: Tensor) -> Tensor:
    """This rank's part alone, which is wrong: it shows what all-reduces cost."""
    return x


def load_decoder(size: str, n_layers: int) -> tuple[Decoder, Config]:
    """The trained model, or one of SIZES with random weights, in bfloat16 on one GPU."""
    if size == "trained":
        return small_llama.load("model", "cuda", torch.bfloat16)
    config = replace(SIZES[size], n_layers=n_layers)
    return Decoder(config, "cuda", torch.bfloat16).requires_grad_(False), config


def decode_graph(size: str, n_layers: int, method: str) -> DecodeGraph:
    """The decode step of this rank, captured."""
    model, config = load_decoder(size, n_layers)
    world_size = 1 if method == "one GPU" else dist.get_world_size()
    if method == "parallelize_module":
        parallelize(model, world_size)
    else:
        all_reduce = nccl_sum if method == "NCCL" else no_all_reduce
        if method == "one-shot":
            all_reduce = one_shot_all_reduce(config.dim)
        split(model, dist.get_rank() % world_size, world_size, all_reduce)
    config = replace(config, n_kv_heads=config.n_kv_heads // world_size)
    return DecodeGraph(model, config)


def time_quartiles(step: Callable, calls: int, rounds: int = 12) -> list[float]:
    """25%, 50% and 75% of the µs per call: rounds of four steps, each of so many calls."""
    times = []
    for _ in range(2 + rounds):
        dist.barrier()  # all ranks start together
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(4):
            step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 1e6 / (4 * calls))
    return torch.tensor(times[2:]).quantile(torch.tensor([0.25, 0.5, 0.75])).tolist()


def time_all_reduces() -> list[tuple]:
    """Rows of KiB, method, and the quartiles of the µs of an all-reduce, of 32 in a graph."""
    rows = []
    for kib in (4, 8, 128, 1024, 16384):
        for name, all_reduce in {
            "NCCL": nccl_sum,
            "one-shot": one_shot_all_reduce(512 * kib),
        }.items():
            x = torch.ones(512 * kib, device="cuda", dtype=torch.bfloat16)
            total = all_reduce(x.clone())
            if not (total == dist.get_world_size()).all():
                raise RuntimeError(f"The sums of {name} are wrong.")
            x.zero_()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                for _ in range(32):
                    all_reduce(x)
            rows.append((kib, name, *time_quartiles(graph.replay, calls=32)))
    return rows


def time_tokens(decoder: DecodeGraph) -> list[float]:
    """Quartiles of the µs per token."""

    def decode():
        decoder.start(0)
        for _ in range(16):
            decoder.graph.replay()

    return time_quartiles(decode, calls=16)


def time_decoding() -> list[tuple]:
    """Rows of size, blocks, method, and the quartiles of the µs per token."""
    rows = []
    for size, n_layers in DEPTHS:
        for method in METHODS:
            times = time_tokens(decode_graph(size, n_layers, method))
            rows.append((size, n_layers, method, *times))
    return rows


def logits_of(decoder: DecodeGraph) -> Tensor:
    """The logits after each of 400 given characters, (400, vocab_size)."""
    decoder.start(0)
    logits = []
    for token in small_llama.TEXT.read_bytes()[-400:]:
        decoder.token.fill_(token)
        decoder.graph.replay()
        logits.append(decoder.logits.clone())
    return torch.cat(logits)


def compare_logits() -> dict[str, dict[str, dict]]:
    """How far each method's logits are from one GPU's in float32, by model and method."""
    found: dict[str, dict[str, dict]] = {}
    for size, n_layers in COMPARED:
        model, config = load_decoder(size, n_layers)
        exact = logits_of(DecodeGraph(model.float(), config))
        del model
        logits = {method: logits_of(decode_graph(size, n_layers, method)) for method in METHODS}
        found[size] = {}
        for method, own in logits.items():
            both = [torch.empty_like(own) for _ in range(dist.get_world_size())]
            dist.all_gather(both, own)
            found[size][method] = {
                "distance": ((own - exact).norm() / exact.norm()).item(),
                "same token": (own.argmax(dim=1) == exact.argmax(dim=1)).sum().item(),
                "ranks equal": all(torch.equal(own, other) for other in both),
                "equals NCCL": torch.equal(own, logits["NCCL"]),
            }
    return found


TASKS = {"all-reduces": time_all_reduces, "decoding": time_decoding, "logits": compare_logits}


def main(argv: Sequence[str] | None = None) -> None:
    """Do one of the tasks on this rank; rank 0 prints what it found."""
    parser = ArgumentParser()
    parser.add_argument("task", choices=TASKS)
    args = parser.parse_args(argv)
    join_group()
    found = TASKS[args.task]()
    if dist.get_rank() == 0:
        print(json.dumps({args.task: found}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
