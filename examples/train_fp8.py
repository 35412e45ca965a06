"""Train Transformer Engine's layers in FP8, in graphs:  python examples/train_fp8.py

Needs a GPU with FP8 and `pip install "transformer_engine[pytorch]"`. `--no-graph` trains without
graphs, for comparison. To use it at work, copy graph_layers and the numbered lines.
"""

from argparse import ArgumentParser, BooleanOptionalAction

import torch
import transformer_engine.pytorch as te
from torch import Tensor, nn
from transformer_engine.common.recipe import DelayedScaling

TIME, MICRO_BATCH = 128, 4
N_EMBD, N_LAYER = 512, 2
GRADIENT_ACCUMULATION_STEPS = 2
RECIPE = DelayedScaling()


def make_layers() -> nn.ModuleList:
    """Layers in bfloat16, without dropout."""
    torch.manual_seed(0)
    options = {"hidden_dropout": 0.0, "attention_dropout": 0.0, "params_dtype": torch.bfloat16}
    sizes = (N_EMBD, 4 * N_EMBD, N_EMBD // 64)  # the last one: heads
    return nn.ModuleList(te.TransformerLayer(*sizes, **options) for _ in range(N_LAYER))


def graph_layers(layers: nn.ModuleList, x: Tensor) -> None:
    """Graph each layer for training; x: a micro-batch of the shape and dtype to train on."""
    # 1. A sample of its own for each layer; only the first one's input requires no gradient.
    samples = [(x.clone().requires_grad_(number > 0),) for number in range(len(layers))]
    options = {"enabled": True, "recipe": RECIPE, "cache_quantized_params": True}
    te.make_graphed_callables(tuple(layers), tuple(samples), **options)  # 2. not torch's function


def train(graphed: bool, steps: int = 20) -> list[float]:
    """Train new layers on random micro-batches, and return the loss of each."""
    layers = make_layers()
    optimizer = torch.optim.AdamW(layers.parameters(), lr=1e-3, fused=True)
    shape = (TIME, MICRO_BATCH, N_EMBD)
    if graphed:
        graph_layers(layers, torch.randn(shape, device="cuda", dtype=torch.bfloat16))

    torch.manual_seed(1)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        for number in range(GRADIENT_ACCUMULATION_STEPS):
            x = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
            with te.autocast(recipe=RECIPE):  # 3. around the replays too, once per micro-batch
                for layer in layers:
                    x = layer(x, is_first_microbatch=number == 0)  # 4. after each optimizer step
            loss = x.float().square().mean()
            (loss / GRADIENT_ACCUMULATION_STEPS).backward()
            losses.append(loss.detach())
        optimizer.step()
    return [loss.item() for loss in losses]


if __name__ == "__main__":
    parser = ArgumentParser(description="Train in FP8, with graphs or without.")
    parser.add_argument("--graph", action=BooleanOptionalAction, default=True)
    losses = train(parser.parse_args().graph)
    print(*(f"{loss:.6f}" for loss in losses[::4]))
