"""Llama of the transformers package on the weights of examples/decoder.py: the same model, for a comparison.

It shares the decoder's weight tensors, so it needs next to no memory of its own. The package is an extra of the
project: pip install -e .[lm]
"""

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from examples.decoder import Config, Decoder
from helpers.capture import capture_step, unchanged


def weights_of(model: Decoder, config: Config) -> dict[str, Tensor]:
    """The decoder's weights under the names that transformers gives them; q, k, v, gate and up are slices."""
    embedding = model.embedding.weight
    found = {"model.embed_tokens": embedding, "lm_head": embedding, "model.norm": model.norm.weight}
    for number, block in enumerate(model.blocks):
        rows = [heads * config.head for heads in block.attention.groups]
        query, key, value = block.attention.qkv.weight.split(rows)
        gate, up = block.gate_up.weight.chunk(2)
        parts = {"self_attn.q_proj": query, "self_attn.k_proj": key, "self_attn.v_proj": value}
        parts |= {"self_attn.o_proj": block.attention.output.weight, "mlp.down_proj": block.down.weight}
        parts |= {"mlp.gate_proj": gate, "mlp.up_proj": up, "input_layernorm": block.attention_norm.weight}
        parts["post_attention_layernorm"] = block.feed_norm.weight
        found |= {f"model.layers.{number}.{name}": weight for name, weight in parts.items()}
    return {f"{name}.weight": weight for name, weight in found.items()}


def llama_of(model: Decoder, config: Config) -> Any:
    """A LlamaForCausalLM that computes what the decoder computes, on its weight tensors; none takes a gradient."""
    from transformers import LlamaConfig, LlamaForCausalLM

    weight = model.embedding.weight
    sizes = LlamaConfig(
        vocab_size=config.vocabulary,
        hidden_size=config.width,
        intermediate_size=config.hidden,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        num_key_value_heads=config.kv_heads,
        max_position_embeddings=config.context,
        rms_norm_eps=config.eps,
        rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
        tie_word_embeddings=True,
        dtype=weight.dtype,
    )
    with torch.device("meta"):
        llama = LlamaForCausalLM(sizes)
    llama.load_state_dict(weights_of(model, config), assign=True)
    with weight.device:
        llama.model.rotary_emb = type(llama.model.rotary_emb)(sizes)
    return llama.eval().requires_grad_(False)


def llama_step(llama: Any, prompt: Tensor, context: int, **compiled: Any) -> Callable[[], Tensor]:
    """After the prompt (B, T): a step that decodes one more token with a static cache and gives it, (B, 1).

    compiled: options of torch.compile. step.moving are the tensors that a step moves, beside the cache's keys and
    values: the token, its position, and the cache's own counts of what it holds, one a layer.
    """
    from transformers import StaticCache

    cache = StaticCache(config=llama.config, max_cache_len=context)
    tokens = llama(prompt, past_key_values=cache).logits[:, -1:].argmax(dim=-1)
    positions = torch.full_like(tokens, prompt.shape[1])
    forward = torch.compile(llama.forward, fullgraph=True, **compiled) if compiled else llama.forward

    def step():
        torch.compiler.cudagraph_mark_step_begin()
        logits = forward(tokens, position_ids=positions, past_key_values=cache).logits
        tokens.copy_(logits[:, -1:].argmax(dim=-1))
        positions.add_(1)
        return tokens

    step.moving = [tokens, positions, *(layer.cumulative_length for layer in cache.layers)]
    return step


def llama_steps(
    model: Decoder, config: Config, prompt: Tensor, count: int = 32
) -> tuple[dict[str, Callable[[], Tensor]], dict[str, int]]:
    """Steps of Llama after a prompt of one row, eager, in a graph by hand, and compiled with reduce-overhead.

    And by what was put back after a graph's warm-up: how many of count tokens are eager's.
    """
    with warnings.catch_warnings(action="ignore"):  # of tqdm without widgets, and of inductor, which misses TF32
        made, alike = partial(llama_step, llama_of(model, config), prompt, config.context), {}
        compiled = made(mode="reduce-overhead")
        for _ in range(4):  # as it records, it empties cuBLAS's workspaces, which older graphs would still use
            compiled()
    steps = {"transformers, eager": made()}
    expected = [steps["transformers, eager"]().item() for _ in range(count)]
    for name, some in {"token and position": 2, "the cache's counts too": None}.items():
        step = made()
        with unchanged(*step.moving[:some]):
            replay = steps["transformers, graph"] = capture_step(step)
        replay.moving = step.moving
        alike[name] = sum(replay().item() == token for token in expected)
    return steps | {"transformers, reduce-overhead": compiled}, alike
