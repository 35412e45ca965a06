import pytest
import torch

from helpers.model import make_batches, make_model, make_optimizer, training_step

SMALL = (16, 12, 8, 6, 4)


def test_the_model_is_the_published_one():
    model = make_model(device="meta")
    assert [name for name, _ in model.named_children()] == ["block1", "block2", "block3", "head"]
    found = [layer.p for layer in model.modules() if isinstance(layer, torch.nn.Dropout)]
    assert found == [0.2, 0.1, 0.1]
    assert model(torch.empty(640, 4096, device="meta")).shape == (640, 256)


def test_the_same_seed_gives_the_same_model_and_batches():
    first, second = make_model(SMALL, device="cpu"), make_model(SMALL, device="cpu")
    assert all(
        torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True)
    )
    (x, y), (x2, _) = make_batches(2, 5, SMALL, "cpu")
    assert x.shape == (5, 16) and y.shape == (5, 4) and not torch.equal(x, x2)
    assert torch.equal(x, make_batches(1, 5, SMALL, "cpu")[0][0])


def test_a_step_trains_every_parameter():
    model = make_model(SMALL, device="cpu")
    before = [p.clone() for p in model.parameters()]
    loss = training_step(model, make_optimizer(model), *make_batches(1, 64, SMALL, "cpu")[0])
    assert loss.ndim == 0 and not loss.requires_grad
    assert all((old != new).any() for old, new in zip(before, model.parameters(), strict=True))


def test_dropouts_must_match_the_widths():
    with pytest.raises(ValueError, match="3 hidden widths need as many dropouts, not 2"):
        make_model(SMALL, dropouts=(0.1, 0.1), device="cpu")
