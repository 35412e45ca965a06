"""Rollouts of the small Llama and a step of policy gradient: a toy of reinforcement learning.

    model, config = small_llama.load("model", "cuda")
    rollouts = TextRollouts(model, config, rows=32)
    replay = capture_step(rollouts.sample_next_tokens)
    text = rollouts.generate(replay, seed=0)
    mean_reward = train_step(policy, config, optimizer, text)

The reward of a text is its share of capital letters. It is easy to learn, and a reader sees whether
it was learned. train is a policy that learns in another process and sends its weights.
"""

from collections.abc import Callable
from multiprocessing.queues import Queue

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.optim import Optimizer

from examples import small_llama
from examples.decoder import Config, Decoder, new_kv_cache, sample

NEWLINE = ord("\n")  # every text begins with it
N_TOKENS = 64  # that are written after it


class TextRollouts:
    """Texts that a model samples, one per row. The addresses of all state are fixed."""

    def __init__(self, model: Decoder, config: Config, rows: int, device: str = "cuda") -> None:
        self.model = model
        self.tokens = torch.full((rows, 1), NEWLINE, device=device)
        self.input_pos = torch.zeros_like(self.tokens)
        self.kv_cache = new_kv_cache(config, rows, device, model.embedding.weight.dtype)

    @torch.no_grad()
    def sample_next_tokens(self) -> None:
        """Write the next token of each row. A graph can hold it."""
        logits = self.model(self.tokens, self.input_pos, self.kv_cache)
        self.tokens.copy_(sample(logits, temperature=1.0))
        self.input_pos.add_(1)

    def generate(self, step: Callable[[], object], seed: int, n_tokens: int = N_TOKENS) -> Tensor:
        """Start again, call step (step itself, or a replay of it) for each token; (rows, 1 + T)."""
        torch.manual_seed(seed)
        self.tokens.fill_(NEWLINE)
        self.input_pos.zero_()
        text = [self.tokens.clone()]
        for _ in range(n_tokens):
            step()
            text.append(self.tokens.clone())
        return torch.cat(text, dim=1)


def rewards_of(text: Tensor) -> Tensor:
    """The share of capital letters in each text (rows, 1 + T), its newline apart; (rows,)."""
    letters = text[:, 1:]
    capital = (letters >= ord("A")) & (letters <= ord("Z"))
    return capital.float().mean(dim=1)


def train_step(policy: Decoder, config: Config, optimizer: Optimizer, text: Tensor) -> float:
    """One step of policy gradient (REINFORCE) on sampled texts; returns their mean reward."""
    rewards = rewards_of(text)
    advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-3)
    logits = small_llama.all_logits(policy, config, text[:, :-1])  # (rows, T, vocab_size)
    targets = text[:, 1:]
    losses = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
    loss = (advantages[:, None] * losses.view_as(targets)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return rewards.mean().item()


def run_trainer(texts: Queue, updates: Queue, rows: int = 32, n_tokens: int = N_TOKENS) -> None:
    """In a process of its own: take a step of training on each text, until a text is None.

    After each step it puts the weights and a text of its own, sampled eagerly from seed 100, into
    updates. The queue passes the weights as handles of CUDA memory (CUDA IPC), not as copies.
    rows, n_tokens: of its own text.
    """
    policy, config = small_llama.load("model", "cuda")
    optimizer = torch.optim.Adam(policy.requires_grad_(True).parameters(), lr=3e-4)
    eager = TextRollouts(policy, config, rows)
    while (text := texts.get()) is not None:
        train_step(policy, config, optimizer, text.cuda())
        own_text = eager.generate(eager.sample_next_tokens, seed=100, n_tokens=n_tokens).cpu()
        torch.cuda.synchronize()  # the weights are complete before anybody gets their handles
        updates.put((policy.state_dict(), own_text))
