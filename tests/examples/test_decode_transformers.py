"""The graph of a transformers model decodes what generate decodes."""

from types import SimpleNamespace

import pytest
import torch

from cpu_graph import cpu_graphs
from tests.support.library_models import models_of
from tests.support.scripts import names_of, printed_by

FEWER = [("max_new_tokens=20", "max_new_tokens=8"), ("generate(prompt, 20)", "generate(prompt, 8)")]
FEWER += [('"num_hidden_layers": 2', '"num_hidden_layers": 1')]


@pytest.fixture(autouse=True)
def transformers():
    models_of("transformers")


def test_it_decodes_what_generate_decodes():
    assert printed_by("decode_transformers", smaller=FEWER) == "equal to generate: True\n" * 2


def test_it_stops_within_a_poll_of_the_end_and_refuses_what_does_not_fit():
    with cpu_graphs():
        script = names_of("decode_transformers")
        generate = script["make_graphed_generate"](script["build_model"](), 1, 64)
        prompt = torch.arange(8, device="cuda")[None]
        tokens = generate(prompt, 40)[0].tolist()
        at = next(number for number in range(4, 40) if tokens.index(tokens[number]) == number)
        stopped = generate(prompt, 40, eos_token_id=tokens[at])[0].tolist()
        polls = -(-(at + 1) // script["POLL"])
        assert stopped == tokens[: polls * script["POLL"]]
        with pytest.raises(ValueError, match="holds 64 tokens, and 107 are needed"):
            generate(prompt, 100)


def test_a_sliding_window_is_refused():
    from transformers import MistralConfig

    namespace = names_of("decode_transformers")
    model = SimpleNamespace(config=MistralConfig(num_hidden_layers=1, sliding_window=16))
    with pytest.raises(ValueError, match="sliding window"):
        namespace["static_cache"](model, 64)
