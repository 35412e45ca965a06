"""The weights of decoder.py under the names that Llama of the transformers package gives them.

    decoder, config = decoder_from_llama(llama)

It needs a model of the transformers package, but does not import it.
"""

from typing import Any

from torch import Tensor

from examples.decoder import Block, Config, Decoder


def decoder_from_llama(llama: Any) -> tuple[Decoder, Config]:
    """A decoder that computes what llama does, on copies of its weights, and its sizes.

    llama: a LlamaForCausalLM whose head is its embedding (tie_word_embeddings).
    """
    sizes = llama.config
    config = Config(
        n_layers=sizes.num_hidden_layers,
        dim=sizes.hidden_size,
        n_heads=sizes.num_attention_heads,
        n_kv_heads=sizes.num_key_value_heads,
        hidden_dim=sizes.intermediate_size,
        vocab_size=sizes.vocab_size,
        max_seq_len=sizes.max_position_embeddings,
        rope_theta=sizes.rope_parameters["rope_theta"],
        norm_eps=sizes.rms_norm_eps,
    )
    embedding = llama.get_input_embeddings().weight
    model = Decoder(config, embedding.device.type, embedding.dtype).requires_grad_(False)
    for name, weight in llama_state_dict(model, config).items():  # they share the model's memory
        weight.copy_(llama.get_parameter(name))
    return model, config


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
