"""Train with compiled kernels in one CUDA graph of your own.

    python examples/compile_and_capture.py

It needs a CUDA GPU and nothing but PyTorch. Numbered lines are what the compiler and the capture
need.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

WARMUP = 3  # steps


def build_model() -> nn.Module:
    """Yours."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10)).cuda()


def make_step(model: nn.Module) -> Callable:
    """Yours too: a training step that reads no value on the CPU."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(inputs, targets):
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def train(step: Callable, batches: list) -> list[Tensor]:
    """The losses of a training: the first steps run without a graph, the others are replays."""
    side_stream = torch.cuda.Stream()
    side_stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side_stream):
        losses = [step(*batch) for batch in batches[:WARMUP]]  # 2. the first step compiles
    torch.cuda.current_stream().wait_stream(side_stream)

    static_inputs, static_targets = (tensor.clone() for tensor in batches[0])
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        static_loss = step(static_inputs, static_targets)

    for inputs, targets in batches[WARMUP:]:
        static_inputs.copy_(inputs)  # 3. a graph reads fixed addresses
        static_targets.copy_(targets)
        graph.replay()
        losses.append(static_loss.clone())  # 4. the next replay overwrites it
    return losses


def main() -> None:
    """Train with the graph, and compare the losses with those of the eager model."""
    sizes = ((32, 64), (32, 10))
    batches = [[torch.randn(size, device="cuda") for size in sizes] for _ in range(10)]
    compiled_model = torch.compile(build_model())  # 1. a mode without graphs of its own
    losses = train(make_step(compiled_model), batches)

    eager_step = make_step(build_model())
    expected = [eager_step(*batch) for batch in batches]
    close = torch.allclose(torch.stack(losses), torch.stack(expected), rtol=1e-3)
    print("as the eager training:", close)


if __name__ == "__main__":
    main()
