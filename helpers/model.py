"""The workload of the whole course: a small MLP, its batches and its eager training step.

The sizes are those of the examples that the course grew from (github.com/leimao,
PyTorch-CUDA-Graph-Capture-Examples): many small kernels, hardly any work for a modern GPU.
"""

from collections.abc import Sequence

import torch
from torch import nn

BATCH = 640
WIDTHS = (4096, 2048, 1024, 512, 256)
DROPOUTS = (0.2, 0.1, 0.1)


def make_model(
    widths: Sequence[int] = WIDTHS,
    dropouts: Sequence[float] = DROPOUTS,
    device: str = "cuda",
    seed: int = 0,
) -> nn.Sequential:
    """Build the MLP: blocks of Linear, ReLU, Dropout, then a Linear head without either.

    widths: input width, hidden widths, output width; dropouts: one probability per hidden width.
    The children block1, block2, ..., head map (batch, widths[0]) to (batch, widths[-1]). The same
    seed gives the same weights. Raises ValueError if there is not one dropout per hidden width.
    """
    if len(dropouts) != len(widths) - 2:
        raise ValueError(
            f"{len(widths) - 2} hidden widths need as many dropouts, not {len(dropouts)}"
        )
    torch.manual_seed(seed)
    model = nn.Sequential()
    for number, (fan_in, fan_out, p) in enumerate(
        zip(widths, widths[1:-1], dropouts, strict=False), 1
    ):
        block = nn.Sequential(nn.Linear(fan_in, fan_out), nn.ReLU(), nn.Dropout(p))
        model.add_module(f"block{number}", block)
    model.add_module("head", nn.Linear(widths[-2], widths[-1]))
    return model.to(device)


def make_optimizer(model: nn.Module) -> torch.optim.SGD:
    """Plain SGD at learning rate 0.1, as in the original examples."""
    return torch.optim.SGD(model.parameters(), lr=0.1)


def make_batches(
    count: int = 10,
    batch: int = BATCH,
    widths: Sequence[int] = WIDTHS,
    device: str = "cuda",
    seed: int = 1,
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Draw count batches of normal float32 numbers: (batch, widths[0]) and (batch, widths[-1])."""
    generator = torch.Generator(device).manual_seed(seed)

    def draw(width):
        return torch.randn(batch, width, device=device, generator=generator)

    return [(draw(widths[0]), draw(widths[-1])) for _ in range(count)]


def training_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, inputs: torch.Tensor, targets: torch.Tensor
) -> torch.Tensor:
    """Run one eager training step (mean squared error) and return its loss, a detached 0-d tensor.

    Nothing in here waits for the GPU.
    """
    optimizer.zero_grad(set_to_none=True)
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.detach()
