"""DDP and FSDP2 on several GPUs, eager and in a graph: the same training? How long is a step?

    torchrun --standalone --nproc-per-node=2 -m examples.compare_ddp
    torchrun --standalone --nproc-per-node=2 -m examples.compare_ddp --only "DDP, graph"

Rank 0 prints JSON: "trained", the last losses and a checksum of the weights by variant, and
"times", rows of variant, host µs and step µs. --traces FOLDER also profiles DDP on each rank. Model
and batches are those of train_ddp.py: replace them by yours.
"""

import gzip
import json
import time
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.profiler import profile, schedule

from examples.split_decoder import join_group
from examples.train_ddp import WARMUP, capture_train_step, make_batches, make_model

VARIANTS = [
    f"{model}, {step}" for model in ("DDP", "FSDP2", "one GPU") for step in ("eager", "graph")
]


def build_parallel_model(variant: str) -> nn.Module:
    """The model of train_ddp.py, wrapped as the variant says."""
    model = make_model()
    if variant.startswith("DDP"):
        return DDP(model)
    if variant.startswith("FSDP2"):
        for layer in [*model, model]:
            fully_shard(layer)
    return model


def make_step(model: nn.Module) -> Callable:
    """A training step of (inputs, targets) that returns the loss."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train_step(inputs: Tensor, targets: Tensor) -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = F.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return train_step


def checksum(model: nn.Module) -> str:
    """The sum of the weights' bits, read as integers."""
    weights = [
        weight.full_tensor() if isinstance(weight, DTensor) else weight
        for weight in model.parameters()
    ]
    bits = sum(weight.detach().view(torch.int32).sum() for weight in weights)
    return f"{int(bits) % 2**32:08x}"


def time_steps(steps: dict[str, Callable], batch: tuple[Tensor, Tensor]) -> list[tuple]:
    """Rows of variant, host µs and step µs: 20 rounds, each with 20 steps of every variant."""
    rows = []
    for number in range(22):
        for variant, step in steps.items():
            dist.barrier()  # all ranks start together
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(20):
                step(*batch)
            issued = time.perf_counter()
            torch.cuda.synchronize()
            done = time.perf_counter()
            if number >= 2:
                rows.append((variant, (issued - start) / 20 * 1e6, (done - start) / 20 * 1e6))
    return rows


def save_profile(step: Callable, batch: tuple[Tensor, Tensor], file: Path) -> None:
    """Profile three steps after three of warm-up, into a gzipped trace."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with profile(schedule=schedule(wait=0, warmup=3, active=3, repeat=1)) as profiler:
        for number in range(6):
            step(*batch)
            if number in (2, 5):
                torch.cuda.synchronize()
            profiler.step()
    plain = file.with_suffix("")
    profiler.export_chrome_trace(str(plain))
    content = json.loads(plain.read_text()) | {"traceName": file.name}  # not this machine's path
    file.write_bytes(gzip.compress(json.dumps(content).encode(), mtime=0))
    plain.unlink()


def compare(variants: Sequence[str], stream: torch.cuda.Stream, traces: Path | None) -> dict:
    """Train each variant on the same batches, then time its steps."""
    batches = make_batches(dist.get_rank())
    del batches[13]  # the bad one
    steps: dict[str, Callable] = {}
    alive = []  # a graph holds addresses only
    trained = {}
    for variant in variants:
        model = build_parallel_model(variant)
        step = make_step(model)
        losses = [step(*batch) for batch in batches[:WARMUP]]
        if variant.endswith("graph"):
            graph, replay = capture_train_step(step, *batches[WARMUP], stream)
            alive.append((graph, step))
            step = replay
        losses += [step(*batch) for batch in batches[WARMUP:]]
        trained[variant] = [*torch.stack(losses[WARMUP:]).tolist(), checksum(model)]
        steps[variant] = step
    times = time_steps(steps, batches[0])

    if traces:
        for name in ("eager", "graph"):
            save_profile(
                steps[f"DDP, {name}"], batches[0], traces / f"{name}_{dist.get_rank()}.json.gz"
            )
    for graph, _ in alive:
        graph.reset()  # before the group of ranks ends
    return {"trained": trained, "times": times}


def main(argv: Sequence[str] | None = None) -> None:
    """Compare on this rank; rank 0 prints."""
    parser = ArgumentParser()
    parser.add_argument("--only", choices=VARIANTS)
    parser.add_argument("--traces", type=Path, metavar="FOLDER")
    args = parser.parse_args(argv)

    torch.set_float32_matmul_precision("high")  # matrix products in TF32
    join_group()
    side_stream = torch.cuda.Stream()
    with torch.cuda.stream(side_stream):
        found = compare([args.only] if args.only else VARIANTS, side_stream, args.traces)
    if dist.get_rank() == 0:
        print(json.dumps(found), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
