"""The FP8 training to copy, on a small stand-in for Transformer Engine: what its function of graphs
is given. What its lines are for, *Transformer Engine's graphs* records.
"""

import sys
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn.functional import linear

from cpu_graph import cpu_graphs
from exercises.answers.graph_use import watch_graphs
from tests.support.scripts import names_of

asked = []  # is_first_microbatch of each eager call


class TransformerLayer(nn.Module):
    """A linear layer with weights that are rounded in the first microbatch alone."""

    def __init__(self, n_embd, *_, **options):
        super().__init__()
        weight = torch.randn(n_embd, n_embd, device="cuda") / n_embd
        self.weight = nn.Parameter(weight)
        self.register_buffer("rounded", weight.clone())
        self.register_buffer("skip", torch.zeros((), dtype=torch.bool, device="cuda"))

    def forward(self, x, is_first_microbatch=None):
        if is_first_microbatch is not None:
            asked.append(is_first_microbatch)
            self.skip.fill_(not is_first_microbatch)
        with torch.no_grad():
            new = (64 * self.weight).round() / 64
            self.rounded.copy_(torch.where(self.skip, self.rounded, new))
        return x + linear(x, self.weight + (self.rounded - self.weight).detach())


def make_graphed_callables(modules, sample_args, *, enabled, recipe, cache_quantized_params):
    assert enabled and recipe and cache_quantized_params
    torch.cuda.make_graphed_callables(modules, sample_args)
    for module in modules:
        module.weight.register_hook(torch.clone)  # as clone_param_grads_on_return
        module.forward = partial(_cached, module, module.forward)


def _cached(module, replay, x, is_first_microbatch):
    module.skip.fill_(not is_first_microbatch)
    return replay(x)


@pytest.fixture(autouse=True)
def transformer_engine(monkeypatch):
    """The package, as far as the examples use it."""
    recipe = SimpleNamespace(DelayedScaling=object)
    pytorch = SimpleNamespace(
        TransformerLayer=TransformerLayer,
        autocast=lambda recipe: nullcontext(),
        make_graphed_callables=make_graphed_callables,
    )
    package = SimpleNamespace(pytorch=pytorch, common=SimpleNamespace(recipe=recipe))
    monkeypatch.setitem(sys.modules, "transformer_engine", package)
    monkeypatch.setitem(sys.modules, "transformer_engine.pytorch", pytorch)
    monkeypatch.setitem(sys.modules, "transformer_engine.common", package.common)
    monkeypatch.setitem(sys.modules, "transformer_engine.common.recipe", recipe)
    with cpu_graphs():
        yield


def training():
    smaller = [
        ("= 128, 4", "= 3, 2"),
        ("N_EMBD, N_LAYER = 512", "N_EMBD, N_LAYER = 8"),
        ("torch.bfloat16", "torch.float32"),
    ]
    return names_of("train_fp8", smaller=smaller)["train"]


def test_graphs_train_as_eager():
    asked.clear()
    losses = training()(graphed=False, steps=3)
    assert asked == [True, True, False, False] * 3, "of two layers"
    assert training()(graphed=True, steps=3) == losses
    assert len(set(losses)) == 6


def test_every_micro_batch_replays_two_graphs_of_each_layer():
    train = training()
    with watch_graphs() as seen:
        train(graphed=True, steps=2)
    assert len(seen.captured) == 4 and len(seen.replayed) == 2 * 2 * 4
