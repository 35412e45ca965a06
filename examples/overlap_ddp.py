"""Which settings let DDP's all-reduces overlap the backward pass? Rank 0 prints JSON.

    torchrun --standalone --nproc-per-node=2 -m examples.overlap_ddp
    torchrun --standalone --nproc-per-node=2 -m examples.overlap_ddp --traces FOLDER

"times" holds rows of setting, host µs and step µs; "traced" what helpers.ranks.gpu_times_per_rank
finds in a profiled step, a number for each rank; "losses" those of the graph's training. Each
setting is timed eagerly and as a graph. --traces keeps the traces of the graph that all-reduces on
its own stream.
"""

import json
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from tempfile import mkdtemp

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel as DDP

from examples.compare_ddp import make_step, save_profile, time_steps
from examples.split_decoder import join_group
from examples.train_ddp import WARMUP, capture_train_step, make_batches, make_model
from helpers.ranks import gpu_times_per_rank, read_ranks

OWN_STREAM = "hook with its own stream"
LEGACY = "nccl-legacy"  # from torch 2.15 on: the backend that was "nccl" before
SETTINGS: dict[str, dict] = {
    "default": {},
    "bucket_cap_mb=1": {"bucket_cap_mb": 1},
    "bucket_cap_mb=100": {"bucket_cap_mb": 100},
    "gradient_as_bucket_view": {"gradient_as_bucket_view": True},
    "static_graph": {"static_graph": True},
    "allreduce_hook": {},
    OWN_STREAM: {},
    f"{OWN_STREAM}, bucket_cap_mb=1": {"bucket_cap_mb": 1},
    LEGACY: {},
}


def all_reduce_on(
    stream: torch.cuda.Stream, bucket: dist.GradBucket
) -> torch.futures.Future[torch.Tensor]:
    """A communication hook: average a bucket's gradients on this stream."""
    gradients = bucket.buffer()
    stream.wait_stream(torch.cuda.current_stream())
    future = torch.futures.Future(devices=[gradients.device])
    with torch.cuda.stream(stream):
        dist.all_reduce(gradients, op=dist.ReduceOp.AVG)
        future.set_result(gradients)  # DDP waits for it at the end of the backward pass
    return future


def build_ddp_model(setting: str) -> DDP:
    """The model of train_ddp.py, under DDP with this setting."""
    group = dist.new_group(backend=LEGACY) if setting == LEGACY else None
    model = DDP(make_model(), process_group=group, **SETTINGS[setting])
    if setting == "allreduce_hook":
        model.register_comm_hook(None, allreduce_hook)
    if setting.startswith(OWN_STREAM):
        model.register_comm_hook(torch.cuda.Stream(), all_reduce_on)
    return model


def compare_settings(stream: torch.cuda.Stream, traces: Path | None) -> dict:
    """Train with each setting, eagerly and as a graph; time the steps, then profile them."""
    batches = make_batches(dist.get_rank())
    del batches[13]  # the bad one
    steps = {}
    losses = {}
    alive = []  # a graph holds addresses only
    for setting in SETTINGS:
        if setting == LEGACY and torch.__version__ < "2.15":
            continue
        eager, step = make_step(build_ddp_model(setting)), make_step(build_ddp_model(setting))
        for batch in batches[:WARMUP]:
            eager(*batch)
            step(*batch)
        graph, replay = capture_train_step(step, *batches[WARMUP], stream)
        alive.append((graph, step))
        losses[setting] = [replay(*batch).item() for batch in batches[WARMUP:]]
        steps |= {f"{setting}: eager": eager, f"{setting}: graph": replay}
    times = time_steps(steps, batches[0])

    folders = [mkdtemp()]
    dist.broadcast_object_list(folders)  # rank 0's, for the traces of all ranks
    traced = {}
    for name, step in steps.items():
        folder = Path(folders[0], name)
        if traces and name == f"{OWN_STREAM}: graph":
            folder = traces
        files = [folder / f"overlap_{rank}.json.gz" for rank in range(dist.get_world_size())]
        save_profile(step, batches[0], files[dist.get_rank()])
        dist.barrier()
        traced[name] = gpu_times_per_rank({name: read_ranks(files)}).to_dict("list")
    for graph, _ in alive:
        graph.reset()  # before the group of ranks ends
    return {"times": times, "traced": traced, "losses": losses}


def main(argv: Sequence[str] | None = None) -> None:
    """Compare on this rank; rank 0 prints."""
    parser = ArgumentParser()
    parser.add_argument("--traces", type=Path, metavar="FOLDER")
    args = parser.parse_args(argv)

    torch.set_float32_matmul_precision("high")  # matrix products in TF32
    join_group()
    side_stream = torch.cuda.Stream()
    with torch.cuda.stream(side_stream):
        found = compare_settings(side_stream, args.traces)
    if dist.get_rank() == 0:
        print(json.dumps(found), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
