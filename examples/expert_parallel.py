"""Experts on several GPUs; each rank's layer is one CUDA graph, its two all-to-alls included.

    torchrun --standalone --nproc-per-node=2 expert_parallel.py

Numbered lines keep all sizes fixed. A rank prints a line of JSON for each capacity: how many of its
tokens had room, how many of these are equal, bit for bit, to the layer on one GPU, and the times in
µs of a replay of the layer, of its products alone, and of its all-to-alls alone. If the ranks share
a GPU, set NCCL_MULTI_RANK_GPU_ENABLE=1, which NCCL knows from 2.30 (torch 2.15) on.
"""

import faulthandler
import json
import os
import time
from collections.abc import Callable
from statistics import median

import torch
import torch.distributed as dist
from torch import Tensor, nn

TOKENS = 1024  # on each rank
N_EMBD = 1024
N_EXPERT = 16
TOP_K = 2
CAPACITIES = (1024, 160)  # rows per expert and rank: for all tokens of a rank; 1.25 times the mean
LIMIT = 90  # seconds for the program, because no watchdog sees a replay


class MoE(nn.Module):
    """All experts on one GPU. Weights are small whole numbers, so no product rounds."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.router = nn.Linear(N_EMBD, N_EXPERT, device="cuda").requires_grad_(False)
        self.router.weight.random_(-1, 2).div_(32)
        self.router.bias.copy_(torch.arange(N_EXPERT) * 33 / 1024)  # no ties
        shape = (2, N_EXPERT, N_EMBD, N_EMBD)
        weights = torch.randint(-1, 2, shape, device="cuda", dtype=torch.bfloat16)
        self.up, self.down = weights * (torch.rand(shape, device="cuda") < 1 / 32)  # mostly zero

    def route(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The weights and the experts of each token, (T, top_k) each."""
        weights, experts = self.router(x.float()).softmax(-1).topk(TOP_K)
        return weights.to(x.dtype), experts

    def run_experts(self, rows: Tensor) -> Tensor:
        """rows: (T, n_embd) for all experts, or each expert's own."""
        return (rows @ self.up).relu() @ self.down

    def forward(self, x: Tensor) -> Tensor:
        """Every expert on every token."""
        weights, experts = self.route(x)
        share = x.new_zeros(len(x), N_EXPERT).scatter(1, experts, weights)
        return (share.t()[:, :, None] * self.run_experts(x)).sum(0)


def exchange(parts: Tensor) -> Tensor:
    """Send part i, contiguous, to rank i; returns what each rank sent, by rank."""
    received = torch.empty_like(parts)
    dist.all_to_all_single(received, parts)
    return received


class ExpertParallel(MoE):
    """The same layer, of which each rank holds its share of the experts."""

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity
        self.up = self.up.chunk(dist.get_world_size())[dist.get_rank()].clone()
        self.down = self.down.chunk(dist.get_world_size())[dist.get_rank()].clone()

    def view_by_rank(self, buffer: Tensor) -> Tensor:
        """A buffer of capacity rows for each expert as (ranks, n_mine, capacity, n_embd)."""
        return buffer.view(-1, len(self.up), self.capacity, N_EMBD)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The result, (T, n_embd), and for which tokens there was room, (T,)."""
        weights, experts = self.route(x)
        choice = experts.flatten()
        is_chosen = choice == torch.arange(N_EXPERT, device=x.device)[:, None]
        position = is_chosen.cumsum(1).gather(0, choice[None])[0] - 1  # in its expert's buffer
        kept = position < self.capacity
        spare = N_EXPERT * self.capacity  # 1. a row for all choices that have no room
        row = torch.where(kept, choice * self.capacity + position, spare)

        buffer = x.new_zeros(spare + 1, N_EMBD)  # 2. as many rows for every routing
        buffer.index_copy_(0, row, x.repeat_interleave(TOP_K, 0))
        y = self.run_on_their_ranks(buffer[:-1]).flatten(0, 2)
        y = torch.cat([y, y.new_zeros(1, N_EMBD)])[row].view(-1, TOP_K, N_EMBD)
        return (weights[..., None] * y).sum(1), kept.view(-1, TOP_K).all(1)

    def run_on_their_ranks(self, buffer: Tensor) -> Tensor:
        """The results for a buffer, as view_by_rank has it, whichever rank holds the expert."""
        rows = exchange(self.view_by_rank(buffer))  # 3. equal parts for all ranks
        rows = rows.transpose(0, 1).flatten(1, 2)  # (n_mine, ranks * capacity, n_embd)
        y = self.run_experts(rows)
        y = y.unflatten(1, (-1, self.capacity)).transpose(0, 1)  # (ranks, n_mine, capacity, n_embd)
        return exchange(y.contiguous())  # 4. back to the ranks of the tokens


def capture(step: Callable, x: Tensor) -> tuple[torch.cuda.CUDAGraph, tuple]:
    """The graph of step(x), and its result."""
    side_stream = torch.cuda.Stream()
    side_stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side_stream):
        step(x)  # the warm-up
    torch.cuda.current_stream().wait_stream(side_stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = step(x)
    return graph, y


def time_replay_us(graph: torch.cuda.CUDAGraph, replays: int = 20, rounds: int = 5) -> float:
    """The time of a replay, the median of some rounds."""
    times = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        dist.barrier()
        start = time.perf_counter()
        for _ in range(replays):
            graph.replay()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / replays * 1e6)
    return round(median(times), 1)


def compare_with_one_gpu(capacity: int) -> None:
    """Compare five batches of this rank with one GPU, and time the layer and its parts."""
    one_gpu, layer = MoE(), ExpertParallel(capacity)
    torch.manual_seed(1 + dist.get_rank())
    shape = (5, TOKENS, N_EMBD)
    batches = torch.randint(-1, 2, shape, device="cuda", dtype=torch.bfloat16)
    static_x = batches[0].clone()
    graph, (y, has_room) = capture(layer, static_x)

    line = {"rank": dist.get_rank(), "capacity": capacity, "tokens with room": 0, "equal": 0}
    for x in batches:
        static_x.copy_(x)
        graph.replay()
        line["tokens with room"] += has_room.sum().item()
        line["equal"] += (y == one_gpu(x)).all(1)[has_room].sum().item()

    parts = layer.view_by_rank(x.new_ones(N_EXPERT, capacity, N_EMBD))
    exchanges, _ = capture(lambda parts: exchange(exchange(parts)), parts)
    rows = parts.transpose(0, 1).flatten(1, 2)
    products, _ = capture(layer.run_experts, rows)
    graphs = {"layer": graph, "products": products, "all-to-alls": exchanges}
    for name, one in graphs.items():
        line[f"{name} µs"] = time_replay_us(one)
        one.reset()  # before the group of ranks ends
    print(json.dumps(line) + "\n", end="", flush=True)  # in one piece, because all ranks print


def main() -> None:
    """Report on one rank; torchrun says which."""
    faulthandler.dump_traceback_later(LIMIT, exit=True)
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    for capacity in CAPACITIES:
        compare_with_one_gpu(capacity)
    dist.destroy_process_group()
    faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    main()
