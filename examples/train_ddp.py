"""Train on several GPUs with DistributedDataParallel; on each, a training step is one CUDA graph.

    torchrun --standalone --nproc-per-node=2 train_ddp.py              # replays graphs
    torchrun --standalone --nproc-per-node=2 train_ddp.py --no-graph   # the same losses without

The numbered lines are those that graphs on several ranks need. If the ranks share a GPU, set
NCCL_MULTI_RANK_GPU_ENABLE=1, which NCCL knows from 2.30 (torch 2.15) on.
"""

import faulthandler
import os
from argparse import ArgumentParser, BooleanOptionalAction
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

WARMUP = 11  # 2. steps; ten are not enough for DDP
STEPS = 16
LIMIT = 10  # seconds for the replays between two reads, and for the end of the program


def make_model() -> nn.Module:
    """Four layers, from 4,096 numbers to 256."""
    torch.manual_seed(0)
    layers = [nn.Linear(4096, 2048), nn.ReLU(), nn.Linear(2048, 1024), nn.ReLU()]
    layers += [nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 256)]
    return nn.Sequential(*layers).cuda()


def make_batches(rank: int) -> list[tuple[Tensor, Tensor]]:
    """Inputs (640, 4096) and targets (640, 256), different ones on each rank; one batch is bad."""
    torch.manual_seed(1 + rank)
    batches = []
    for _ in range(STEPS):
        inputs = torch.randn(640, 4096, device="cuda")
        targets = torch.randn(640, 256, device="cuda")
        batches.append((inputs, targets))
    if rank == 1:
        batches[13][1].mul_(100)
    return batches


def capture_train_step(
    train_step: Callable, inputs: Tensor, targets: Tensor, stream: torch.cuda.Stream
) -> tuple[torch.cuda.CUDAGraph, Callable]:
    """Capture a training step; returns its graph, and a step that replays it."""
    static_inputs, static_targets = inputs.clone(), targets.clone()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        static_loss = train_step(static_inputs, static_targets)

    def replay(inputs: Tensor, targets: Tensor) -> Tensor:
        static_inputs.copy_(inputs)
        static_targets.copy_(targets)
        graph.replay()
        return static_loss.clone()

    return graph, replay


def print_losses_and_checksum(rank: int, model: nn.Module, losses: list[Tensor]) -> None:
    """Print losses and a checksum of the weights, the sum of their bits as integers."""
    values = [f"{loss:.6f}" for loss in torch.stack(losses).tolist()]
    bits = [weight.detach().view(torch.int32).sum() for weight in model.parameters()]
    checksum = f"{int(sum(bits)) % 2**32:08x}"
    line = f"rank {rank}: losses {' '.join(values)}, weights {checksum}\n"
    print(line, end="", flush=True)  # in one piece, because all ranks print


def train(rank: int, stream: torch.cuda.Stream, use_graph: bool) -> None:
    """Train on this rank's batches, and report."""
    batches = make_batches(rank)
    model = DDP(make_model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train_step(inputs, targets):
        optimizer.zero_grad(set_to_none=True)
        loss = F.mse_loss(model(inputs), targets)
        loss.backward()  # averages the gradients of all ranks
        bad = (~(loss.detach() < 10)).float()
        dist.all_reduce(bad)  # 3. on how many ranks the batch is bad
        for weight in model.parameters():
            if weight.grad is not None:
                weight.grad.masked_fill_(bad > 0, 0)
        optimizer.step()
        return loss.detach()

    losses = [train_step(*batch) for batch in batches[:WARMUP]]
    step = train_step
    if use_graph:
        graph, step = capture_train_step(train_step, *batches[WARMUP], stream)
    for inputs, targets in batches[WARMUP:]:  # 4. as many on every rank
        losses.append(step(inputs, targets))

    faulthandler.dump_traceback_later(LIMIT, exit=True)  # 5. ends a hang
    print_losses_and_checksum(rank, model, losses[-5:])

    if use_graph:
        graph.reset()  # 6. before the group of ranks ends
    dist.destroy_process_group()
    faulthandler.cancel_dump_traceback_later()


def main(argv: Sequence[str] | None = None) -> None:
    """Train on one rank; torchrun says which."""
    parser = ArgumentParser()
    parser.add_argument("--graph", action=BooleanOptionalAction, default=True)
    args = parser.parse_args(argv)

    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    side_stream = torch.cuda.Stream()
    with torch.cuda.stream(side_stream):  # 1. DDP, warm-up and capture
        train(dist.get_rank(), side_stream, args.graph)


if __name__ == "__main__":
    main()
