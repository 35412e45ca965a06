"""Train a small classifier: a script as many people have it. Saves train_mlp.pt.

    python train_mlp_eager.py            ten epochs
    python train_mlp_eager.py --resume   goes on from train_mlp.pt, after --stop 5, for example
    python train_mlp_eager.py --quick    two epochs, a narrow model

train_mlp.py is the same script with a CUDA graph.
"""

from argparse import ArgumentParser, Namespace

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LRScheduler
from torch.utils.data import DataLoader, TensorDataset, random_split


def make_loaders() -> tuple[DataLoader, DataLoader]:
    """Batches of 64 to train on, and one batch to evaluate."""
    inputs = torch.randn(5_000, 64)
    targets = inputs[:, :8].argmax(dim=1)  # which of the first 8 numbers is the largest
    train_set, valid_set = random_split(TensorDataset(inputs, targets), [4_500, 500])
    train_loader = DataLoader(train_set, batch_size=64, shuffle=True)
    return train_loader, DataLoader(valid_set, batch_size=500)


def make_model(width: int) -> nn.Module:
    """64 numbers to the logits of 8 classes."""
    layers = [nn.Linear(64, width), nn.ReLU(), nn.Dropout(0.1)]
    layers += [nn.Linear(width, width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, 8)]
    return nn.Sequential(*layers).cuda()


def evaluate_accuracy(model: nn.Module, loader: DataLoader) -> float:
    """The share of right answers."""
    model.eval()
    with torch.no_grad():
        right = [(model(x.cuda()).argmax(1) == y.cuda()).float().mean() for x, y in loader]
    model.train()
    return torch.stack(right).mean().item()


def save_checkpoint(
    model: nn.Module, optimizer: torch.optim.Optimizer, scheduler: LRScheduler, epoch: int
) -> None:
    """Save what a training needs to go on from this epoch."""
    parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
    checkpoint = {name: part.state_dict() for name, part in parts.items()}
    torch.save(checkpoint | {"epoch": epoch}, "train_mlp.pt")


def load_checkpoint(
    model: nn.Module, optimizer: torch.optim.Optimizer, scheduler: LRScheduler
) -> int:
    """Go on from train_mlp.pt, before the first step. Returns the next epoch."""
    checkpoint = torch.load("train_mlp.pt", map_location="cpu", weights_only=True)
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    scheduler.load_state_dict(checkpoint["scheduler"])
    return checkpoint["epoch"]


def parse_args(argv: list[str] | None) -> Namespace:
    """The command line."""
    parser = ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="a narrow model, two epochs")
    parser.add_argument("--stop", type=int, help="end after so many epochs")
    parser.add_argument("--resume", action="store_true", help="go on from train_mlp.pt")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> list[float]:
    """Train, and return the loss of every step."""
    args = parse_args(argv)
    epochs, width = (2, 64) if args.quick else (10, 1024)

    torch.manual_seed(0)
    train_loader, valid_loader = make_loaders()
    model = make_model(width)
    rate = 1e-3
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, fused=True)
    steps = epochs * len(train_loader)
    scheduler = CosineAnnealingLR(optimizer, T_max=steps)

    def train_step(inputs, targets):
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = F.cross_entropy(model(inputs), targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    losses = []
    start = load_checkpoint(model, optimizer, scheduler) if args.resume else 0
    for epoch in range(start, args.stop or epochs):
        torch.manual_seed(epoch)  # a training that is resumed draws the same numbers
        for inputs, targets in train_loader:
            losses.append(train_step(inputs.cuda(), targets.cuda()))
            scheduler.step()
            if len(losses) % 50 == 0:
                lr = scheduler.get_last_lr()[0]
                print(f"step {len(losses)}: loss {sum(losses[-50:]) / 50:.4f}, lr {lr:.6f}")
        print(f"epoch {epoch}: accuracy {evaluate_accuracy(model, valid_loader):.3f}")
        save_checkpoint(model, optimizer, scheduler, epoch + 1)
    return [float(loss) for loss in losses]


if __name__ == "__main__":
    main()
