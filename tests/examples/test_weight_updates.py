"""What Change weights under live graphs copies from: new weights, adapters, rollouts, addresses."""

import pytest
import torch
from torch import nn

from cpu_graph import cpu_graphs
from examples import small_llama
from examples.adapters import LoRALinear
from examples.address_range import AddressRange, move_weights
from examples.rollouts import NEWLINE, Rollouts, rewards_of, train_step
from examples.weight_updates import fine_tuned, write_weights


def test_new_weights_are_the_same_bits_each_time_and_others_than_the_models():
    model, _ = small_llama.load("drafter")
    first, second = fine_tuned(model), fine_tuned(model)
    old = model.state_dict()
    assert first.keys() == old.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    changed = {name for name in first if not torch.equal(first[name], old[name])}
    assert changed == {name for name, _ in model.named_parameters()}


def test_the_other_process_writes_every_weight_in_place(monkeypatch):
    monkeypatch.setattr("examples.weight_updates.PAUSE_S", 0)
    with cpu_graphs():
        model, _ = small_llama.load("model", "cuda")
        new = fine_tuned(model)
        shared = {name: weight.detach() for name, weight in model.named_parameters()}
        write_weights(0, shared)
        assert not shared, "what the process holds at its end is never freed"
        assert all(torch.equal(w, new[name]) for name, w in model.named_parameters())


def test_each_row_uses_its_own_adapter():
    torch.manual_seed(0)
    index = torch.tensor([2, 0, 2, 1])
    layer = LoRALinear(nn.Linear(6, 4, bias=False), n_adapters=3, rank=2, index=index)
    x = torch.randn(4, 3, 6)
    mixed = layer(x)
    for row, adapter in enumerate(index.tolist()):
        weight = layer.base.weight + layer.B[adapter] @ layer.A[adapter]
        torch.testing.assert_close(mixed[row], x[row] @ weight.T)
    layer.index = 1
    torch.testing.assert_close(layer(x)[3], mixed[3])


def test_a_reward_is_the_share_of_capitals_and_a_step_of_training_returns_its_mean():
    text = torch.tensor([[NEWLINE, *b"ABcd"], [NEWLINE, *b"a Z\n"]])
    assert rewards_of(text).tolist() == [0.5, 0.25]
    policy, config = small_llama.load("drafter")
    before = policy.embedding.weight.clone()
    optimizer = torch.optim.SGD(policy.requires_grad_(True).parameters(), lr=0.1)
    assert train_step(policy, config, optimizer, text) == pytest.approx(0.375)
    assert not torch.equal(policy.embedding.weight, before)


def test_a_seed_repeats_its_rollouts():
    model, config = small_llama.load("drafter")
    rollouts = Rollouts(model, config, rows=2, device="cpu")
    texts = [rollouts.write(rollouts.step, seed, n_tokens=5) for seed in (1, 2, 1)]
    assert texts[0].shape == (2, 6) and (texts[0][:, 0] == NEWLINE).all()
    assert torch.equal(texts[0], texts[2]) and not torch.equal(texts[0], texts[1])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_addresses_outlive_their_memory():
    free = torch.cuda.mem_get_info()[0]
    memory = AddressRange(2**26 - 5)
    assert memory.n_bytes == 2**26
    memory.give_back()
    assert torch.cuda.mem_get_info()[0] >= free
    memory.take()
    values = torch.as_tensor(memory, device="cuda")
    assert values.data_ptr() == memory.address
    assert values.fill_(7).sum() == 7 * 2**26
    memory.give_back()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_moved_weights_are_the_same_values():
    layer = nn.Linear(33, 5, device="cuda", dtype=torch.bfloat16).requires_grad_(False)
    before = [weight.clone() for weight in layer.parameters()]
    memory = move_weights(layer)
    for weight, value in zip(layer.parameters(), before, strict=True):
        assert torch.equal(weight, value)
        assert memory.address <= weight.data_ptr() < memory.address + memory.n_bytes
    del layer, weight
    memory.give_back()
