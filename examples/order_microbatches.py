"""Graphs of a pipeline's microbatches by Transformer Engine:  python examples/order_microbatches.py

Needs a GPU with FP8 and `pip install "transformer_engine[pytorch]"`. Both chunks of the model are
on one GPU. Copy graph_chunks and the schedule; replay in the order of the capture.
"""

import os
from contextlib import nullcontext

import torch
from torch import Tensor, nn

os.environ |= {"NVTE_FLASH_ATTN": "0", "NVTE_FUSED_ATTN": "0"}  # the same bits in every run

import transformer_engine.pytorch as te
from transformer_engine.common.recipe import DelayedScaling, Recipe

N_EMBD = 512
INTERLEAVED = [1, 2, 1, 2, 1, 2, -2, -1, -2, -1, -2, -1]  # three microbatches in flight
ONE_IN_FLIGHT = [1, 2, -2, -1, 1, 2, -2, -1, 1, 2, -2, -1]
PASSES = [(chunk, microbatch) for chunk in (1, 2) for microbatch in range(3)]


def make_chunks() -> nn.ModuleList:
    """Two chunks of one layer each."""
    torch.manual_seed(0)
    options = {"hidden_dropout": 0.0, "attention_dropout": 0.0, "params_dtype": torch.bfloat16}
    sizes = (N_EMBD, 4 * N_EMBD, N_EMBD // 64)
    return nn.ModuleList(te.TransformerLayer(*sizes, **options) for _ in range(2))


def graph_chunks(chunks: nn.ModuleList, x: Tensor, order: list, recipe: Recipe | None) -> dict:
    """A graphed layer for each (chunk, microbatch), captured in this order."""
    samples = [(x.clone().requires_grad_(chunk == 2),) for chunk, _ in PASSES]  # a tensor for each
    options = {"enabled": recipe is not None, "recipe": recipe, "_order": order}
    layers = te.make_graphed_callables(tuple(chunks), tuple(samples), **options)
    return dict(zip(PASSES, layers, strict=True))


def run(layers: dict, batches: list[Tensor], order: list, recipe: Recipe | None) -> None:
    """Run the microbatches forward and backward in this order; gradients add up."""
    hidden: dict[int, Tensor] = {}
    received: dict[int, Tensor] = {}
    outputs: dict[int, Tensor] = {}
    for position, entry in enumerate(order):
        microbatch = order[:position].count(entry)
        # An autocast for each forward pass: a module may run only once inside one.
        with te.autocast(recipe=recipe) if recipe and entry > 0 else nullcontext():
            if entry == 1:
                hidden[microbatch] = layers[1, microbatch](batches[microbatch])
            elif entry == 2:
                received[microbatch] = hidden[microbatch].detach().requires_grad_()
                outputs[microbatch] = layers[2, microbatch](received[microbatch])
            elif entry == -2:
                outputs[microbatch].float().square().mean().backward()
            else:
                hidden[microbatch].backward(received[microbatch].grad)


def measure_gradient_error(captured: list, recipe: Recipe | None = None) -> float:
    """How far the gradients of INTERLEAVED are from eager: the norm of the difference over the
    norm of the eager gradient.
    """
    torch.manual_seed(1)
    shape = (128, 4, N_EMBD)  # (time, batch, n_embd)
    batches = [torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(3)]
    eager, graphed = make_chunks(), make_chunks()
    eager_layers = {(chunk, microbatch): eager[chunk - 1] for chunk, microbatch in PASSES}
    run(eager_layers, batches, INTERLEAVED, recipe)
    run(graph_chunks(graphed, batches[0], captured, recipe), batches, INTERLEAVED, recipe)
    right, found = (
        torch.cat([weight.grad.flatten() for weight in model.parameters()]).float()
        for model in (eager, graphed)
    )
    return ((right - found).norm() / right.norm()).item()


def main() -> list[float]:
    """Print the three differences, and return them."""
    found = [
        measure_gradient_error(INTERLEAVED),
        measure_gradient_error(INTERLEAVED, DelayedScaling()),
        measure_gradient_error(ONE_IN_FLIGHT),
    ]
    names = ("bf16", "FP8", "bf16, captured with one in flight")
    for name, one in zip(names, found, strict=True):
        print(f"{name}: {one}")
    return found


if __name__ == "__main__":
    main()
