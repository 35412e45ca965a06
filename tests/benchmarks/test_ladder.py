import pytest
import torch

from benchmarks.ladder import RUNGS, forward_and_loss, on_each, train_on
from helpers.model import make_batches, make_model, make_optimizer, training_step
from tests.support.machine import needs_gpu

SMALL = (8, 6, 4)
EXACT = [name for name in RUNGS if "compiled" not in name and "bf16" not in name]


def test_a_step_takes_the_batches_round_and_round():
    seen = []
    step = on_each([(1, 2), (3, 4)], lambda *batch: seen.append(batch), model="model")
    for _ in range(5):
        step()
    assert seen == [(1, 2), (3, 4), (1, 2), (3, 4), (1, 2)] and step.model == "model"


def test_forward_and_loss_in_one_trains_as_the_ordinary_step_does():
    losses = []
    for train in (training_step, lambda *arguments: train_on(forward_and_loss, *arguments)):
        model = make_model(SMALL, dropouts=(0.5,), device="cpu")
        optimizer = make_optimizer(model)
        torch.manual_seed(0)
        losses.append(
            [train(model, optimizer, *batch) for batch in make_batches(3, 5, SMALL, device="cpu")]
        )
    assert losses[0] == losses[1]


def ten_losses(step):
    """The rung's first ten losses, from the same random numbers."""
    torch.manual_seed(0)
    last = step().item()
    more = [loss.item() for loss in step.losses] if hasattr(step, "losses") else [last]
    return more + [step().item() for _ in range(10 - len(more))]


@pytest.fixture(scope="module")
def batches():
    torch.set_float32_matmul_precision("high")
    return make_batches(10)


@needs_gpu
@pytest.mark.parametrize("name", EXACT)
def test_a_rung_that_changes_no_arithmetic_gives_the_bits_of_eager(name, batches):
    assert ten_losses(RUNGS[name](batches)) == ten_losses(RUNGS["eager"](batches))


@needs_gpu
@pytest.mark.parametrize("name", RUNGS)
def test_without_dropout_every_rung_is_near_eager_and_trains_all_parameters(name, batches):
    step = RUNGS[name](batches, dropouts=(0.0, 0.0, 0.0))
    before = [parameter.detach().clone() for parameter in step.model.parameters()]
    expected = ten_losses(RUNGS["eager"](batches, dropouts=(0.0, 0.0, 0.0)))
    assert ten_losses(step) == pytest.approx(expected, rel=2e-2 if "bf16" in name else 1e-3)
    for old, new in zip(before, step.model.parameters(), strict=True):
        assert new.grad is not None and (old != new).any()


@needs_gpu
def test_building_a_rung_leaves_the_random_state_alone(batches):
    RUNGS["eager"](batches)
    after_eager = torch.cuda.get_rng_state()
    RUNGS["ten steps"](batches)
    assert torch.equal(torch.cuda.get_rng_state(), after_eager)
