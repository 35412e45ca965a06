"""Speculative decoding in one CUDA graph: a replay drafts, verifies and accepts.

    python examples/speculative_decoding.py

It needs a CUDA GPU and nothing but PyTorch. The pair is the one of examples/small_llama.py: replace
`load_and_prefill` for yours, whose two models must read the same tokens. Decoding is greedy.
Numbered lines are those without which the text, or the speed, is lost.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from examples import small_llama
from examples.decoder import Decoder, new_kv_cache, project


@dataclass
class State:
    """All of it is on the GPU, and a step changes all tensors in place."""

    model: Decoder
    drafter: Decoder
    text: Tensor  # (B, max_seq_len), the prompts and what has been written
    input_pos: Tensor  # (B, 1), the position of the last token
    kv_cache: Tensor
    draft_cache: Tensor


def load_and_prefill(prompts: Tensor) -> State:
    """Load both models, read prompts (B, T) and write one token after each."""
    models, caches = [], []
    positions = torch.arange(prompts.shape[1], device="cuda").expand_as(prompts)
    for name in ("drafter", "model"):
        model, config = small_llama.load(name, "cuda")
        cache = new_kv_cache(config, len(prompts), "cuda", torch.float32)
        logits = model(prompts, positions, cache)
        models.append(model)
        caches.append(cache)
    text = torch.zeros(len(prompts), config.max_seq_len, dtype=torch.long, device="cuda")
    text[:, : prompts.shape[1]] = prompts
    text[:, prompts.shape[1]] = logits.argmax(dim=-1)
    input_pos = torch.full((len(prompts), 1), prompts.shape[1], device="cuda")
    return State(models[1], models[0], text, input_pos, caches[1], caches[0])


def draft(state: State, k: int) -> Tensor:
    """The drafter's next k tokens, (B, k)."""
    positions = torch.cat((state.input_pos - 1, state.input_pos), dim=1)  # 1. two tokens at first
    tokens = state.text.gather(1, positions)
    drafts = []
    for i in range(k):
        logits = state.drafter(tokens, positions, state.draft_cache)
        tokens = logits.argmax(dim=-1, keepdim=True)
        positions = state.input_pos + i + 1
        drafts.append(tokens)
    return torch.cat(drafts, dim=1)


def verify(state: State, drafts: Tensor) -> Tensor:
    """The model's choices after the last token and after each draft, (B, 1 + k)."""
    tokens = torch.cat((state.text.gather(1, state.input_pos), drafts), dim=1)
    positions = state.input_pos + torch.arange(tokens.shape[1], device="cuda")
    x = state.model.hidden_states(tokens, positions, state.kv_cache)
    logits = project(state.model.norm(x).flatten(0, 1), state.model.embedding.weight)
    return logits.argmax(dim=-1).unflatten(0, tokens.shape)


def accept(state: State, drafts: Tensor, choices: Tensor) -> None:
    """Write the choices, and move input_pos to the last one that counts."""
    k = drafts.shape[1]
    positions = state.input_pos + torch.arange(1, k + 2, device="cuda")
    state.text.scatter_(1, positions, choices)  # 2. the model's choices, never the drafts
    agreements = choices[:, :-1] == drafts
    accepted = agreements.cumprod(dim=1).sum(dim=1, keepdim=True)  # 3. up to the first wrong draft
    state.input_pos.add_(accepted + 1)  # 4. in place, and one more: the model's own choice
    state.input_pos.clamp_(max=state.text.shape[1] - k - 2)  # 5. room for the next step


def speculate(state: State, k: int) -> None:
    """Write 1 to k + 1 tokens per row."""
    drafts = draft(state, k)
    choices = verify(state, drafts)
    accept(state, drafts, choices)


def graphed(state: State, k: int) -> Callable[[], None]:
    """A function that replays one speculative step."""
    text, input_pos = state.text.clone(), state.input_pos.clone()
    side_stream = torch.cuda.Stream()
    side_stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side_stream):
        for _ in range(2):
            speculate(state, k)  # the warm-up; it writes tokens
    torch.cuda.current_stream().wait_stream(side_stream)

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        speculate(state, k)

    state.text.copy_(text)
    state.input_pos.copy_(input_pos)
    return graph.replay


def plain_step(state: State) -> None:
    """Write one token per row without a drafter: what the text is compared with."""
    tokens = state.text.gather(1, state.input_pos)
    logits = state.model(tokens, state.input_pos, state.kv_cache)
    state.text.scatter_(1, state.input_pos + 1, logits.argmax(dim=-1, keepdim=True))
    state.input_pos.add_(1).clamp_(max=state.text.shape[1] - 2)


def main(n_prompts: int = 4, n_new: int = 200, k: int = 4) -> None:
    """Write n_new tokens after some prompts, with and without speculation."""
    _, held_out = small_llama.split_text("cuda")
    prompts = held_out[: n_prompts * 64].view(n_prompts, 64)
    end = 64 + n_new

    plain = load_and_prefill(prompts)
    for _ in range(n_new):
        plain_step(plain)

    state = load_and_prefill(prompts)
    replay = graphed(state, k)
    n_steps = 0
    while state.input_pos.min().item() < end:  # read it less often where a step is short
        replay()
        n_steps += 1

    print(small_llama.decode(state.text[0, : end + 1]))
    print(f"{n_steps} steps for {n_new} tokens per row")
    print("as plain decoding:", torch.equal(state.text[:, : end + 1], plain.text[:, : end + 1]))


if __name__ == "__main__":
    main()
