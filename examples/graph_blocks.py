"""Train with two blocks of a model in CUDA graphs:  python examples/graph_blocks.py

Needs torch and a CUDA GPU. Between the blocks the CPU reads a value, so that the model cannot be
captured whole. To use it at work, copy graph_blocks; its numbered lines are what graphs need.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

BATCH_SIZE = 64
GRADIENT_ACCUMULATION_STEPS = 2
DIM = 256


class Model(nn.Module):
    """Two blocks, and between them a decision of the CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(DIM, DIM), nn.GELU(), nn.Linear(DIM, DIM))
        self.decoder = nn.Sequential(nn.Linear(DIM, DIM), nn.GELU(), nn.Linear(DIM, 1))

    def between(self, hidden: Tensor) -> Tensor:
        """Scale down what is too large."""
        largest = hidden.detach().abs().max().item()  # cannot be captured
        return hidden / largest if largest > 1 else hidden

    def forward(self, x: Tensor) -> Tensor:
        """(BATCH_SIZE, DIM) to (BATCH_SIZE, 1)."""
        return self.decoder(self.between(self.encoder(x)))


def graph_blocks(model: Model, inputs: Tensor) -> None:
    """Graph both blocks for training; inputs: a micro-batch of the shape to train on."""
    model.train()  # 1. the mode of the training: in the other one, nothing is replayed
    with torch.no_grad():
        hidden = model.between(model.encoder(inputs))
    hidden.requires_grad_()  # 2. as the real input does: else the encoder does not train
    samples = ((inputs.clone(),), (hidden,))  # 3. a clone: every later call overwrites its sample
    # In one call and in running order: the graphs share their memory.
    torch.cuda.make_graphed_callables((model.encoder, model.decoder), samples)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)  # 4. for accumulation


def train(graphed: bool, steps: int = 20) -> list[float]:
    """Train a new model on random batches and return the loss of each micro-batch."""
    torch.manual_seed(0)
    model = Model().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    if graphed:
        graph_blocks(model, torch.randn(BATCH_SIZE, DIM, device="cuda"))

    torch.manual_seed(1)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=False)  # 5. in place, so that line 4 holds
        for _ in range(GRADIENT_ACCUMULATION_STEPS):
            inputs = torch.randn(BATCH_SIZE, DIM, device="cuda")
            loss = mse_loss(model(inputs), inputs.mean(dim=1, keepdim=True))
            (loss / GRADIENT_ACCUMULATION_STEPS).backward()
            losses.append(loss.detach().clone())
        optimizer.step()

    for name, parameter in model.named_parameters():
        if not parameter.grad.any():  # weight decay would move it all the same
            raise RuntimeError(f"{name} gets no gradient: check requires_grad of the samples.")
    return [loss.item() for loss in losses]


if __name__ == "__main__":
    eager, graphed = train(graphed=False), train(graphed=True)
    print("eager losses ", *(f"{loss:.4f}" for loss in eager[::10]))
    print("with graphs  ", *(f"{loss:.4f}" for loss in graphed[::10]))
    print("bitwise equal" if graphed == eager else "not bitwise equal")
