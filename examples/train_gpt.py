"""Train a small GPT on characters: each step of the optimizer is one CUDA graph (--eager, or without a GPU: eager)."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from math import cos, pi
from pathlib import Path
from time import perf_counter

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

TEXT, CHECKPOINT = Path(__file__).with_name("shakespeare.txt"), Path("train_gpt.pt")
OPTIONS = {"steps": 1000, "until": 0, "every": 100, "eager": 0, "compile": 0, "resume": 0}
OPTIONS |= {"width": 384, "layers": 6, "context": 256, "rows": 16, "parts": 4}


class _GPT(nn.Module):
    def __init__(self, characters, width=384, layers=6, context=256, dropout=0.2):
        super().__init__()
        self.letters, self.places = nn.Embedding(characters, width), nn.Embedding(context, width)
        sizes = [(width, 3 * width), (width, width), (width, 4 * width), (4 * width, width)]
        self.blocks = nn.ModuleList(nn.ModuleList(nn.Linear(*one, bias=False) for one in sizes) for _ in range(layers))
        self.dropout, self.head = nn.Dropout(dropout), nn.Linear(width, characters)

    def forward(self, tokens):
        x = self.letters(tokens) + self.places.weight[: tokens.shape[1]]
        for mix, out, up, down in self.blocks:
            parts = mix(nn.functional.layer_norm(x, x.shape[-1:])).unflatten(-1, (3, -1, 64))  # heads of 64
            heads = nn.functional.scaled_dot_product_attention(*parts.transpose(1, 3).unbind(2), is_causal=True)
            x = x + self.dropout(out(heads.transpose(1, 2).flatten(2)))
            x = x + self.dropout(down(nn.functional.gelu(up(nn.functional.layer_norm(x, x.shape[-1:])))))
        return self.head(nn.functional.layer_norm(x, x.shape[-1:]))


def build(characters: int, compiled: bool = False, **sizes: int) -> Namespace:
    """A new model and its optimizer, with the learning rate in a tensor, which graphs read."""
    torch.manual_seed(0)
    device, random = ("cuda", torch.cuda) if torch.cuda.is_available() else ("cpu", torch)
    model, rate = _GPT(characters, **sizes).to(device), torch.zeros((), device=device)
    optimizer = torch.optim.AdamW(model.parameters(), rate, (0.9, 0.99), fused=True, capturable=True)
    net = torch.compile(model) if compiled else model
    return Namespace(model=model, net=net, optimizer=optimizer, rate=rate, device=device, random=random)


def draw(ids: Tensor, shape: tuple[int, ...], step: int) -> Tensor:
    """The batch of a step, (parts, rows, places + 1). Its number is the seed, so a loader can start at any step."""
    starts = torch.randint(len(ids) - shape[-1], shape[:-1], generator=torch.Generator().manual_seed(step))
    return ids.unfold(0, shape[-1] + 1, 1).index_select(0, starts.flatten()).unflatten(0, shape[:-1])


def loss_of(model: Callable, tokens: Tensor) -> Tensor:
    """The mean loss of tokens (rows, places + 1): each is foretold from those before it."""
    with torch.autocast(tokens.device.type, torch.bfloat16):
        return nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


def train_step(t: Namespace, tokens: Tensor) -> Tensor:
    """One step of the optimizer, with the gradients of all parts of a batch; returns its loss."""
    t.optimizer.zero_grad()
    losses = []
    for part in tokens:
        losses.append(loss_of(t.net.train(), part) / len(tokens))
        losses[-1].backward()
    nn.utils.clip_grad_norm_(t.model.parameters(), 1.0)
    t.optimizer.step()
    return torch.stack(losses).detach().sum()


@torch.no_grad()
def evaluate(t: Namespace, tokens: Tensor) -> Tensor:
    """The loss of tokens (rows, places + 1), without dropout and never compiled."""
    return loss_of(t.model.eval(), tokens)


def state_of(t: Namespace) -> dict[str, Tensor]:
    """All that training changes, by name: the weights, what the optimizer keeps of each, the random state."""
    kept = {f"{i} {key}": value for i, state in enumerate(t.optimizer.state.values()) for key, value in state.items()}
    return t.model.state_dict() | kept | {"random": t.random.get_rng_state()}


def restore(t: Namespace, saved: dict[str, Tensor]) -> None:
    """Write a state into the tensors that graphs know. What is not in it is new, and starts at zero."""
    for name, value in state_of(t).items():
        value.copy_(saved.get(name, torch.zeros(())))
    t.random.set_rng_state(saved["random"])


def capture(function: Callable, t: Namespace, tokens: Tensor, pool: tuple | None = None) -> tuple[Callable, tuple]:
    """function(t, tokens) as one CUDA graph, to be called like it, and its pool. The warm-up is a real call."""
    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        function(t, tokens)
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.graph(graph, pool=pool):
        output = function(t, tokens)
    torch.cuda.synchronize()  # a capture writes the random seed and offset, on its own stream

    def replay(_, new):
        tokens.copy_(new)
        graph.replay()
        return output

    return replay, graph.pool()


@torch.no_grad()
def sample(model: nn.Module, tokens: Tensor, context: int, count: int = 300) -> Tensor:
    """Tokens (1, places), and so many more that the model draws one by one."""
    for _ in range(count):
        tokens = torch.cat([tokens, model.eval()(tokens[:, -context:])[:, -1].softmax(-1).multinomial(1)], 1)
    return tokens


def _options(arguments):
    parser = ArgumentParser(description=__doc__)
    for name, default in OPTIONS.items():
        parser.add_argument(f"--{name}", type=int, nargs="?", const=1, default=default)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> list[float]:
    """Train as the command line says; returns the loss of each step."""
    o, start, text = _options(arguments), perf_counter(), TEXT.read_text(encoding="utf-8")
    characters = sorted(set(text))
    ids, others = torch.tensor([characters.index(one) for one in text]).tensor_split([len(text) * 9 // 10])
    t = build(len(characters), o.compile, width=o.width, layers=o.layers, context=o.context)
    shape, step, test = (o.parts, o.rows, o.context), train_step, evaluate
    example, held_out = draw(ids, shape, 0).to(t.device), draw(others, (64, o.context), 0).to(t.device)
    saved = torch.load(CHECKPOINT) if o.resume else {"step": 0} | {n: v.clone() for n, v in state_of(t).items()}
    step(t, example)  # makes the optimizer's state
    if t.device == "cuda" and not o.eager:
        step, pool = capture(step, t, example)
        test, _ = capture(test, t, held_out, pool)
    numbers, losses = range(saved["step"], o.until or o.steps), []
    feed = iter(DataLoader(numbers, None, collate_fn=lambda n: draw(ids, shape, n), pin_memory=t.device == "cuda"))
    restore(t, saved)
    for number, batch in zip(numbers, feed, strict=True):
        t.rate.fill_(1e-3 * min(1, (number + 1) / 100) * (0.55 + 0.45 * cos(pi * number / o.steps)))
        losses.append(step(t, batch.to(t.device, non_blocking=True)).clone())
        if (number + 1) % o.every == 0 or number + 1 == numbers.stop:
            print(f"{number + 1}: loss {losses[-1]:.4f}, test {test(t, held_out):.4f}, {perf_counter() - start:.1f} s")
            torch.save(state_of(t) | {"step": number + 1}, CHECKPOINT)
    print("".join(characters[one] for one in sample(t.model, held_out[:1, :1], o.context)[0]))
    return torch.stack(losses).tolist()


if __name__ == "__main__":
    main()
