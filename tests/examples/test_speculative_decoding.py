"""Speculative decoding writes the text of plain decoding, unless a numbered line is left out."""

import copy

import pytest
import torch

from cpu_graph import cpu_graphs
from examples import small_llama, speculative_decoding
from examples.decoder import Config, Decoder
from tests.support.scripts import names_of

TINY = Config(
    n_layers=1, dim=32, n_heads=2, n_kv_heads=1, hidden_dim=32, vocab_size=128, max_seq_len=96
)
LEFT_OUT = {  # a numbered line, and the line in its place
    "1": (
        "positions = torch.cat((state.input_pos - 1, state.input_pos), dim=1)",
        "positions = state.input_pos",
    ),
    "2": (
        "state.text.scatter_(1, positions, choices)",
        "state.text.scatter_(1, positions[:, :-1], drafts)",
    ),
    "3": (".cumprod(dim=1)", ""),
}


@pytest.fixture(autouse=True)
def tiny_pair(monkeypatch):
    """A tiny model, and a drafter that is often right: the model with some noise."""

    def load(name, device):
        model = Decoder(TINY).requires_grad_(False)
        if name == "drafter":
            noise = torch.Generator().manual_seed(0)
            for weight in model.parameters():
                weight += 0.02 * torch.randn(weight.shape, generator=noise)
        return copy.deepcopy(model).to(device), TINY

    monkeypatch.setattr(small_llama, "load", load)
    monkeypatch.setattr(
        small_llama, "split_text", lambda device: (None, torch.arange(64, device=device))
    )


def steps_and_equality(*change):
    """What main prints with another line: the number of steps, and whether the text is right."""
    printed = []
    with cpu_graphs():
        names = names_of("speculative_decoding", *change)
        names["print"] = lambda *words: printed.append(words)
        names["main"](n_prompts=1, n_new=16, k=2)
    return int(printed[1][0].split()[0]), printed[2][1]


def test_it_writes_the_text_of_plain_decoding_in_fewer_steps():
    steps, equal = steps_and_equality()
    assert equal and steps < 16


@pytest.mark.parametrize("number", LEFT_OUT)
def test_without_a_numbered_line_it_is_slower_or_silently_wrong(number):
    steps, equal = steps_and_equality(LEFT_OUT[number])
    assert equal == (number == "1")
    assert not equal or steps > steps_and_equality()[0]


def test_the_next_step_has_room_at_the_end_of_the_text():
    with cpu_graphs():
        text = torch.zeros(1, 12, dtype=torch.long, device="cuda")
        input_pos = torch.full((1, 1), 7, device="cuda")
        state = speculative_decoding.State(None, None, text, input_pos, None, None)
        drafts = torch.tensor([[5, 6, 7]], device="cuda")
        choices = torch.tensor([[5, 6, 7, 8]], device="cuda")
        for _ in range(2):
            speculative_decoding.accept(state, drafts, choices)  # else an index is out of range
        assert state.input_pos.item() + 4 < 12
