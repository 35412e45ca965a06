"""Train a small GPT on Shakespeare, character by character: each training step is one CUDA graph.

    python train_gpt.py              train, evaluate, save train_gpt.pt, write a text
    python train_gpt.py --resume     go on from train_gpt.pt
    python train_gpt.py --help       all options

The graph holds forward, backward, gradient accumulation, clipping and optimizer. Python decides
what changes between the steps: which batch, which learning rate, when to evaluate and to save.
First make --micro_batch as large as fits, then accumulate what does not.

With --eager, or without a GPU, the same training runs eagerly. On one GPU the losses of both are
bitwise equal, provided that eager repeats itself (torch.use_deterministic_algorithms).

Sizes and learning rates are those of nanoGPT's smallest training, with fewer steps:
github.com/karpathy/nanoGPT, config/train_shakespeare_char.py.
"""

import math
import pickle
import sys
import warnings
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from types import ModuleType

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

TEXT = Path(__file__).with_name("shakespeare.txt")
LEARNING_RATE = 1e-3
MIN_LEARNING_RATE = 1e-4
LEARNING_RATE_WARMUP = 100  # steps
GRAPH_WARMUP = 3  # steps
SAVED_OPTIONS = ("max_steps", "micro_batch", "gradient_accumulation_steps")

# ------------------------------------------------------------------------------------------------
# Model


@dataclass(frozen=True)
class GPTConfig:
    """The sizes of a model. Raises ValueError if the heads do not divide its width."""

    vocab_size: int
    block_size: int = 256
    n_layer: int = 6
    n_head: int = 6
    n_embd: int = 384
    dropout: float = 0.2

    def __post_init__(self) -> None:
        if self.n_embd % self.n_head:
            raise ValueError(f"n_embd {self.n_embd} is not divisible by n_head {self.n_head}.")


class Attention(nn.Module):
    """Causal self-attention."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.n_head = config.n_head
        self.qkv = nn.Linear(config.n_embd, 3 * config.n_embd, bias=False)
        self.proj = nn.Linear(config.n_embd, config.n_embd, bias=False)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """x (B, T, n_embd) to the same shape."""
        qkv = self.qkv(x).unflatten(-1, (3, self.n_head, -1))  # (B, T, 3, n_head, head_dim)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each (B, n_head, T, head_dim)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = y.transpose(1, 2).flatten(2)  # (B, T, n_embd)
        return self.dropout(self.proj(y))


class MLP(nn.Module):
    """Two linear layers with a GELU between them, four times as wide inside."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.up = nn.Linear(config.n_embd, 4 * config.n_embd, bias=False)
        self.down = nn.Linear(4 * config.n_embd, config.n_embd, bias=False)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """x (B, T, n_embd) to the same shape."""
        return self.dropout(self.down(F.gelu(self.up(x))))


class Block(nn.Module):
    """Attention and MLP, each on the normalized input and added to it."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.n_embd, bias=False)
        self.attention = Attention(config)
        self.mlp_norm = nn.LayerNorm(config.n_embd, bias=False)
        self.mlp = MLP(config)

    def forward(self, x: Tensor) -> Tensor:
        """x (B, T, n_embd) to the same shape."""
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class GPT(nn.Module):
    """Tokens to the logits of the token that follows each."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        self.token_embedding = nn.Embedding(config.vocab_size, config.n_embd)
        self.position_embedding = nn.Embedding(config.block_size, config.n_embd)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.Sequential(*(Block(config) for _ in range(config.n_layer)))
        self.norm = nn.LayerNorm(config.n_embd, bias=False)
        self.head = nn.Linear(config.n_embd, config.vocab_size, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens (B, T), T at most block_size, to logits (B, T, vocab_size)."""
        positions = self.position_embedding.weight[: tokens.shape[1]]  # (T, n_embd)
        x = self.dropout(self.token_embedding(tokens) + positions)  # (B, T, n_embd)
        return self.head(self.norm(self.blocks(x)))


@torch.no_grad()
def generate(model: GPT, tokens: Tensor, max_new_tokens: int = 300) -> Tensor:
    """tokens (1, T), followed by new ones that the model draws: (1, T + max_new_tokens)."""
    model.eval()
    for _ in range(max_new_tokens):
        logits = model(tokens[:, -model.config.block_size :])[:, -1]  # (1, vocab_size)
        next_token = logits.softmax(dim=-1).multinomial(1)
        tokens = torch.cat([tokens, next_token], dim=1)
    return tokens


# ------------------------------------------------------------------------------------------------
# Data


def encode_with_vocabulary(text: str) -> tuple[Tensor, list[str]]:
    """The text as tokens, int64, and the character of each token."""
    characters = sorted(set(text))
    token_of = {character: token for token, character in enumerate(characters)}
    return torch.tensor([token_of[character] for character in text]), characters


def get_batch(data: Tensor, step: int, shape: tuple[int, ...]) -> Tensor:
    """Random windows of data for a step: shape (..., block_size) gives (..., block_size + 1).

    One token more than block_size, because the targets are the inputs moved by one. The step is
    the seed, so that a training can resume at any step.
    """
    *counts, block_size = shape
    windows = data.unfold(0, block_size + 1, 1)  # a view, (len(data) - block_size, block_size + 1)
    generator = torch.Generator().manual_seed(step)
    starts = torch.randint(len(windows), (math.prod(counts),), generator=generator)
    return windows.index_select(0, starts).unflatten(0, counts)


# ------------------------------------------------------------------------------------------------
# A training step


def make_optimizer(model: nn.Module) -> Optimizer:
    """AdamW that a graph can hold: learning rate and step counts are tensors on the GPU."""
    device = next(model.parameters()).device
    lr = torch.tensor(LEARNING_RATE, device=device)
    parameters = model.named_parameters()  # with their names, which a checkpoint then holds
    return torch.optim.AdamW(parameters, lr=lr, betas=(0.9, 0.99), fused=True, capturable=True)


def lr_factor(step: int, max_steps: int) -> float:
    """The share of LEARNING_RATE that a step uses: it rises, then falls along half a cosine."""
    if step < LEARNING_RATE_WARMUP:
        return (step + 1) / (LEARNING_RATE_WARMUP + 1)
    progress = (step - LEARNING_RATE_WARMUP) / max(1, max_steps - LEARNING_RATE_WARMUP)
    cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
    lowest = MIN_LEARNING_RATE / LEARNING_RATE
    return lowest + cosine * (1 - lowest)


def make_scheduler(optimizer: Optimizer, max_steps: int) -> LambdaLR:
    """Writes each step's learning rate into the tensor that a graph reads.

    Create it before the capture, and before a checkpoint is loaded.
    """
    return LambdaLR(optimizer, partial(lr_factor, max_steps=max_steps))


def loss_of(model: Callable[[Tensor], Tensor], tokens: Tensor) -> Tensor:
    """The mean next-token loss of tokens (B, T + 1), with matrix products in bfloat16."""
    with torch.autocast(tokens.device.type, torch.bfloat16):
        logits = model(tokens[:, :-1])  # (B, T, vocab_size)
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def train_step(model: nn.Module, optimizer: Optimizer, batch: Tensor) -> Tensor:
    """Train on batch (gradient_accumulation_steps, micro_batch, T + 1) and return its mean loss."""
    model.train()
    optimizer.zero_grad()
    losses = []
    for tokens in batch:  # one micro-batch, (micro_batch, T + 1)
        loss = loss_of(model, tokens) / len(batch)
        loss.backward()
        losses.append(loss.detach())
    nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)  # a graph keeps this number
    optimizer.step()
    return torch.stack(losses).sum()


@torch.no_grad()
def evaluate(model: nn.Module, tokens: Tensor) -> Tensor:
    """The loss of tokens (B, T + 1) without dropout."""
    model.eval()
    return loss_of(model, tokens)


# ------------------------------------------------------------------------------------------------
# Capture


class Graphed:
    """function(batch) as one CUDA graph, called like the function.

    The first calls run eagerly on a side stream and are the warm-up that a capture needs. Their
    results count, so there is nothing to undo. The next call captures; from then on a call copies
    its batch into the graph's input and replays. All batches need the shape of the first one. The
    next call overwrites the output: clone it.
    """

    def __init__(
        self,
        function: Callable[[Tensor], Tensor],
        pool: tuple[int, int] | None = None,
        warmup: int = GRAPH_WARMUP,
    ) -> None:
        self.function = function
        self.pool = pool
        self.warmup = warmup
        self.stream = torch.cuda.Stream()
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, batch: Tensor) -> Tensor:
        """The function's output for a batch in pinned memory or on the GPU."""
        if self.warmup > 0:
            self.warmup -= 1
            return self._run_on_side_stream(batch)
        if self.graph is None:
            self.graph = self._capture(batch)
        self.static_batch.copy_(batch, non_blocking=True)
        self.graph.replay()
        return self.output

    def _run_on_side_stream(self, batch: Tensor) -> Tensor:
        current = torch.cuda.current_stream()
        self.stream.wait_stream(current)
        with torch.cuda.stream(self.stream):
            output = self.function(batch)
        current.wait_stream(self.stream)
        return output

    def _capture(self, batch: Tensor) -> torch.cuda.CUDAGraph:
        self.static_batch = batch.to("cuda", copy=True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool):
            self.output = self.function(self.static_batch)
        return graph


# ------------------------------------------------------------------------------------------------
# Checkpoints


class CheckpointError(ValueError):
    """A checkpoint that does not fit; its message says what differs."""


def save_checkpoint(
    path: Path, model: GPT, optimizer: Optimizer, scheduler: LambdaLR, step: int, options: dict
) -> None:
    """Save a training after step steps. An interrupted save leaves the earlier file whole."""
    device = next(model.parameters()).device
    checkpoint = {
        "config": asdict(model.config),
        "options": options,
        "step": step,
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scheduler": scheduler.state_dict(),
        "rng_state": {device.type: _rng_module(device).get_rng_state()},
    }
    unfinished = path.with_name(f"{path.name}.unfinished")
    torch.save(checkpoint, unfinished)
    unfinished.replace(path)


def load_checkpoint(
    path: Path, model: GPT, optimizer: Optimizer, scheduler: LambdaLR
) -> tuple[int, dict]:
    """Restore a training and its random state; return the number of steps done and the options.

    Call it before the capture. A graph knows addresses, and Optimizer.load_state_dict makes new
    tensors, the learning rate included: a graph that was captured before would go on with the old
    ones, without an error.

    Raises CheckpointError, and changes nothing, unless the file has the model's sizes, exactly its
    weights, and the optimizer's state for each. A training that moves between CPU and GPU cannot
    go on with the same random numbers in dropout; a warning says so.
    """
    checkpoint = _read(path)
    _compare(path, checkpoint["config"], asdict(model.config))
    _compare(path, _tensor_descriptions(checkpoint), _expected_descriptions(model))
    device = next(model.parameters()).device
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    for group in optimizer.param_groups:
        group["lr"] = group["lr"].to(device)  # load_state_dict moves only the optimizer's state
    scheduler.load_state_dict(checkpoint["scheduler"])
    rng_state = checkpoint["rng_state"].get(device.type)
    if rng_state is None:
        saved_on = " and ".join(checkpoint["rng_state"])
        warnings.warn(
            f"{path} was saved on {saved_on}: on {device.type} dropout draws other numbers.",
            stacklevel=2,
        )
    else:
        _rng_module(device).set_rng_state(rng_state)
    return checkpoint["step"], checkpoint["options"]


def _rng_module(device: torch.device) -> ModuleType:
    """The module with the random state of a kind of device: torch.cuda, or torch for the CPU."""
    return torch.cuda if device.type == "cuda" else torch


def _read(path: Path) -> dict:
    """A checkpoint, with its tensors on the CPU. Only its outermost keys have been checked."""
    if not path.exists():
        raise CheckpointError(f"There is no {path}: train without --resume first.")
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, EOFError, pickle.UnpicklingError) as error:
        reason = str(error).partition("\n")[0] or "it is empty"
        raise CheckpointError(f"{path} cannot be read as a checkpoint: {reason}") from error
    parts = ("config", "options", "step", "model", "optimizer", "scheduler", "rng_state")
    found = set(checkpoint) if isinstance(checkpoint, dict) else set()
    _compare(path, dict.fromkeys(found), dict.fromkeys(parts))
    return checkpoint


def _tensor_descriptions(checkpoint: dict) -> dict[str, str]:
    """What the weights and the optimizer's tensors of a checkpoint are, by name."""
    found = {f"model {name}": _describe(value) for name, value in checkpoint["model"].items()}
    names = checkpoint["optimizer"]["param_groups"][0].get("param_names", [])
    name_of = dict(enumerate(names))
    for number, state in checkpoint["optimizer"]["state"].items():
        for key, value in state.items():
            found[f"optimizer {number} {name_of.get(number)} {key}"] = _describe(value)
    return found


def _expected_descriptions(model: GPT) -> dict[str, str]:
    """The same of a model that AdamW has trained."""
    expected = {f"model {name}": _describe(value) for name, value in model.state_dict().items()}
    for number, (name, parameter) in enumerate(model.named_parameters()):
        expected[f"optimizer {number} {name} step"] = _describe(torch.zeros(()))
        expected[f"optimizer {number} {name} exp_avg"] = _describe(parameter)
        expected[f"optimizer {number} {name} exp_avg_sq"] = _describe(parameter)
    return expected


def _describe(tensor: Tensor) -> str:
    return f"{tensor.dtype} {tuple(tensor.shape)}"


def _compare(path: Path, saved: dict, expected: dict) -> None:
    """Raise CheckpointError unless both have the same keys and values."""
    missing = [key for key in expected if key not in saved]
    unexpected = [key for key in saved if key not in expected]
    different = [
        f"{key} is {saved[key]} in the file and {expected[key]} here"
        for key in expected
        if key in saved and saved[key] != expected[key]
    ]
    problems = [("missing: ", missing), ("unexpected: ", unexpected), ("", different)]
    said = [f"{title}{_first_few(names)}" for title, names in problems if names]
    if said:
        raise CheckpointError(f"{path} does not fit. {'; '.join(said)}.")


def _first_few(names: list[str], count: int = 4) -> str:
    more = len(names) - count
    return ", ".join(names[:count]) + (f" and {more} more" if more > 0 else "")


# ------------------------------------------------------------------------------------------------
# The script


def parse_arguments(arguments: list[str] | None = None) -> Namespace:
    """The options of the command line."""
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--max_steps", type=_positive, default=1000, help="of the training and its learning rates")
    add("--stop_after", type=_positive, help="stop after this step, to resume later")
    add("--eval_interval", type=_positive, default=100, help="steps between evaluations and saves")
    add("--micro_batch", type=_positive, default=64, help="windows of text in a forward pass")
    add("--gradient_accumulation_steps", type=_positive, default=1, help="micro-batches a step")
    add("--block_size", type=_positive, default=256, help="characters in a window")
    add("--n_layer", type=_positive, default=6)
    add("--n_head", type=_positive, default=6)
    add("--n_embd", type=_positive, default=384)
    add("--dropout", type=float, default=0.2)
    add("--seed", type=int, default=0, help="of the weights and of dropout")
    add("--eager", action="store_true", help="no graphs")
    add("--compile", action="store_true", help="compile the model that the graph holds")
    add("--resume", action="store_true", help="go on from the checkpoint")
    add("--checkpoint", type=Path, default=Path("train_gpt.pt"), help="the file to save and resume")
    args = parser.parse_args(arguments)
    if args.checkpoint.exists() and not args.resume:
        parser.error(
            f"{args.checkpoint} exists: resume it with --resume, or name another with --checkpoint."
        )
    if not args.checkpoint.parent.is_dir():
        parser.error(f"There is no folder {args.checkpoint.parent} for the checkpoint.")
    return args


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ArgumentTypeError(f"{number} is not 1 or more")
    return number


def main(arguments: list[str] | None = None) -> list[float]:
    """Train as the command line says; returns the loss of each step that was run."""
    args = parse_arguments(arguments)
    device = "cuda" if torch.cuda.is_available() else "cpu"

    # Nine tenths of the text to train on, 64 windows of the rest to evaluate on
    data, characters = encode_with_vocabulary(TEXT.read_text(encoding="utf-8"))
    train_data, val_data = data.tensor_split([len(data) * 9 // 10])
    val_batch = get_batch(val_data, 0, (64, args.block_size)).to(device)

    torch.manual_seed(args.seed)
    config = GPTConfig(
        len(characters), args.block_size, args.n_layer, args.n_head, args.n_embd, args.dropout
    )
    model = GPT(config).to(device)
    optimizer = make_optimizer(model)
    scheduler = make_scheduler(optimizer, args.max_steps)
    first_step = resume(args, model, optimizer, scheduler) if args.resume else 0

    # Train
    steps = range(first_step, min(args.stop_after or args.max_steps, args.max_steps))
    if not steps:
        print(f"{args.checkpoint} has {first_step} steps: to go on, give more by --max_steps.")
        return []
    losses = train_loop(args, model, optimizer, scheduler, train_data, val_batch, steps)
    tokens = generate(model, val_batch[:1, :1])
    print("".join(characters[token] for token in tokens[0]))
    return losses


def resume(args: Namespace, model: GPT, optimizer: Optimizer, scheduler: LambdaLR) -> int:
    """Load the checkpoint, say which options have changed, and return the number of steps done."""
    step, saved_options = load_checkpoint(args.checkpoint, model, optimizer, scheduler)
    for name, value in saved_options.items():
        if value != getattr(args, name):
            now = getattr(args, name)
            print(f"--{name} was {value} until step {step} and is {now} from here on.")
    return step


def train_loop(
    args: Namespace,
    model: GPT,
    optimizer: Optimizer,
    scheduler: LambdaLR,
    data: Tensor,
    val_batch: Tensor,
    steps: range,
) -> list[float]:
    """Train for these steps, evaluating and saving between them; returns the loss of each.

    Each evaluation prints the seconds since the start, the capture's among them.
    """
    device = val_batch.device
    on_gpu = device.type == "cuda"
    shape = (args.gradient_accumulation_steps, args.micro_batch, args.block_size)
    options = {name: getattr(args, name) for name in SAVED_OPTIONS}
    # Evaluation is rare, so it is not compiled
    trained_model = torch.compile(model) if args.compile else model

    def eager_step(batch: Tensor) -> Tensor:
        return train_step(trained_model, optimizer, batch.to(device, non_blocking=True))

    train_on: Callable[[Tensor], Tensor] = eager_step
    evaluate_on: Callable[[Tensor], Tensor] = partial(evaluate, model)
    if on_gpu and not args.eager:
        # One pool for both graphs, because they never run at the same time
        pool = torch.cuda.graph_pool_handle()
        train_on = Graphed(train_on, pool)
        evaluate_on = Graphed(evaluate_on, pool, warmup=1)

    losses = []
    started = perf_counter()
    for step in steps:
        batch = get_batch(data, step, shape)
        if on_gpu:
            batch = batch.pin_memory()  # copied to the GPU without a wait
        loss = train_on(batch)
        losses.append(loss.clone())  # the next replay overwrites it
        scheduler.step()
        done = step + 1
        if done % args.eval_interval == 0 or done == steps.stop:
            val_loss = evaluate_on(val_batch)
            said = f"{done}: loss {losses[-1]:.4f}, val loss {val_loss:.4f}"
            print(f"{said}, {perf_counter() - started:.1f} s")
            save_checkpoint(args.checkpoint, model, optimizer, scheduler, done, options)
    return torch.stack(losses).tolist()


if __name__ == "__main__":
    try:
        main()
    except CheckpointError as error:
        sys.exit(str(error))
