"""The training of train_mlp.py, one step a call, eager and with its graph, to compare the two:

python -m capturable compare examples/mlp_step.py:make_eager_step \
    examples/mlp_step.py:make_graphed_step
"""

from collections.abc import Callable
from itertools import islice

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR

from examples.train_mlp import GraphedStep, make_loaders, make_model


def make_eager_step(graph: Callable = lambda step: step) -> tuple:
    """A step with its scheduler, and four batches."""
    train_loader, _ = make_loaders()
    model = make_model(width=64)
    rate = torch.tensor(1e-3, device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, capturable=True, fused=True)
    scheduler = CosineAnnealingLR(optimizer, T_max=100)

    @graph
    def train_step(inputs, targets):
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = F.cross_entropy(model(inputs), targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    def step(inputs, targets):
        loss = train_step(inputs, targets)
        scheduler.step()
        return loss

    batches = [(inputs.cuda(), targets.cuda()) for inputs, targets in islice(train_loader, 4)]
    return step, *batches


def make_graphed_step() -> tuple:
    """The same with the step in a graph."""
    return make_eager_step(GraphedStep)
