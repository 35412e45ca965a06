"""transformers' Trainer and Lightning with a graph: the losses are those without it, and what some
of the numbered lines are for.
"""

import warnings
from contextlib import suppress

import pytest
import torch

from cpu_graph import cpu_graphs
from tests.support import scripts

SMALLER = {
    "graphed_trainer": {
        "LAYERS, WIDTH = 6, 384": "LAYERS, WIDTH = 1, 12",
        "BATCH_SIZE, LENGTH = 16, 256": "BATCH_SIZE, LENGTH = 3, 6",
        "logging_steps=10": "logging_steps=1",
        "torch.use_deterministic_algorithms(True)": "pass",  # not modelled for all operators
    },
    "graphed_lightning": {
        "GPTConfig(VOCAB_SIZE)": "GPTConfig(VOCAB_SIZE, 6, n_layer=1, n_head=1, n_embd=12)",
        "BATCH_SIZE, LENGTH = 16, 256": "BATCH_SIZE, LENGTH = 3, 6",
        "torch.use_deterministic_algorithms(True)": "pass",
    },
}
PLAIN = {
    "graphed_trainer": ("Trainer", {}),
    "graphed_lightning": ("Module", {"gradient_clip_val": 1.0}),
}
GRAPHED = {"graphed_trainer": "GraphedTrainer", "graphed_lightning": "GraphedModule"}
CHANGES = [  # of a file: a line, what takes its place, and what happens
    ("graphed_trainer", "self.optimizer.zero_grad()", "pass", "silent"),
    ("graphed_trainer", 'torch.tensor(LEARNING_RATE, device="cuda")', "LEARNING_RATE", "silent"),
    ("graphed_trainer", "dataloader_drop_last=True", "dataloader_drop_last=False", "raises"),
    ("graphed_lightning", "optimizer.zero_grad()", "pass", "silent"),
    ("graphed_lightning", "self.lr_schedulers().step()", "pass", "silent"),
    ("graphed_lightning", "self.static_loss.clone()", "self.static_loss", "silent"),
]
STEPS = 6


@pytest.fixture(autouse=True)
def on_the_stand_in(monkeypatch):
    """Lightning asks for the GPU's capability, to advise on TF32."""
    with cpu_graphs() as device, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning's, on loaders and its own imports
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (9, 0))
        yield device


def names_of(file, *change):
    """The names of an example, made smaller, with a line changed."""
    pytest.importorskip("pytorch_lightning" if file == "graphed_lightning" else "transformers")
    smaller = [("16 * ", "5 * "), *SMALLER[file].items(), *([change] if change else [])]
    return scripts.names_of(file, smaller=smaller, name=file)


def losses_of(file, *change):
    names = names_of(file, *change)
    return names["train"](names[GRAPHED[file]], steps=STEPS)


@pytest.fixture(scope="module")
def plain_losses():
    """The losses of both files without a graph, made where they are first asked for."""
    found = {}

    def losses(file):
        if file not in found:
            names, (plain, options) = names_of(file), PLAIN[file]
            found[file] = names["train"](names[plain], steps=STEPS, **options)
        return found[file]

    return losses


@pytest.mark.parametrize("file", GRAPHED)
def test_the_graph_trains_as_the_plain_trainer(file, plain_losses, on_the_stand_in):
    plain = plain_losses(file)
    assert on_the_stand_in.launches["graphs"] == 0
    assert losses_of(file) == plain and len(set(plain)) == STEPS
    assert on_the_stand_in.launches["graphs"] == STEPS - 3, "all steps but the warm-up"


@pytest.mark.parametrize(("file", "line", "instead", "expected"), CHANGES)
def test_without_a_line_it_ends_otherwise(file, line, instead, expected, plain_losses):
    plain, found = plain_losses(file), "raises"
    with suppress(RuntimeError):
        losses = losses_of(file, line, instead)
        found = "same" if losses == plain else "silent"
    assert found == expected
