"""What *Change weights under live graphs* copies from and does not record: updates and adapters."""

from queue import Queue

import pytest
import torch
from torch import nn
from torch.func import functional_call

from cpu_graph import cpu_graphs
from examples.adapters import MultiLoRALinear
from tests.support.scripts import names_of


class Taker:
    """In the place of the queue of updates: the engine takes each one at once."""

    def __init__(self, take):
        self.put = take


def equal_after_each_update(*changes):
    """Whether the engine's outputs are the trainer's after each of two updates. Two streams, which
    nothing orders, stand for the two processes.
    """
    names = names_of("weight_updates", *changes)
    with cpu_graphs():
        batches = Queue()
        for _ in range(2):
            batches.put((torch.randn(32, 64), torch.randint(10, (32,))))
        batches.put(None)
        inputs = torch.randn(32, 64, device="cuda")
        model = names["build_model"]()
        engine = names["Engine"](names["build_model"](), torch.zeros_like(inputs))
        pairs = []

        def take(update):
            weights, _ = update
            with torch.no_grad():
                expected = functional_call(model, weights, inputs)
            with torch.cuda.stream(torch.cuda.default_stream()):
                engine.update(weights)
                pairs.append((expected, engine.predict(inputs)))

        torch.cuda.synchronize()
        with torch.cuda.stream(torch.cuda.Stream()):
            names["run_trainer"](batches, Taker(take))
        torch.cuda.synchronize()
        assert not torch.equal(pairs[0][0], pairs[1][0])
        return [torch.equal(expected, output) for expected, output in pairs]


def test_the_engine_computes_with_the_trainers_weights():
    assert equal_after_each_update() == [True, True]


def test_weights_that_are_not_copied_are_named():
    assigned = ("load_state_dict(weights)", "load_state_dict(weights, assign=True)")
    with pytest.raises(RuntimeError, match=r"0\.weight was replaced"):
        equal_after_each_update(assigned)


def test_each_row_uses_its_own_adapter():
    torch.manual_seed(0)
    index = torch.tensor([2, 0, 2, 1])
    layer = MultiLoRALinear(nn.Linear(6, 4, bias=False), n_adapters=3, rank=2, index=index)
    x = torch.randn(4, 3, 6)
    mixed = layer(x)
    for row, adapter in enumerate(index.tolist()):
        weight = layer.base.weight + layer.B[adapter] @ layer.A[adapter]
        torch.testing.assert_close(mixed[row], x[row] @ weight.T)
    layer.index = 1
    torch.testing.assert_close(layer(x)[3], mixed[3])
