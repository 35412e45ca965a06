"""The augmentation to copy: a graph trains as eager, and what its numbered lines are for."""

import pytest
import torch

from cpu_graph import cpu_graphs
from examples import augment_in_graph
from tests.support.scripts import names_of

SIZES = {"BATCH_SIZE": 4, "SIZE": 6, "CROP": 4, "CLASSES": 3}


@pytest.fixture(autouse=True)
def stand_in(monkeypatch):
    for name, size in SIZES.items():
        monkeypatch.setattr(augment_in_graph, name, size)
    with cpu_graphs():
        yield


def test_the_graph_trains_as_eager():
    eager = augment_in_graph.train(graphed=False, steps=5)
    assert augment_in_graph.train(graphed=True, steps=5) == eager
    assert len(set(eager)) == 5


def test_each_image_is_cropped_and_mirrored_by_itself():
    images = torch.arange(1000 * 36.0, device="cuda").view(1000, 1, 6, 6)
    crops = augment_in_graph.augment(images)
    assert crops.shape == (1000, 1, 4, 4)
    found = set()
    for number, crop in enumerate(crops.flatten(1).tolist()):
        found.add((crop[0] - 36 * number, crop[1] - crop[0], crop[4] - crop[0]))
    corners = {(6 * top + left, 1, 6) for top in range(3) for left in range(3)}
    mirrored = {(6 * top + left + 3, -1, 6) for top in range(3) for left in range(3)}
    assert found == corners | mirrored


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "top = torch.randint(0, SIZE - CROP + 1, shape, device=images.device)",
            "top = random.randint(0, SIZE - CROP)",
        ),
        ("torch.cuda.set_rng_state(rng_state)", "pass"),
        ("weight.copy_(old)", "pass"),
        ("lam.fill_(random.betavariate(1.0, 1.0))", "lam = torch.rand(()).cuda()"),
    ],
)
def test_with_one_line_changed_the_graph_trains_otherwise(old, new):
    names = names_of("augment_in_graph", (old, new))
    names.update(SIZES)
    train = names["train"]
    assert train(graphed=True, steps=5) != train(graphed=False, steps=5)
