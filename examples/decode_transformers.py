"""A transformers model that decodes in one CUDA graph, with a static cache.

    python examples/decode_transformers.py

It needs a CUDA GPU, PyTorch and transformers 5. Numbered lines are those that the graph needs. The
prompts of a batch have one length, because a StaticCache has one position for all rows.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

POLL = 16  # tokens between two checks for the end
SIZES = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2}


def build_model() -> Any:
    """Yours: AutoModelForCausalLM.from_pretrained(...).cuda().eval()."""
    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=512, initializer_range=0.2, eos_token_id=None, **SIZES, **HEADS)
    with torch.device("cuda"):
        return LlamaForCausalLM(config).eval()


def static_cache(model: Any, max_cache_len: int) -> StaticCache:
    """The cache of all prompts."""
    cache = StaticCache(config=model.config, max_cache_len=max_cache_len)  # 1. its full length
    if any(layer.is_sliding for layer in cache.layers):
        raise ValueError("A layer with a sliding window counts in a number that a graph freezes.")
    return cache


def ended(made: list[Tensor], eos_token_id: int | None) -> bool:
    """Whether each row has written its end."""
    return eos_token_id is not None and bool(
        (torch.cat(made, dim=1) == eos_token_id).any(dim=1).all()
    )


@torch.no_grad()
def make_graphed_generate(model: Any, batch_size: int, max_cache_len: int) -> Callable[..., Tensor]:
    """A function (prompt, max_new_tokens, eos_token_id) that returns new tokens, (B, n)."""
    cache = static_cache(model, max_cache_len)
    tokens = torch.zeros(batch_size, 1, dtype=torch.int64, device="cuda")

    def prefill(prompt: Tensor) -> None:
        cache.reset()  # 2. one cache for all prompts
        logits = model(prompt, past_key_values=cache, logits_to_keep=1).logits
        tokens.copy_(logits.argmax(dim=-1))

    def step() -> None:
        logits = model(tokens, past_key_values=cache).logits
        tokens.copy_(logits.argmax(dim=-1))  # 3. where the next step reads it

    prefill(tokens)
    side_stream = torch.cuda.Stream()
    side_stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side_stream):
        for _ in range(3):
            step()  # the warm-up; the prefill of the first prompt undoes it
    torch.cuda.current_stream().wait_stream(side_stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()

    @torch.no_grad()
    def generate(prompt: Tensor, max_new_tokens: int, eos_token_id: int | None = None) -> Tensor:
        needed = prompt.shape[1] + max_new_tokens - 1
        if needed > max_cache_len:  # 4. a step beyond the end would stop the process
            raise ValueError(f"The cache holds {max_cache_len} tokens, and {needed} are needed.")
        prefill(prompt)
        made = [tokens.clone()]
        while len(made) < max_new_tokens:
            graph.replay()
            made.append(tokens.clone())  # 5. the next replay overwrites it
            if len(made) % POLL == 0 and ended(made, eos_token_id):  # 6. a wait every 16 tokens
                break
        return torch.cat(made, dim=1)  # after a row's end its tokens mean nothing

    return generate


def main() -> None:
    """Decode two batches, and compare with the model's own generate."""
    model = build_model()
    generate = make_graphed_generate(model, batch_size=2, max_cache_len=128)
    for length in (20, 12):
        prompt = torch.randint(512, (2, length), device="cuda")
        expected = model.generate(prompt, max_new_tokens=20, do_sample=False)[:, length:]
        print("equal to generate:", torch.equal(generate(prompt, 20), expected))


if __name__ == "__main__":
    main()
