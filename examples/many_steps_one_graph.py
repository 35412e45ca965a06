"""Train with ten steps in one CUDA graph: two copies and one launch for ten batches.

    python examples/many_steps_one_graph.py

It needs a CUDA GPU and nothing but PyTorch. Numbered lines are those that a graph needs.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

GROUP = 10  # steps per launch


def build_model() -> nn.Module:
    """Yours. The same seed gives the same weights."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 8)).cuda()


def train_group(
    model: nn.Module, optimizer: torch.optim.Optimizer, inputs: Tensor, targets: Tensor
) -> Tensor:
    """Train on each batch of a group: inputs (GROUP, B, 64), targets (GROUP, B, 8)."""
    losses = []
    for batch, target in zip(inputs, targets, strict=True):
        optimizer.zero_grad()
        loss = mse_loss(model(batch), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)  # (GROUP,)


@contextmanager
def capturing(graph: torch.cuda.CUDAGraph, pool: tuple | None = None) -> Iterator[None]:
    """Capture the block, next to threads that pin memory and without a garbage collection."""
    gc_was_enabled = gc.isenabled()
    gc.disable()  # collecting an older graph would end the capture
    try:
        with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
            yield
    finally:
        if gc_was_enabled:
            gc.enable()


def graphed_group(
    model: nn.Module, optimizer: torch.optim.Optimizer, inputs: Tensor, targets: Tensor
) -> Callable[[Tensor, Tensor], Tensor]:
    """Capture train_group with SGD, for groups of this shape: the last, smaller one stays eager."""
    inputs, targets = inputs.clone(), targets.clone()  # 1. replays overwrite these
    weights = [weight.detach().clone() for weight in model.parameters()]

    side_stream = torch.cuda.Stream()
    side_stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side_stream):
        train_group(model, optimizer, inputs, targets)  # 2. warm up; this trains the model
    torch.cuda.current_stream().wait_stream(side_stream)

    graph = torch.cuda.CUDAGraph()
    with capturing(graph):
        static_losses = train_group(model, optimizer, inputs, targets)

    with torch.no_grad():
        for weight, before in zip(model.parameters(), weights, strict=True):
            weight.copy_(before)  # 3. undo the warm-up, in place

    def replay(new_inputs: Tensor, new_targets: Tensor) -> Tensor:
        inputs.copy_(new_inputs)  # 4. once for the whole group, as the launch
        targets.copy_(new_targets)
        graph.replay()
        return static_losses.clone()  # 5. the next replay overwrites static_losses

    return replay


def main() -> None:
    """Train five groups with and without a graph, and compare the losses."""
    inputs = torch.randn(5, GROUP, 32, 64, device="cuda")
    targets = torch.randn(5, GROUP, 32, 8, device="cuda")
    losses = {}
    for name in ("eager", "graph"):
        model = build_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if name == "graph":
            train = graphed_group(model, optimizer, inputs[0], targets[0])
            groups = [train(*group) for group in zip(inputs, targets, strict=True)]
        else:
            groups = [
                train_group(model, optimizer, *group) for group in zip(inputs, targets, strict=True)
            ]
        losses[name] = torch.cat(groups)
    print("last loss:", losses["graph"][-1].item())
    print("equal to eager:", torch.equal(losses["graph"], losses["eager"]))


if __name__ == "__main__":
    main()
