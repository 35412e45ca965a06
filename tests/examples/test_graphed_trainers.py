"""transformers' Trainer and Lightning with a graph: the losses are those without it."""

import warnings

import pytest
import torch

from cpu_graph import cpu_graphs
from tests.support.scripts import names_of

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
STEPS = 6


@pytest.fixture(autouse=True)
def on_the_stand_in(monkeypatch):
    """Lightning asks for the GPU's capability, to advise on TF32."""
    with cpu_graphs() as device, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning's, on loaders and its own imports
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (9, 0))
        yield device


@pytest.mark.parametrize("file", GRAPHED)
def test_the_graph_trains_as_the_plain_trainer(file, on_the_stand_in):
    pytest.importorskip("pytorch_lightning" if file == "graphed_lightning" else "transformers")
    names = names_of(file, smaller=[("16 * ", "5 * "), *SMALLER[file].items()], name=file)
    kind, options = PLAIN[file]
    plain = names["train"](names[kind], steps=STEPS, **options)
    assert on_the_stand_in.launches["graphs"] == 0 and len(set(plain)) == STEPS
    assert names["train"](names[GRAPHED[file]], steps=STEPS) == plain
    assert on_the_stand_in.launches["graphs"] == STEPS - 3, "all steps but the warm-up"
