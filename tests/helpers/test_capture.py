"""capture_step, and unchanged: what a warm-up changes is restored in place."""

import gc
from functools import partial

import pytest
import torch
from torch import nn

from cpu_graph import cpu_graphs
from helpers.capture import capture_step, unchanged

OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1),
    "SGD with momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.1, amsgrad=True),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=torch.tensor(0.1), capturable=False, foreach=False),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.1, momentum=0.5, centered=True),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1, initial_accumulator_value=0.5),
    "Adadelta": lambda p: torch.optim.Adadelta(p),
    "Adamax": lambda p: torch.optim.Adamax(p),
    "RAdam": lambda p: torch.optim.RAdam(p),
}


def training(make_optimizer):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 1))
    optimizer = make_optimizer(model.parameters())

    def step():
        optimizer.zero_grad()
        loss = model(torch.randn(8, 4)).square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    return model, optimizer, step


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("steps_before", [0, 2])
def test_training_goes_on_as_if_the_block_had_not_been(name, steps_before):
    """Bit for bit, with optimizer state from before and with state that the block creates."""
    expected = [step() for step in [training(OPTIMIZERS[name])[2]] for _ in range(steps_before + 5)]
    model, optimizer, step = training(OPTIMIZERS[name])
    losses = [step() for _ in range(steps_before)]
    with unchanged(model, optimizer):
        for _ in range(3):
            step()
    assert losses + [step() for _ in range(5)] == expected


def test_everything_stays_at_its_address():
    model, optimizer, step = training(OPTIMIZERS["Adam"])

    def addresses():
        held = [model.state_dict(), *optimizer.state.values()]
        return [tensor.data_ptr() for state in held for tensor in state.values()]

    with unchanged(model, optimizer):
        step()
        inside = addresses()
    assert addresses() == inside
    assert all((value == 0).all() for state in optimizer.state.values() for value in state.values())


def test_gradients_that_exist_tensors_scalers_and_generators_come_back():
    model, _, _ = training(OPTIMIZERS["SGD"])
    model[0].weight.grad = torch.ones(4, 4)
    generator, counter = torch.Generator().manual_seed(5), torch.tensor(7)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    scaler.scale(torch.ones(1))
    first = torch.rand(1, generator=generator.clone_state()).item()
    with unchanged(model, counter, scaler, generators=[generator]):
        model[0].weight.grad += 1
        counter += 1
        scaler.update(2.0)
        torch.rand(3, generator=generator)
    assert (model[0].weight.grad == 1).all() and counter == 7 and scaler.get_scale() == 8
    assert torch.rand(1, generator=generator).item() == first


@pytest.mark.parametrize("name", ["NAdam", "ASGD", "Rprop", "SGD with dampening"])
def test_an_optimizer_that_does_not_start_from_zeros_is_refused_until_it_has_a_state(name):
    damped = partial(torch.optim.SGD, momentum=0.9, dampening=0.5)
    new = damped if name == "SGD with dampening" else getattr(torch.optim, name)
    model, optimizer, step = training(new)
    said = f"{name} does not start from zeros: take one step of it first."
    with pytest.raises(TypeError, match=said), unchanged(optimizer):
        pass
    step()
    with unchanged(model, optimizer):
        step()


def test_other_things_are_refused_by_name():
    said = "unchanged takes modules, optimizers, GradScalers and tensors, not a list"
    with pytest.raises(TypeError, match=said), unchanged([]):
        pass


@pytest.fixture
def collector():
    """Whatever a test does to the garbage collector ends with it."""
    enabled, thresholds = gc.isenabled(), gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    (gc.enable if enabled else gc.disable)()


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("fails", [True, False])
def test_the_garbage_collector_pauses_for_the_capture_only(collector, enabled, fails):
    states = []

    def step(x):
        states.append(gc.isenabled())
        x = x + 1
        if fails and len(states) == 3:
            raise ZeroDivisionError
        return x

    (gc.enable if enabled else gc.disable)()
    with cpu_graphs():
        x = torch.ones(1, device="cuda")
        if fails:
            with pytest.raises(ZeroDivisionError):
                capture_step(step, x, warmup=2)
        else:
            capture_step(step, x, warmup=2)
    assert states == [enabled, enabled, False]
    assert gc.isenabled() == enabled
