"""Llama of the transformers package on the weights of decoder.py, to compare the two.

It shares the decoder's tensors, so it needs hardly any memory. The package is an extra of the
project: pip install -e .[lm]
"""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from examples.decoder import Block, Config, Decoder

# transformers imports these where they are installed. Llama needs none of them, and one that was
# built for another torch or numpy fails when it is imported.
OPTIONAL = ("accelerate", "scipy", "sklearn", "torchaudio", "torchvision")


@contextmanager
def without_optional_packages() -> Iterator[None]:
    """Within this block an import finds no OPTIONAL package, unless it is imported already.

    Does nothing once transformers is imported, because it has looked for them by then.
    """
    hidden = [name for name in OPTIONAL if sys.modules.get(name) is None]
    if sys.modules.get("transformers") is not None:
        hidden = []
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment]  # Python's "not to be found"
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


def llama_like(model: Decoder, config: Config) -> Any:
    """A LlamaForCausalLM that computes what the decoder does, on its tensors, without gradients.

    Raises ImportError if transformers is not installed, or does not fit this torch.
    """
    with without_optional_packages():
        from transformers import LlamaConfig, LlamaForCausalLM

    weight = model.embedding.weight
    llama_config = LlamaConfig(
        vocab_size=config.vocab_size,
        hidden_size=config.dim,
        intermediate_size=config.hidden_dim,
        num_hidden_layers=config.n_layers,
        num_attention_heads=config.n_heads,
        num_key_value_heads=config.n_kv_heads,
        max_position_embeddings=config.max_seq_len,
        rms_norm_eps=config.norm_eps,
        rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
        tie_word_embeddings=True,
        dtype=weight.dtype,
    )
    with torch.device("meta"):  # without memory, because the weights follow
        llama = LlamaForCausalLM(llama_config)
    llama.load_state_dict(llama_state_dict(model, config), assign=True)
    with weight.device:  # its cosines and sines are no part of a state_dict
        llama.model.rotary_emb = type(llama.model.rotary_emb)(llama_config)
    return llama.eval().requires_grad_(False)


def llama_state_dict(model: Decoder, config: Config) -> dict[str, Tensor]:
    """The decoder's weights under the names of transformers; some are slices of ours."""
    embedding = model.embedding.weight
    weights = {
        "model.embed_tokens.weight": embedding,
        "lm_head.weight": embedding,
        "model.norm.weight": model.norm.weight,
    }
    for number, block in enumerate(model.blocks):
        for name, weight in _block_weights(block, config).items():
            weights[f"model.layers.{number}.{name}.weight"] = weight
    return weights


def _block_weights(block: Block, config: Config) -> dict[str, Tensor]:
    kv_dim = config.n_kv_heads * config.head_dim
    query, key, value = block.attention.qkv.weight.split([config.dim, kv_dim, kv_dim])
    gate, up = block.feed_forward.gate_up.weight.chunk(2)
    return {
        "self_attn.q_proj": query,
        "self_attn.k_proj": key,
        "self_attn.v_proj": value,
        "self_attn.o_proj": block.attention.output.weight,
        "mlp.gate_proj": gate,
        "mlp.up_proj": up,
        "mlp.down_proj": block.feed_forward.down.weight,
        "input_layernorm": block.attention_norm.weight,
        "post_attention_layernorm": block.feed_forward_norm.weight,
    }


class DecodeStep:
    """After a prompt (B, T): each call decodes one more token with transformers' static cache.

    tokens and input_pos, (B, 1), are those of the next call. counts are the cache's own: how many
    tokens it holds, a tensor for each layer. A step changes all of them in place, and so does a
    graph's warm-up: restore them all. compile_options go to torch.compile; without any, the step is
    eager.
    """

    def __init__(
        self, llama: Any, prompt: Tensor, max_seq_len: int, **compile_options: Any
    ) -> None:
        with without_optional_packages():
            from transformers import StaticCache

        self.cache = StaticCache(config=llama.config, max_cache_len=max_seq_len)
        self.tokens = llama(prompt, past_key_values=self.cache).logits[:, -1:].argmax(dim=-1)
        self.input_pos = torch.full_like(self.tokens, prompt.shape[1])
        self.counts = [layer.cumulative_length for layer in self.cache.layers]
        self.forward = llama.forward
        if compile_options:
            self.forward = torch.compile(llama.forward, fullgraph=True, **compile_options)

    def __call__(self) -> Tensor:
        """The logits, (B, vocab_size), and in place the most likely tokens and their position."""
        torch.compiler.cudagraph_mark_step_begin()
        output = self.forward(self.tokens, position_ids=self.input_pos, past_key_values=self.cache)
        logits = output.logits[:, -1]
        self.tokens.copy_(logits.argmax(dim=-1, keepdim=True))
        self.input_pos.add_(1)
        return logits


def decode_steps(model: Decoder, config: Config, prompt: Tensor) -> dict[str, DecodeStep]:
    """Steps to compare with the decoder's: eager, and compiled with reduce-overhead and recorded.

    Those that fail are left out, with a sentence that says why: transformers may be missing, or may
    not fit this torch.
    """
    steps = {}
    try:
        with warnings.catch_warnings(action="ignore"):  # tqdm misses widgets, inductor TF32
            llama = llama_like(model, config)
            steps["transformers, eager"] = DecodeStep(llama, prompt, config.max_seq_len)
            step = DecodeStep(llama, prompt, config.max_seq_len, mode="reduce-overhead")
            for _ in range(4):  # warm up, compile, record
                step()
            steps["transformers, reduce-overhead"] = step
    except Exception as error:
        why = f"{type(error).__name__}: {error.__cause__ or error}".partition("\n")[0]
        print(f"transformers is left out, or its compiled step: {why}")
    return steps
