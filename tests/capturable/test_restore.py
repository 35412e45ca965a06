"""preflight changes nothing: whatever a step does to what it can reach is put back, or named."""

import builtins
import queue
import random
import sys
from collections import Counter, OrderedDict, deque
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_map_only

from capturable import preflight
from capturable.restore import NotRestored, Restore
from capturable.restore.tensor_memory import checksums
from tests.support.machine import needs_gpu

DEVICES = ["cpu", pytest.param("cuda", marks=needs_gpu)]
counted = 0


class Slotted:
    __slots__ = ("new", "value")

    def __init__(self):
        self.value = 1


class Classy:
    total, rows = 0, []


def names(kept):
    global counted, never_bound
    counted += 1
    never_bound = 3
    kept.slotted.value, kept.slotted.new = 2, 3
    Classy.total += 1
    Classy.rows.append(1)
    kept.model.fresh = torch.ones(1)
    kept.extra = 1
    del kept.gone


def arrays(kept):
    kept.array[0] = 9
    kept.bytes[0] = 9
    kept.numpy_random.random()
    kept.python_random.random()
    kept.generator.manual_seed(3)
    random.random(), np.random.rand(), torch.rand(1)


def containers(kept):
    kept.queue.put(2)
    kept.deque.append(2)
    kept.ordered.move_to_end("a")
    kept.set.add(3)
    kept.counter["x"] += 1
    kept.nested["list"][0]["deep"] = 2
    kept.long[0] = 7


def tensors(kept):
    kept.weight.data.mul_(2)
    kept.buffer.set_(torch.ones(5))
    kept.sized.resize_(100)
    kept.frozen.requires_grad_(True)
    kept.view[0] = 5
    kept.weight.grad = torch.ones(3)
    kept.sparse.add_(kept.sparse)
    kept.replaced = torch.zeros(3)
    with torch.no_grad():
        kept.weight.add_(1)


def everything():
    kept = SimpleNamespace(
        slotted=Slotted(),
        model=nn.Linear(2, 2),
        gone=1,
        array=np.zeros(3),
        bytes=bytearray(3),
        numpy_random=np.random.default_rng(0),
        python_random=random.Random(0),
        generator=torch.Generator().manual_seed(0),
        queue=queue.Queue(),
        deque=deque([1]),
        ordered=OrderedDict(a=1, b=2),
        set={1, 2},
        counter=Counter("xy"),
        nested={"list": [{"deep": 1}]},
        long=list(range(5000)),
        weight=nn.Parameter(torch.ones(3)),
        buffer=torch.zeros(4),
        sized=torch.arange(4.0),
        frozen=torch.zeros(2),
        base=torch.zeros(4),
        sparse=torch.eye(3).to_sparse(),
        replaced=torch.ones(3),
    )
    kept.queue.put(1)
    kept.view = kept.base[:2]
    return kept


def comparable(value):
    """A value in a form that compares bit for bit, and stays as it is."""
    if isinstance(value, torch.Tensor):
        numbers = value.to_dense() if value.is_sparse else value
        return numbers.tolist(), value.requires_grad, value.grad, id(value)
    if isinstance(value, np.random.Generator):
        return str(value.bit_generator.state)
    if isinstance(value, random.Random):
        return value.getstate()
    if isinstance(value, torch.Generator):
        return value.get_state().tolist()
    if isinstance(value, nn.Module | Slotted):
        return (
            sorted(getattr(value, "__dict__", ())),
            getattr(value, "value", 0),
            hasattr(value, "new"),
        )
    return repr(getattr(value, "queue", value))


def state(kept):
    kinds = Classy.total, [*Classy.rows], counted, "never_bound" in globals()
    states = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    return {name: comparable(value) for name, value in vars(kept).items()}, kinds, states


@pytest.mark.parametrize("change", [names, arrays, containers, tensors])
@pytest.mark.parametrize("error", [None, ZeroDivisionError])
def test_everything_in_reach_is_put_back(change, error):
    kept = everything()
    before = state(kept)

    def step():
        change(kept)
        assert state(kept) != before
        if error:
            raise error

    with pytest.raises(error) if error else nullcontext(), Restore(step):
        step()
    assert state(kept) == before


def count(rows=[], *, more={"n": 0}):  # noqa: B006
    rows.append(1)
    more["n"] += 1
    count.calls += 1


count.calls = 0


class Tally:
    def inner(self):
        global counted
        counted += 1

    @staticmethod
    def outer():
        Tally().inner()
        Tally.fresh = 1


def test_what_functions_and_methods_hold_is_put_back():
    weight = nn.Parameter(torch.ones(2))
    weight.main_grad = torch.zeros(2)
    average = torch.zeros(2)
    many = {n: n for n in range(5000)}

    def step(x):
        nonlocal average
        count()
        Tally.outer()
        weight.main_grad = weight.detach() * 2
        average.add_(weight)  # now a part of the graph
        many[7] = 0
        torch.set_grad_enabled(False)

    with Restore(torch.no_grad()(step)), torch.enable_grad():
        step(None)
    assert (count.__defaults__, count.__kwdefaults__, count.calls) == (([],), {"more": {"n": 0}}, 0)
    assert counted == 0 and not hasattr(Tally, "fresh") and weight.main_grad.tolist() == [0, 0]
    assert average.is_leaf and not average.requires_grad and average.tolist() == [0, 0]
    assert many[7] == 7 and torch.is_grad_enabled()


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float64])
@pytest.mark.parametrize("size", [0, 1, 9, 5000])
def test_checksums_tell_one_order_from_another(dtype, size):
    tensor = torch.arange(size).to(dtype)
    before = checksums([tensor, tensor[1:]])
    assert before[0] == before[1] and before == checksums([tensor, tensor[1:]])
    tensor.copy_(tensor.roll(1))
    assert (checksums([tensor])[0] == before[0]) == (size < 2)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("trained", [False, True])
def test_a_training_step_leaves_no_trace(trained, device):
    """cuDNN's packed weights get their memory by set_, which once hid the optimizer's writes."""
    model = nn.ModuleList([nn.LSTM(8, 16, 2), nn.BatchNorm1d(5)]).to(device)
    optimizer = torch.optim.Adam(model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    x, losses = torch.randn(3, 5, 8, device=device), []

    def step(x):
        x.mul_(random.random())
        loss = model[1](model[0](x)[0]).square().sum()
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())

    def state():
        """All of it, and what is patched, in a form that compares bit for bit."""
        parts = [part.state_dict() for part in (model, optimizer, scheduler)]
        gradients = [parameter.grad for parameter in model.parameters()]
        kept = [parts, gradients, x, losses, random.getstate()]
        patched = torch.Tensor.cpu, torch.cuda.synchronize, builtins.open, sys.gettrace()
        return tree_map_only(torch.Tensor, lambda t: (t.tolist(), t.data_ptr()), kept), patched

    if trained:
        step(x.clone())
    before = state()
    findings = preflight(step, x, other_inputs=(x * 2,), device=device)
    assert state() == before
    assert {"CPU work", "sync", "optimizer"} <= {finding.rule for finding in findings}


def test_memory_that_only_a_library_knows_is_put_back_or_named():
    """A step that reaches a tensor by ways that cannot be followed, below any operator that is
    seen."""
    hidden = torch.zeros(4)
    secret = iter([hidden.numpy()])

    def step(x):
        nonlocal secret
        found = next(secret)
        found[0] = 1

    said = "could not put back what the step changed: the tensor hidden"
    with pytest.raises(NotRestored, match=said), Restore(step):
        step(None)


class Closed(dict):
    def clear(self):
        raise PermissionError("locked")


@pytest.mark.parametrize("fails", [False, True])
def test_if_one_thing_cannot_be_put_back_the_rest_is_and_it_is_named(fails):
    kept = SimpleNamespace(first=Closed(a=1), second=[1], weight=torch.zeros(2))

    def step():
        kept.first["b"] = 2
        kept.second.append(2)
        kept.weight += 1
        if fails:
            raise ZeroDivisionError("of the step")

    with pytest.raises(ZeroDivisionError if fails else NotRestored) as raised, Restore(step):
        step()
    said = [*getattr(raised.value, "__notes__", []), str(raised.value)][0]
    assert "could not put back" in said and "PermissionError: locked" in said
    assert kept.second == [1] and kept.weight.tolist() == [0, 0]


def test_a_dict_that_makes_a_value_at_each_look_is_left_alone():
    """As transformers keeps its activations."""

    class Making(dict):
        def __getitem__(self, key):
            return super().__getitem__(key)()

    making = Making(relu=nn.ReLU, gelu=nn.GELU)

    def step(x):
        return making["relu"](x) + making["gelu"](x)

    preflight(step, torch.ones(2), device="cpu")
    assert dict.items(making) == {"relu": nn.ReLU, "gelu": nn.GELU}.items()


@pytest.mark.filterwarnings("ignore")
def test_steps_with_uncommon_tensors_do_not_crash():
    sparse, sized = torch.eye(3).to_sparse(), torch.zeros(2)
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    jagged = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 1).eval()
    mask = torch.tensor([[False, False, True], [False, True, True]])

    def step(x):
        sparse.add_(sparse)
        sized.resize_(50).fill_(1)
        with torch.no_grad():
            return (
                encoder(x, src_key_padding_mask=mask).sum()
                + (nested * 2).to_padded_tensor(0).sum()
                + jagged.sum()
            )

    preflight(step, torch.randn(2, 3, 8), device="cpu")
    assert sparse.to_dense().tolist() == torch.eye(3).tolist() and sized.shape == (2,)


@pytest.mark.parametrize("lazy", [torch.conj, torch._neg_view])
def test_a_tensor_that_is_negated_or_conjugated_on_reading_stays_so(lazy):
    tensor = lazy(torch.randn(3, dtype=torch.complex64))
    before = tensor.clone()

    def step():
        tensor.data = torch.zeros(2, dtype=torch.complex64)

    with Restore(step):
        step()
    assert torch.equal(tensor, before)


def test_the_checks_of_distributions_are_switched_on_again():
    kind = torch.distributions.Distribution
    before = kind._validate_args
    kind.set_default_validate_args(True)
    with Restore():
        kind.set_default_validate_args(False)  # as torch.compile does
    assert kind._validate_args is True
    kind.set_default_validate_args(before)
