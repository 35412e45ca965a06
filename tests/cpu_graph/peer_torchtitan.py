"""torchtitan's wrapper of a training step in a graph, which its own tests replace by a mock.

`python -m tests.cpu_graph.peers torchtitan <path of the checkout>` runs these.
"""

import pytest
import torch
from torch import nn
from torchtitan.distributed import cudagraph

STEPS = 4


def losses_and_weights(wrap):
    torch.manual_seed(0)
    model = nn.Linear(8, 4).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def forward_backward(inputs, labels, valid_tokens, extra):
        logits = model(inputs) * extra["scale"]
        loss = nn.functional.cross_entropy(logits, labels, reduction="sum") / valid_tokens
        loss.backward()
        return loss.detach()

    step, losses = wrap(forward_backward), []
    for seed in range(STEPS):
        generator = torch.Generator().manual_seed(seed)
        inputs = torch.randn(16, 8, generator=generator).cuda()
        labels = torch.randint(4, (16,), generator=generator).cuda()
        scale = torch.full((), 1.0 + seed).cuda()
        losses.append(step(inputs, labels, torch.tensor(16.0).cuda(), {"scale": scale}).item())
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
    return losses, [weight.tolist() for weight in model.parameters()]


@pytest.fixture(autouse=True)
def torn_down(monkeypatch):
    monkeypatch.setattr(cudagraph.utils, "device_type", "cuda")
    yield
    cudagraph.cudagraph_teardown()


def test_a_wrapped_training_step_trains_as_eager():
    eager = losses_and_weights(lambda step: step)
    assert losses_and_weights(cudagraph.wrap_with_cuda_graph) == eager


def test_inputs_are_copied_and_static_ones_are_not():
    weight = torch.ones(4, device="cuda")
    wrapper = cudagraph.CUDAGraphWrapper(
        lambda x, w: x * w, [torch.zeros(4, device="cuda"), weight], (1,), True
    )
    results = []
    for value in range(STEPS):
        weight.fill_(value)
        results.append(wrapper(torch.full((4,), 2.0, device="cuda"), weight)[0].item())
    assert results == [0, 2, 4, 6]
    with pytest.raises(AssertionError, match="same static tensor address"):
        wrapper(torch.zeros(4, device="cuda"), weight.clone())


def test_a_result_is_overwritten_by_the_next_replay():
    wrapper = cudagraph.CUDAGraphWrapper(lambda x: x + 1, [torch.zeros(2, device="cuda")])
    _, kept, new = (wrapper(torch.full((2,), float(n), device="cuda")) for n in range(3))
    assert kept is new
    assert kept.tolist() == [3, 3]


def test_a_step_that_reads_a_value_is_refused():
    wrapper = cudagraph.CUDAGraphWrapper(lambda x: x * x.item(), [torch.ones((), device="cuda")])
    wrapper(torch.ones((), device="cuda"))
    with pytest.raises(RuntimeError, match="captur"):
        wrapper(torch.ones((), device="cuda"))
