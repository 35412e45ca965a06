"""preflight finds nothing in steps with models of other libraries, and leaves every tensor as it
was, to the bit."""

import gc
import random

import pytest
import torch

from capturable import preflight
from tests.support.library_models import by_token, models_of
from tests.support.machine import needs_gpu

pytestmark = pytest.mark.weekly
DEVICES = ["cpu", pytest.param("cuda", marks=needs_gpu)]


def everything():
    """All tensors that are alive, their gradients and copies of them, and the random states."""
    tensors = [thing for thing in gc.get_objects() if issubclass(type(thing), torch.Tensor)]
    tensors = [
        tensor for tensor in tensors if not (tensor.is_nested or tensor.is_meta or tensor.is_sparse)
    ]
    kept = [
        (t, t.grad if t.is_leaf else None, t.requires_grad, t.data_ptr(), t.detach().clone())
        for t in tensors
    ]
    return kept, [random.getstate(), torch.get_rng_state().tolist()]


def assert_untouched(before):
    kept, states = before
    for tensor, grad, requires_grad, address, copy in kept:
        assert torch.equal(tensor.nan_to_num(), copy.nan_to_num()) and tensor.data_ptr() == address
        assert tensor.requires_grad == requires_grad and (not tensor.is_leaf or tensor.grad is grad)
    assert [random.getstate(), torch.get_rng_state().tolist()] == states


def check(step, make_batch, device):
    inputs, others = make_batch(), make_batch()
    before = everything()
    findings = preflight(step, *inputs, other_inputs=others, device=device)
    assert not findings.faults, findings
    assert_untouched(before)


def batch_of_ids(device):
    return lambda: (torch.randint(90, (2, 12), device=device),)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", ["Llama", "GPT2"])
def test_language_models_of_transformers(kind, device):
    transformers = models_of("transformers")
    sizes = {"vocab_size": 90, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    more = {"intermediate_size": 64, "bos_token_id": 0, "eos_token_id": 1}
    config = getattr(transformers, f"{kind}Config")(**sizes, **more)
    model = transformers.AutoModelForCausalLM.from_config(config).to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step(ids):
        optimizer.zero_grad()
        loss = by_token(model(input_ids=ids, use_cache=False).logits[:, :-1], ids[:, 1:])
        loss.backward()
        optimizer.step()
        return loss.detach()

    check(step, batch_of_ids(device), device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["resnet18", "vit_b_16"])
def test_vision_models_of_torchvision(name, device):
    models = models_of("torchvision.models")
    if name == "resnet18":
        model = models.resnet18(num_classes=5)
    else:  # sizes of images and patches, layers, heads, widths
        model = models.VisionTransformer(32, 8, 2, 2, 32, 64, num_classes=5)
    model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)

    def step(x, y):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    def batch():
        return torch.randn(4, 3, 32, 32, device=device), torch.arange(4, device=device)

    check(step, batch, device)
