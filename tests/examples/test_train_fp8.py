"""The FP8 training to copy, on a small stand-in for Transformer Engine: what its function of graphs
is given, and what each numbered line is for.
"""

import sys
from contextlib import contextmanager
from types import ModuleType

import pytest
import torch
from torch import nn
from torch.nn.functional import linear

from cpu_graph import cpu_graphs
from exercises.answers.graph_use import watch
from tests.support.scripts import ending, names_of, numbered_lines

CHANGES = [  # a text, what takes its place, and what happens
    ("x.clone().requires_grad_(number > 0)", "x.clone()", "silent"),
    ("te.make_graphed_callables", "torch.cuda.make_graphed_callables", "raises"),
    ("te.autocast(recipe=RECIPE)", "__import__('contextlib').nullcontext()", "silent"),
    ("is_first_microbatch=number == 0", "is_first_microbatch=not losses", "silent"),
]
updated = {}  # the layers whose scales an autocast's exit updates, in order
depth = 0


class TransformerLayer(nn.Module):
    """A linear layer with the state of an FP8 layer: a scale from the step before, and weights that
    are rounded in the first microbatch alone.
    """

    def __init__(self, n_embd, *_, **options):
        super().__init__()
        weight = torch.randn(n_embd, n_embd, device="cuda") / n_embd
        self.weight = nn.Parameter(weight)
        self.register_buffer("rounded", weight.clone())
        self.register_buffer("skip", torch.zeros((), dtype=torch.bool, device="cuda"))
        for name in ("scale", "amax"):
            self.register_buffer(name, torch.ones((), device="cuda"))

    def forward(self, x, is_first_microbatch=None):
        if depth:
            updated[self] = None
        if is_first_microbatch is not None:
            self.skip.fill_(not is_first_microbatch)
        with torch.no_grad():
            self.amax.copy_(x.abs().max())
            self.rounded.copy_(
                torch.where(self.skip, self.rounded, (64 * self.weight).round() / 64)
            )
        scaled = x * self.scale.clone()  # which is updated before the backward pass
        return x + linear(scaled, self.weight + (self.rounded - self.weight).detach())


@contextmanager
def autocast(recipe):
    global depth
    depth += 1
    yield
    depth -= 1
    with torch.no_grad():
        for layer in updated:
            layer.scale.copy_(1 / (1 + layer.amax))


def make_graphed_callables(modules, sample_args, *, enabled, recipe, cache_quantized_params):
    assert enabled and recipe and cache_quantized_params
    torch.cuda.make_graphed_callables(modules, sample_args)
    for module in modules:
        module.weight.register_hook(torch.clone)  # as clone_param_grads_on_return
        module.forward = _cached(module, module.forward)


def _cached(module, replay):
    def forward(x, is_first_microbatch):
        if depth:
            updated[module] = None
        module.skip.fill_(not is_first_microbatch)
        return replay(x)

    return forward


@pytest.fixture(autouse=True)
def transformer_engine(monkeypatch):
    """The package, as far as the examples use it."""
    package, pytorch, common, recipe = (ModuleType(name) for name in "abcd")
    package.pytorch, package.common = pytorch, common
    common.recipe = recipe
    pytorch.TransformerLayer, pytorch.autocast = TransformerLayer, autocast
    pytorch.make_graphed_callables = make_graphed_callables
    recipe.DelayedScaling, recipe.Recipe = object, object
    for name, module in {
        "transformer_engine": package,
        "transformer_engine.pytorch": pytorch,
        "transformer_engine.common": common,
        "transformer_engine.common.recipe": recipe,
    }.items():
        monkeypatch.setitem(sys.modules, name, module)
    for name in ("NVTE_FLASH_ATTN", "NVTE_FUSED_ATTN"):
        monkeypatch.setenv(name, "0")
    updated.clear()
    with cpu_graphs():
        yield pytorch


def training(*changes):
    smaller = [
        ("= 128, 4", "= 3, 2"),
        ("N_EMBD, N_LAYER = 512", "N_EMBD, N_LAYER = 8"),
        ("torch.bfloat16", "torch.float32"),
    ]
    return names_of("train_fp8", *changes, smaller=smaller)["train"]


def test_graphs_train_as_eager():
    losses = training()(graphed=False, steps=3)
    assert training()(graphed=True, steps=3) == losses
    assert len(set(losses)) == 6


def test_every_micro_batch_replays_two_graphs_of_each_layer():
    train = training()
    with watch() as seen:
        train(graphed=True, steps=2)
    assert len(seen.captured) == 4 and len(seen.replayed) == 2 * 2 * 4


@pytest.mark.parametrize(("line", "instead", "kind"), CHANGES)
def test_what_is_changed_is_noticed_or_silent(line, instead, kind):
    right = training()(graphed=True, steps=3)
    updated.clear()
    train = training((line, instead))
    assert ending(lambda: train(graphed=True, steps=3), right, TypeError) == kind


def test_all_numbered_lines_are_in_order():
    assert numbered_lines("train_fp8") == ["1", "2", "3", "4"]
