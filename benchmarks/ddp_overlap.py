"""Which settings of DDP let its first all-reduce overlap the backward pass? Writes a page.

torchrun --standalone --nproc-per-node=2 -m benchmarks.ddp_overlap
"""

import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp

import pandas as pd
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel as DDP

from benchmarks.report import provenance_section, publish, spread, table
from examples.compare_ddp import make_step, record, time_steps
from examples.split_decoder import join
from examples.train_ddp import WARMUP, capture, make_batches, make_model
from helpers.ranks import per_rank, read_ranks
from helpers.timing import quartiles

LEGACY = "nccl-legacy"  # from torch 2.15 on: the backend that was "nccl" before
SETTINGS: dict[str, dict] = {
    "default": {},
    "bucket_cap_mb=1": {"bucket_cap_mb": 1},
    "bucket_cap_mb=100": {"bucket_cap_mb": 100},
    "gradient_as_bucket_view": {"gradient_as_bucket_view": True},
    "static_graph": {"static_graph": True},
    "communication hook": {},
    LEGACY: {},
}
PAGE = """# What lets DDP's all-reduce overlap the backward pass

Written by `torchrun --standalone --nproc-per-node=2 -m benchmarks.ddp_overlap`, never by hand.

The step is that of `examples/compare_ddp.py`. In each row DDP is built with one setting: an
argument, torch's own all-reduce as a communication hook, or the backend. Times are those of rank 0,
from 20 interleaved rounds without a profiler; communication is exposed while nothing else runs on
the GPU, per step of a trace of the graph. The last column: do losses equal those of the default?
"""


def build(setting: str) -> DDP:
    """The model under DDP with this setting."""
    group = dist.new_group(backend=LEGACY) if setting == LEGACY else None
    model = DDP(make_model(), process_group=group, **SETTINGS[setting])
    if setting == "communication hook":
        model.register_comm_hook(None, allreduce_hook)
    return model


def train(
    setting: str, stream: torch.cuda.Stream, batches: list[tuple[Tensor, Tensor]]
) -> tuple[dict[str, Callable], list[float], list]:
    """Steps, eager and as a graph; the graph's losses; and what the graph needs alive."""
    eager = make_step(build(setting))
    step = make_step(build(setting))
    losses = [step(*batch) for batch in batches[:WARMUP]]
    for batch in batches[:WARMUP]:
        eager(*batch)
    graph, replay = capture(step, *batches[WARMUP], stream)
    losses += [replay(*batch) for batch in batches[WARMUP:]]
    steps = {f"{setting}, eager": eager, f"{setting}, graph": replay}
    return steps, torch.stack(losses).tolist(), [graph, step]


def main() -> int:
    """Measure on this rank; returns 2, after a sentence, where it cannot run."""
    if torch.cuda.device_count() < 2:
        print("This benchmark needs two CUDA GPUs.", file=sys.stderr)
        return 2
    torch.set_float32_matmul_precision("high")  # matrix products in TF32
    join()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        batches = make_batches(dist.get_rank())
        del batches[13]  # the bad one
        steps: dict[str, Callable] = {}
        losses: dict[str, list[float]] = {}
        kept = []
        for setting in SETTINGS:
            steps_of_setting, losses[setting], alive = train(setting, stream, batches)
            steps |= steps_of_setting
            kept.append(alive)
        times = time_steps(steps, batches[0])
        exposed = {setting: exposed_us(setting, steps, batches[0]) for setting in SETTINGS}
        for graph, _ in kept:
            graph.reset()  # before the group of ranks ends
    if dist.get_rank() == 0:
        publish(report(times, exposed, losses), "ddp-overlap-")
    dist.destroy_process_group()
    return 0


def exposed_us(
    setting: str, steps: dict[str, Callable], batch: tuple[Tensor, Tensor]
) -> pd.DataFrame:
    """per_rank of a trace of the graph with this setting."""
    folder = [mkdtemp() if dist.get_rank() == 0 else ""]
    dist.broadcast_object_list(folder)
    files = [Path(folder[0], f"{rank}.json.gz") for rank in range(dist.get_world_size())]
    record(steps[f"{setting}, graph"], batch, files[dist.get_rank()])
    dist.barrier()
    return per_rank({setting: read_ranks(files)})


def report(times: list[tuple], exposed: dict, losses: dict) -> str:
    """The page, Markdown."""
    measured = quartiles(pd.DataFrame(times, columns=["variant", "host_us", "step_us"]), "step_us")
    rows = {}
    for setting, traced in exposed.items():
        step = {kind: measured.loc[f"{setting}, {kind}"] for kind in ("eager", "graph")}
        rows[setting] = {
            "eager µs, median [quartiles]": spread(*step["eager"][["q1", "median", "q3"]]),
            "graph µs, median [quartiles]": spread(*step["graph"][["q1", "median", "q3"]]),
            "communication µs": f"{traced['communicates, µs'].min():.0f}",
            "exposed µs": f"{traced['exposed, µs'].min():.0f}",
            "equal": "yes" if losses[setting] == losses["default"] else "no",
        }
    found = table(pd.DataFrame(rows).T, "setting")
    return "\n".join([PAGE, found, provenance_section()])


if __name__ == "__main__":
    sys.exit(main())
