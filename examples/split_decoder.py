"""Decode on two GPUs, each with half of every layer: one CUDA graph per GPU holds a decode step.

    torchrun --standalone --nproc-per-node=2 -m examples.split_decoder

The decoder is that of decoder.py, trained on Shakespeare: replace it by yours. Numbered lines are
those that two GPUs need. If the ranks share a GPU, set NCCL_MULTI_RANK_GPU_ENABLE=1, which NCCL
knows from 2.30 (torch 2.15) on.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import Tensor, nn

from examples import small_llama
from examples.decoder import Config, Decoder, new_kv_cache, sample

N_TOKENS = 120
TEMPERATURE = 0.8


def nccl_sum(x: Tensor) -> Tensor:
    """The sum of x over all ranks, in place."""
    dist.all_reduce(x)
    return x


def own_rows(weight: Tensor, sizes: Sequence[int], rank: int, world_size: int) -> Tensor:
    """A rank's share of each section of the rows (outputs), which have these sizes."""
    return torch.cat([part.chunk(world_size)[rank] for part in weight.split(sizes)])


def own_columns(weight: Tensor, rank: int, world_size: int) -> Tensor:
    """A rank's share of the columns (inputs)."""
    return weight.chunk(world_size, dim=1)[rank].clone()


def fused_sizes(block: nn.Module) -> tuple[list[int], list[int]]:
    """The sizes of queries, keys and values among the rows of qkv, and of both parts of gate_up."""
    attention = block.attention
    q_size = attention.n_heads * attention.head_dim
    kv_size = attention.n_kv_heads * attention.head_dim
    return [q_size, kv_size, kv_size], [block.feed_forward.down.in_features] * 2


def split(model: Decoder, rank: int, world_size: int, all_reduce: Callable = nccl_sum) -> None:
    """Keep this rank's share of a decoder, in place. all_reduce: Tensor -> its sum over all."""

    def add_up(layer, inputs, output):
        return all_reduce(output)

    def keep(linear, share):
        linear.weight = nn.Parameter(share, requires_grad=False)

    for block in model.blocks:
        qkv_sizes, gate_up_sizes = fused_sizes(block)
        attention, feed_forward = block.attention, block.feed_forward

        qkv = attention.qkv
        keep(qkv, own_rows(qkv.weight, qkv_sizes, rank, world_size))  # 1. half of q, k and v
        keep(attention.output, own_columns(attention.output.weight, rank, world_size))
        attention.n_heads //= world_size  # 2. and so many heads
        attention.n_kv_heads //= world_size
        attention.register_forward_hook(add_up)  # 3. the sum over all ranks

        gate_up = feed_forward.gate_up
        keep(gate_up, own_rows(gate_up.weight, gate_up_sizes, rank, world_size))
        keep(feed_forward.down, own_columns(feed_forward.down.weight, rank, world_size))
        feed_forward.register_forward_hook(add_up)  # 4. a second sum


class DecodeGraph:
    """A captured decode step for one sequence, and its KV cache."""

    def __init__(self, model: Decoder, config: Config, temperature: float = 0.0) -> None:
        self.model = model  # a graph holds addresses only
        self.temperature = temperature
        self.kv_cache = new_kv_cache(config, 1, "cuda", model.embedding.weight.dtype)
        self.token = torch.zeros(1, 1, dtype=torch.long, device="cuda")
        self.input_pos = torch.zeros_like(self.token)

        side_stream = torch.cuda.Stream()
        side_stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side_stream):
            for _ in range(3):
                self.step()
        torch.cuda.current_stream().wait_stream(side_stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.logits = self.step()

    def step(self) -> Tensor:
        """Read the token, and put the next one in its place; returns its logits."""
        logits = self.model(self.token, self.input_pos, self.kv_cache)
        self.token.copy_(sample(logits, self.temperature))
        self.input_pos.add_(1)
        return logits

    def start(self, token: int) -> None:
        """Begin a new sequence. Older keys and values are masked until they are overwritten."""
        self.token.fill_(token)
        self.input_pos.zero_()


def join_group() -> None:
    """Join the group of ranks that torchrun has started."""
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)


def generate_with_checksum(decoder: DecodeGraph) -> str:
    """Decode from the letter K; returns a checksum of all logits, and the text."""
    torch.manual_seed(0)  # 6. every rank draws the same tokens
    tokens, checksum = [], 0
    decoder.start(ord("K"))
    for _ in range(N_TOKENS):
        decoder.graph.replay()
        tokens.append(decoder.token.clone())
        checksum += decoder.logits.view(torch.int32).sum()
    text = small_llama.decode(torch.cat(tokens))
    return f"logits {int(checksum) % 2**32:08x} {text!r}"


def main() -> None:
    """Decode on this rank."""
    join_group()
    rank, world_size = dist.get_rank(), dist.get_world_size()
    model, config = small_llama.load("model", "cuda")
    split(model, rank, world_size)
    config = replace(config, n_kv_heads=config.n_kv_heads // world_size)  # 5. half of the cache
    decoder = DecodeGraph(model, config, TEMPERATURE)
    print(f"rank {rank}: {generate_with_checksum(decoder)}\n", end="", flush=True)
    decoder.graph.reset()  # before the group of ranks ends
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
