"""The decoder to copy: its lesson shows it, it runs on a CPU and in a graph, and it computes what
Llama computes.
"""

from dataclasses import replace

import pytest
import torch

from cpu_graph import cpu_graphs
from examples.decoder import Config, Decoder, new_kv_cache, prefill, sample
from examples.repeatability import KeepOutputs, count_first_to_differ, differing_runs
from examples.transformers_llama import decoder_from_llama
from helpers.capture import capture_step, unchanged
from tests.support.library_models import models_of
from tests.support.processes import run_python

TINY = Config(
    n_layers=2, dim=64, n_heads=4, n_kv_heads=2, hidden_dim=128, vocab_size=256, max_seq_len=96
)


def start(model, config, rows, device="cpu", length=6, seed=0):
    """Tokens and positions (rows, 1) after a prompt, the cache, and the prompt."""
    torch.manual_seed(seed)
    cache = new_kv_cache(config, rows, device, torch.float32)
    prompt = torch.randint(config.vocab_size, (rows, length), device=device)
    tokens = sample(model(prompt, torch.arange(length, device=device).expand(rows, length), cache))
    return tokens, torch.full_like(tokens, length), cache, prompt


def step(model, tokens, positions, cache, temperature=0.0):
    tokens.copy_(sample(model(tokens, positions, cache), temperature))
    positions.add_(1)
    return tokens


@torch.no_grad()
def test_greedy_tokens_do_not_repeat_themselves():
    model = Decoder(TINY)
    tokens, positions, cache, _ = start(model, TINY, 3)
    made = torch.cat([step(model, tokens, positions, cache).clone() for _ in range(64)], dim=1)
    assert all(len(set(row)) >= 20 for row in made.tolist())


@torch.no_grad()
def test_rows_stand_at_places_of_their_own():
    """Two prompts of different lengths, decoded side by side and one by one, also in the first rows
    of a cache.
    """
    model = Decoder(TINY)
    alone = [start(model, TINY, 1, length=length, seed=length) for length in (3, 7)]
    tokens, positions = (torch.cat([one[place] for one in alone]) for place in (0, 1))
    big = new_kv_cache(TINY, 4, "cpu", torch.float32)
    cache = big[:, :, :2]
    cache.copy_(torch.cat([one[2] for one in alone], dim=2))
    together = torch.cat([step(model, tokens, positions, cache).clone() for _ in range(12)], dim=1)
    for row, (token, position, own, _) in enumerate(alone):
        one = torch.cat([step(model, token, position, own).clone() for _ in range(12)], dim=1)
        assert torch.equal(together[row : row + 1], one)
    assert big[:, :, 2:].count_nonzero() == 0


@torch.no_grad()
@pytest.mark.parametrize("garbage", [7.0, torch.nan, torch.inf])
def test_a_prompt_at_once_or_token_by_token(garbage):
    """What lies behind the position does not count, unless it is no number."""
    model = Decoder(TINY)
    tokens, _, cache, prompt = start(model, TINY, 2)
    own = torch.full_like(cache, garbage)
    for place in range(prompt.shape[1]):
        logits = model(prompt[:, place : place + 1], torch.full((2, 1), place), own)
    assert torch.equal(sample(logits), tokens) == (garbage == 7.0)


@torch.no_grad()
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_graph_decodes_what_eager_decodes(temperature):
    config = replace(TINY, max_seq_len=32)
    with cpu_graphs():
        model = Decoder(config, "cuda")
        tokens, positions, cache, _ = start(model, config, 2, "cuda")
        with unchanged(tokens, positions):
            torch.manual_seed(1)
            eager = [step(model, tokens, positions, cache, temperature).tolist() for _ in range(8)]
        with unchanged(tokens, positions):
            replay = capture_step(lambda: step(model, tokens, positions, cache, temperature))
        torch.manual_seed(1)
        assert [replay().tolist() for _ in range(8)] == eager


def test_sampling_follows_the_logits():
    torch.manual_seed(0)
    chances = torch.tensor([0.1, 0.6, 0.0, 0.3])
    drawn = sample(chances.log().expand(20000, 4), 1.0)
    assert drawn.shape == (20000, 1)
    assert torch.allclose(torch.bincount(drawn[:, 0], minlength=4) / 20000, chances, atol=0.02)
    generator = torch.Generator().manual_seed(3)
    first = sample(chances.log().expand(50, 4), 1.0, generator)
    assert torch.equal(first, sample(chances.log().expand(50, 4), 1.0, generator.manual_seed(3)))
    assert sample(chances[None]).item() == 1


@torch.no_grad()
def test_llama_computes_the_same_on_the_same_weights():
    models_of("transformers")
    from transformers import LlamaConfig, LlamaForCausalLM

    llama_config = LlamaConfig(
        vocab_size=256,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=96,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0},
        tie_word_embeddings=True,
        initializer_range=0.2,
    )
    llama = LlamaForCausalLM(llama_config).eval()
    for norm in (one for one in llama.parameters() if one.dim() == 1):
        norm.normal_(1, 0.1)
    model, config = decoder_from_llama(llama)

    _, _, cache, prompt = start(model, config, 2)
    places = torch.arange(prompt.shape[1]).expand_as(prompt)
    assert torch.allclose(model(prompt, places, cache), llama(prompt).logits[:, -1], atol=1e-4)
    tokens, positions, cache = prefill(model, config, prompt[:, None])
    made = [tokens.clone()]
    made += [step(model, tokens, positions, cache).clone() for _ in range(19)]
    theirs = llama.generate(prompt, max_new_tokens=20, do_sample=False, eos_token_id=None)
    assert torch.equal(torch.cat(made, dim=1), theirs[:, prompt.shape[1] :])


ONE_ROW = """
import torch
from examples import triton_decoder
from examples.decoder import Config, Decoder, new_kv_cache, project, sample

sizes = {"n_layers": 2, "dim": 32, "n_heads": 4, "n_kv_heads": 2, "hidden_dim": 64}
config = Config(**sizes, vocab_size=64, max_seq_len=16)
# At least two programs for each product, and two loads for each row of a matvec's weight.
tiles = {"qkv": (32, 16, 1), "output": (16, 16, 1), "gate_up": (16, 0, 1), "down": (16, 32, 1)}
tiles["head"] = (16, 16, 1)
gate_up_kernel = triton_decoder._gate_up_kernel


class HalfOfThePrograms:  # so that each walks over two tiles of rows, as on a GPU
    def __getitem__(self, grid):
        return gate_up_kernel[(grid[0] // 2,)]


def dequantized(weight, scale):
    return weight.float() if scale is None else weight.float() * scale[:, None]


triton_decoder._gate_up_kernel = HalfOfThePrograms()
model = Decoder(config, dtype=torch.bfloat16).requires_grad_(False)
torch.manual_seed(0)
for gain in (weight for weight in model.parameters() if weight.dim() == 1):
    gain.normal_(1, 0.3)
for switches in {}, {"splits": 4, "argmax_in_head": True, "preload_cache": True, "fp8": True}:
    decoder = triton_decoder.TritonDecoder(model, config, tiles=tiles, **switches)
    exact = Decoder(config).requires_grad_(False)
    exact.load_state_dict(model.state_dict())
    for layer, block in enumerate(exact.blocks):
        for kind, linear in (
            ("qkv", block.attention.qkv),
            ("output", block.attention.output),
            ("gate_up", block.feed_forward.gate_up),
            ("down", block.feed_forward.down),
        ):
            own = dequantized(*decoder.weights[kind, layer])
            assert (own - linear.weight).norm() < 0.04 * linear.weight.norm(), kind
            linear.weight.copy_(own)
    head = dequantized(*decoder.weights["head", -1])
    assert (head - exact.embedding.weight).norm() < 0.04 * head.norm()

    tokens = torch.tensor([[5]])
    cache = new_kv_cache(config, 1, "cpu", torch.float32)
    own_cache = new_kv_cache(config, 1, "cpu", torch.bfloat16)
    own_cache.fill_(100.0)  # what is behind the position does not count
    for place in range(6):  # in the first two splits
        own_tokens, input_pos = tokens.clone(), torch.tensor([[place]])
        x = exact.hidden_states(tokens, input_pos, cache)
        right = project(exact.norm(x[:, -1]), head)
        logits = decoder.step(own_tokens, input_pos, own_cache)
        assert (logits - right).norm() < 0.04 * right.norm(), (switches, place)
        assert own_tokens.item() == logits.argmax().item() and input_pos.item() == place + 1
        tokens = sample(right)

data = torch.randint(-100, 100, (2, 8192), dtype=torch.int32)
assert triton_decoder.read_all(data).tolist() == data.sum(1).tolist()
"""


@pytest.mark.weekly
def test_the_triton_kernels_compute_the_same():
    """In Triton's interpreter, which an environment variable chooses before the import.

    Each line of each program takes its time, so all sizes are small. There is no dependent launch
    in it: the lesson shows pdl on a GPU.
    """
    pytest.importorskip("triton")
    done = run_python("-c", ONE_ROW, TRITON_INTERPRET="1")
    assert done.returncode == 0, done.stderr[-800:]


def culprits(step):
    with KeepOutputs() as outputs:
        replay = capture_step(step)
    return count_first_to_differ(replay, outputs, 3)


def test_the_operator_that_does_not_repeat_its_bits_is_named():
    with cpu_graphs():
        x, odd = torch.arange(4.0, device="cuda"), torch.ones(4, device="cuda")

        def step():
            return (x * 2).cos() + odd

        assert differing_runs(step, 3) == 0 and culprits(step) == {}

        def unsteady():
            odd.mul_(2)
            return step()

        assert differing_runs(unsteady, 3) == 3
        assert culprits(unsteady) == {"aten.add.Tensor": 3}
