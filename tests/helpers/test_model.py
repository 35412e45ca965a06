import gc

import pytest
import torch

from helpers.model import make_batches, make_model, make_optimizer, training_step
from tests.support.machine import needs_gpu

SMALL = (16, 12, 8, 6, 4)


def test_the_model_is_the_published_one():
    model = make_model(device="meta")
    assert [name for name, _ in model.named_children()] == ["block1", "block2", "block3", "head"]
    assert [layer.p for layer in model.modules() if isinstance(layer, torch.nn.Dropout)] == [0.2, 0.1, 0.1]
    assert model(torch.empty(640, 4096, device="meta")).shape == (640, 256)


def test_the_same_seed_gives_the_same_model_and_batches():
    first, second = make_model(SMALL, device="cpu"), make_model(SMALL, device="cpu")
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
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


@needs_gpu
def test_a_captured_step_gives_eagers_losses_to_the_bit():
    from helpers.capture import capture_step

    batches, losses = make_batches(5), {}
    for name in ("eager", "graph"):
        model = make_model()
        optimizer, start = make_optimizer(model), {k: v.clone() for k, v in model.state_dict().items()}

        def step(x, y, model=model, optimizer=optimizer):
            return training_step(model, optimizer, x, y)

        run = step if name == "eager" else capture_step(step, *[t.clone() for t in batches[0]])
        model.load_state_dict(start)
        torch.manual_seed(0)
        losses[name] = [run(*batch).item() for batch in batches]
    assert losses["graph"] == losses["eager"]
    assert len(set(losses["graph"])) == 5


@needs_gpu
def test_garbage_that_holds_a_graph_does_not_break_the_next_capture():
    """A graph freed during a capture invalidates it; so what is garbage goes before."""
    from helpers.capture import capture_step

    def add_one(x):
        gc.collect(0)  # what an unlucky allocation of Python objects does by itself
        return x + 1

    old = capture_step(lambda x: x * 2, torch.ones(4, device="cuda"))
    old.circle = old  # from here on only the garbage collector can free it
    del old
    replay = capture_step(add_one, torch.ones(4, device="cuda"))
    assert replay(torch.full((4,), 2.0, device="cuda")).tolist() == [3.0] * 4
