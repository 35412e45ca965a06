"""Send a trainer's weights to an engine on another GPU, under the engine's CUDA graph:

    torchrun --standalone --nproc-per-node=2 -m benchmarks.broadcast

Rank 0 decodes with a graph, rank 1 changes the weights. Rank 0 writes
benchmarks/results/broadcast-<gpu>.md.
"""

import sys
import time

import pandas as pd
import torch
import torch.distributed as dist
from torch import Tensor, nn

from benchmarks.report import provenance_section, publish, spread, table
from examples.decoder import Config, Decoder
from examples.rollouts import N_TOKENS, Rollouts
from examples.split_decoder import join
from helpers.capture import capture_step

UPDATES = 10
ENGINE, TRAINER = 0, 1  # their ranks
PAGE = f"""# New weights from another GPU

Written by `torchrun --standalone --nproc-per-node=2 -m benchmarks.broadcast`, never by hand.

Rank 0 decodes {N_TOKENS} tokens with a CUDA graph, captured before the first update, rank 1
decodes them in eager with the weights that it sends. NCCL writes in place: into the
tensors that the graph reads. Milliseconds are those of rank 0, from a barrier until its GPU is
done.
"""


def timed_broadcast(tensors: list[Tensor]) -> float:
    """Milliseconds until the trainer's values are in the tensors of this rank, in place."""
    dist.barrier()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for tensor in tensors:
        dist.broadcast(tensor, TRAINER)
    torch.cuda.synchronize()
    return 1000 * (time.perf_counter() - start)


def change(model: nn.Module, update: int) -> None:
    """New weights, as a step of an optimizer would leave them."""
    torch.manual_seed(update)
    for weight in model.parameters():
        weight.mul_(1 + 0.1 * torch.randn_like(weight))


def measure_updates() -> pd.DataFrame:
    """A row per update: milliseconds, and how many tokens are as eager and as before it."""
    torch.manual_seed(0)
    model = Decoder(Config(), "cuda", torch.bfloat16).requires_grad_(False)
    rollouts = Rollouts(model, Config(), rows=1)
    is_engine = dist.get_rank() == ENGINE
    step = capture_step(rollouts.step) if is_engine else rollouts.step
    weights = list(model.parameters())

    rows = []
    before = rollouts.write(step, seed=0)
    for update in range(UPDATES + 1):
        if not is_engine:
            change(model, update)
        ms = timed_broadcast(weights)
        text = rollouts.write(step, seed=0)
        expected = text.clone()
        dist.broadcast(expected, TRAINER)
        rows.append(
            {
                "ms": ms,
                "equal": int((text == expected)[:, 1:].sum()),
                "as before": int((text == before)[:, 1:].sum()),
            }
        )
        before = text
    size = sum(weight.nbytes for weight in weights)
    return pd.DataFrame(rows[1:]).assign(GB=size / 1e9)  # the first one starts NCCL


def report(updates: pd.DataFrame) -> str:
    """The page, Markdown."""
    low, median, high = updates.ms.quantile([0.25, 0.5, 0.75])
    size, tokens = updates.GB.iloc[0], N_TOKENS * len(updates)
    row = {
        "GB": f"{size:.2f}",
        "ms, median [quartiles]": spread(low, median, high),
        "GB/s": f"{1000 * size / median:.0f}",
        "tokens equal to eager": f"{updates.equal.sum()} of {tokens}",
        "tokens as before": f"{updates['as before'].sum()} of {tokens}",
    }
    found = table(pd.DataFrame([row], index=[f"{len(updates)} updates"]), "")
    return "\n".join([PAGE, found, provenance_section()])


def main() -> int:
    """Measure on this rank; returns 2, after a sentence, where it cannot run."""
    if torch.cuda.device_count() < 2:
        print("This benchmark needs two CUDA GPUs.", file=sys.stderr)
        return 2
    join()
    updates = measure_updates()
    if dist.get_rank() == ENGINE:
        publish(report(updates), "broadcast-")
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
