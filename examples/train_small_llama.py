"""Train the small Llama and its drafter, each training step one CUDA graph.

    python -m examples.train_small_llama              writes small_llama_model.pt and _drafter.pt
    python -m examples.train_small_llama --out OUT    writes them into another folder

The weights are trained in float32 and saved in bfloat16. The file keeps those with the lowest loss
on the held-out text. Two trainings do not give the same bits, so the lessons use the files as they
are, and do not train.
"""

from argparse import ArgumentParser
from collections.abc import Callable
from math import cos, pi
from pathlib import Path
from time import perf_counter

import torch
from torch import Tensor

from examples import small_llama
from examples.decoder import Config, Decoder

STEPS = 600
BATCH_SIZE = 32
LEARNING_RATE = 2e-3
LEARNING_RATE_WARMUP = 100  # steps
EVALUATE_EVERY = 100  # steps
WEIGHT_DECAY = 0.1


def learning_rate(step: int) -> float:
    """Rises for the first steps, then falls along a cosine to a tenth."""
    if step < LEARNING_RATE_WARMUP:
        return LEARNING_RATE * (step + 1) / LEARNING_RATE_WARMUP
    done = (step - LEARNING_RATE_WARMUP) / (STEPS - LEARNING_RATE_WARMUP)
    return LEARNING_RATE * (0.55 + 0.45 * cos(pi * done))


def new_model(config: Config, device: str) -> Decoder:
    """A decoder with the small weights that training begins with."""
    model = Decoder(config, device)
    generator = torch.Generator(device).manual_seed(0)
    for weight in model.parameters():
        if weight.dim() == 2:
            weight.data.normal_(std=0.02, generator=generator)
    return model


def capture(step: Callable[[], None], device: str) -> Callable[[], None]:
    """The step as a graph's replay; eager without a GPU. It makes three steps on the way."""
    if device == "cpu":
        return step
    side_stream = torch.cuda.Stream()
    side_stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side_stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side_stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def train_best_weights(config: Config, device: str) -> tuple[dict[str, Tensor], float]:
    """The bfloat16 weights with the lowest held-out loss, and that loss."""
    model = new_model(config, device)
    decayed = [p for p in model.parameters() if p.dim() == 2]
    others = [p for p in model.parameters() if p.dim() != 2]
    rate = torch.zeros((), device=device)
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": WEIGHT_DECAY}, {"params": others, "weight_decay": 0}],
        lr=rate,
        betas=(0.9, 0.99),
        capturable=device == "cuda",
    )
    text, _ = small_llama.split_text(device)
    window = torch.arange(config.max_seq_len + 1, device=device)
    starts = torch.zeros(BATCH_SIZE, 1, dtype=torch.int64, device=device)  # static input
    generator = torch.Generator(device).manual_seed(1)

    def step() -> None:
        tokens = text[starts + window]
        logits = small_llama.all_logits(model, config, tokens[:, :-1])
        loss = small_llama.loss_of_logits(logits, tokens[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    replay = capture(step, device)
    best: dict[str, Tensor] = {}
    best_loss = float("inf")
    for i in range(STEPS):
        starts.random_(len(text) - config.max_seq_len, generator=generator)
        rate.fill_(learning_rate(i))
        replay()
        if (i + 1) % EVALUATE_EVERY == 0:
            held_out = small_llama.held_out_loss(model, config, device)
            print(f"step {i + 1}: held-out loss {held_out:.4f}", flush=True)
            if held_out < best_loss:
                best_loss = held_out
                best = {k: p.detach().bfloat16().cpu() for k, p in model.named_parameters()}
    return best, best_loss


def main() -> None:
    """Train both, and save them."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=small_llama.weights_file("model").parent)
    arguments = parser.parse_args()
    torch.set_float32_matmul_precision("high")  # TF32
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for name, config in small_llama.CONFIGS.items():
        started = perf_counter()
        weights, loss = train_best_weights(config, device)
        file = arguments.out / small_llama.weights_file(name).name
        torch.save(weights, file)
        n_weights = sum(weight.numel() for weight in weights.values())
        print(f"{file}: {n_weights:,} weights, {file.stat().st_size:,} bytes,")
        print(f"held-out loss {loss:.4f}, {perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
