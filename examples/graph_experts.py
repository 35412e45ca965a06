"""Train a mixture of experts by a CUDA graph, whose shapes hold for every routing.

    python examples/graph_experts.py

It needs PyTorch and a GPU of compute capability 9 or 10: on others `grouped_mm` waits for the GPU.
Numbered lines keep all shapes fixed.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

WARMUP = 3  # steps


class MoE(nn.Module):
    """A router, and n_expert networks, of which each token passes through top_k."""

    def __init__(self, n_embd: int = 1024, n_expert: int = 16, top_k: int = 2) -> None:
        super().__init__()
        self.n_expert = n_expert
        self.top_k = top_k
        self.router = nn.Linear(n_embd, n_expert)  # in float32
        self.up = nn.Parameter(torch.randn(n_expert, n_embd, n_embd).bfloat16() / n_embd**0.5)
        self.down = nn.Parameter(torch.randn(n_expert, n_embd, n_embd).bfloat16() / n_embd**0.5)

    def forward(self, x: Tensor) -> Tensor:
        """(T, n_embd) -> (T, n_embd)."""
        weights, experts = self.router(x.float()).softmax(-1).topk(self.top_k)
        sorted_experts, order = experts.flatten().sort(stable=True)  # 1. always T * top_k choices
        expert = torch.arange(self.n_expert, device=x.device)
        ends = torch.searchsorted(sorted_experts, expert, right=True, out_int32=True)  # 2. a tensor
        rows = F.pad(x[order // self.top_k], (0, 0, 0, 1))  # 3. a spare row: ends[-1] < len(rows)
        hidden = F.grouped_mm(rows, self.up, offs=ends).relu()
        y = F.grouped_mm(hidden, self.down, offs=ends)[:-1]
        y = torch.zeros_like(y).index_copy(0, order, y)  # 4. back into the order of the choices
        return (weights.to(y.dtype)[..., None] * y.view(*weights.shape, -1)).sum(1)


def loop(moe: MoE, x: Tensor) -> Tensor:
    """The same result, one expert after the other, which cannot be captured."""
    weights, experts = moe.router(x.float()).softmax(-1).topk(moe.top_k)
    y = torch.zeros_like(x)
    for expert, (up, down) in enumerate(zip(moe.up, moe.down, strict=True)):
        token, choice = torch.where(experts == expert)
        result = (x[token] @ up).relu() @ down
        y[token] += weights[token, choice, None].to(y.dtype) * result
    return y


def graphed(step: Callable, *samples: Tensor) -> Callable:
    """A function that replays step on inputs like the samples; warm the step up before."""
    static_inputs = [sample.clone() for sample in samples]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        static_output = step(*static_inputs)

    def replay(*inputs: Tensor) -> Tensor:
        for static_input, new_input in zip(static_inputs, inputs, strict=True):
            static_input.copy_(new_input)
        graph.replay()
        return static_output.clone()

    return replay


@torch.no_grad()
def count_wrong(batches: list[Tensor]) -> list[int]:
    """How many tokens of each batch a replay computes differently from the loop, bit for bit.

    Weights and tokens are whole numbers, and most weights are zero, so no product rounds.
    """
    moe = MoE().cuda()
    moe.router.weight.random_(-1, 2).div_(32)  # -1, 0 or 1, divided by 32
    moe.router.bias.copy_(torch.arange(moe.n_expert) * 33 / 1024)  # no ties
    for weight in (moe.up, moe.down):
        weight.random_(-1, 2)
        weight.mul_(torch.rand_like(weight, dtype=torch.float32) < 1 / 32)
    moe(batches[0])  # the warm-up
    replay = graphed(moe, batches[0])
    return [(replay(x) != loop(moe, x)).any(1).sum().item() for x in batches]


def train(batches: list[Tensor], use_graph: bool) -> list[float]:
    """The losses of a training; a batch holds inputs and targets, (2, T, n_embd)."""
    torch.manual_seed(0)
    moe = MoE().cuda()
    optimizer = torch.optim.AdamW(moe.parameters(), lr=1e-3, fused=True, capturable=True)

    def step(x: Tensor, targets: Tensor) -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = F.mse_loss(moe(x), targets)
        loss.backward()
        optimizer.step()
        return loss.detach()

    side_stream = torch.cuda.Stream()
    side_stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side_stream):
        losses = [step(*batch) for batch in batches[:WARMUP]]
    torch.cuda.current_stream().wait_stream(side_stream)

    train_step = graphed(step, *batches[0]) if use_graph else step
    losses += [train_step(*batch) for batch in batches[WARMUP:]]
    return torch.stack(losses).tolist()


def main() -> None:
    """Test the layer exactly, then train with and without a graph."""
    torch.manual_seed(0)
    whole = [torch.randint(-1, 2, (2048, 1024), device="cuda").bfloat16() for _ in range(3)]
    print("wrong tokens:", count_wrong(whole))
    batches = list(torch.randn(8, 2, 2048, 1024, device="cuda").bfloat16())
    print("losses as in eager:", train(batches, True) == train(batches, False))


if __name__ == "__main__":
    main()
