"""A small trained Llama and its drafter, so that a lesson's tokens are text.

    model, config = load("model", "cuda", torch.bfloat16)
    tokens = encode("ROMEO:", "cuda")
    decode(tokens)  # "ROMEO:"

Both are decoders of examples/decoder.py that read and write characters: a token is the character's
number in ASCII. examples/train_small_llama.py trained them on the first nine tenths of
examples/shakespeare.txt, and wrote small_llama_model.pt and small_llama_drafter.pt.
"""

# mypy: disable-error-code="arg-type"
# because SIZES holds whole numbers and a float

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from examples.decoder import Config, Decoder, project

TEXT = Path(__file__).with_name("shakespeare.txt")
HELD_OUT = 0.1  # of the text, at its end
SIZES = {
    "n_heads": 4,
    "n_kv_heads": 2,
    "dim": 128,
    "vocab_size": 128,
    "max_seq_len": 512,
    "rope_theta": 10000.0,
}
CONFIGS = {
    "model": Config(n_layers=6, hidden_dim=256, **SIZES),
    "drafter": Config(n_layers=1, hidden_dim=384, **SIZES),
}


def weights_file(name: str) -> Path:
    """Where the weights of "model" or "drafter" are."""
    return Path(__file__).with_name(f"small_llama_{name}.pt")


def load(
    name: str = "model", device: str = "cpu", dtype: torch.dtype = torch.float32
) -> tuple[Decoder, Config]:
    """The trained "model" or "drafter", and its sizes. Its weights are frozen."""
    config = CONFIGS[name]
    model = Decoder(config, device, dtype).requires_grad_(False)
    weights = torch.load(weights_file(name), map_location=device, weights_only=True)
    parameters = dict(model.named_parameters())
    if weights.keys() != parameters.keys():
        raise ValueError(f"{weights_file(name)} holds other weights than Decoder has: train anew.")
    for key, parameter in parameters.items():
        parameter.copy_(weights[key])
    return model, config


def encode(text: str, device: str = "cpu") -> Tensor:
    """Text to tokens, (1, T): the number of each character in ASCII."""
    return torch.tensor([list(text.encode("ascii"))], device=device)


def decode(tokens: Tensor) -> str:
    """Tokens, of any shape, to text."""
    return bytes(tokens.flatten().tolist()).decode("ascii")


def split_text(device: str = "cpu") -> tuple[Tensor, Tensor]:
    """The tokens of the text to train on, and of the text that is held out."""
    tokens = encode(TEXT.read_text(encoding="ascii"), device)[0]
    n_held_out = int(len(tokens) * HELD_OUT)
    return tokens[:-n_held_out], tokens[-n_held_out:]


def all_logits(model: Decoder, config: Config, tokens: Tensor) -> Tensor:
    """The logits of the token after each of tokens (B, T), (B, T, vocab_size), float32."""
    length = tokens.shape[1]
    shape = (len(tokens), config.n_kv_heads, config.max_seq_len, config.head_dim)
    layers = [  # a tensor each, because autograd cannot follow writes into parts of one cache
        [model.cos.new_zeros(shape, dtype=model.embedding.weight.dtype) for _ in range(2)]
        for _ in model.blocks
    ]
    x = model.hidden_states(tokens, model.positions[:length].expand_as(tokens), layers)
    return project(model.norm(x).flatten(0, 1), model.embedding.weight).unflatten(0, (-1, length))


def loss_of_logits(logits: Tensor, targets: Tensor) -> Tensor:
    """The cross-entropy of logits (B, T, vocab_size) on targets (B, T), in nats a token."""
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def held_out_loss(model: Decoder, config: Config, device: str, n_windows: int = 64) -> float:
    """The mean loss on windows of the held-out text, spread over all of it."""
    _, text = split_text(device)
    length = config.max_seq_len
    starts = torch.linspace(0, len(text) - length - 1, n_windows, device=device).long()
    windows = text[starts[:, None] + torch.arange(length + 1, device=device)]
    with torch.no_grad():
        losses = [
            loss_of_logits(all_logits(model, config, part[:, :-1]), part[:, 1:])
            for part in windows.split(16)
        ]
    return torch.stack(losses).mean().item()
