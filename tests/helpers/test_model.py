import pytest
import torch

from helpers.model import make_model

SMALL = (16, 12, 8, 6, 4)


def test_the_model_is_the_published_one():
    model = make_model(device="meta")
    assert [name for name, _ in model.named_children()] == ["block1", "block2", "block3", "head"]
    found = [layer.p for layer in model.modules() if isinstance(layer, torch.nn.Dropout)]
    assert found == [0.2, 0.1, 0.1]
    assert model(torch.empty(640, 4096, device="meta")).shape == (640, 256)


def test_dropouts_must_match_the_widths():
    with pytest.raises(ValueError, match="3 hidden widths need as many dropouts, not 2"):
        make_model(SMALL, dropouts=(0.1, 0.1), device="cpu")
