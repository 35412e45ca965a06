"""Scenarios: a decoder's next tokens, one or several in a graph, and the largest logit in two
stages. Each raises Wrong with the symptom it finds.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from cpu_graph.graphs import CUDAGraph
from examples.decoder import Config, Decoder, new_kv_cache, sample
from exercises.answers.graph_use import EAGER, Wrong, close, copied, nothing_freed, use, watch
from exercises.scenarios.common import few, launch_log
from exercises.scenarios.rules import one_graph

SIZES = Config(
    n_layers=1, dim=32, n_heads=4, n_kv_heads=2, hidden_dim=64, vocab_size=64, max_seq_len=40
)
LATE = range(1, 9)  # tokens that a warm-up may have decoded
FORGETS = (
    "The cache forgets what is written: let the model write into the very cache that it is given."
)
FROZEN = (
    "The position stays that of the capture: keep it in a tensor, and "
    "advance that in place, inside."
)
NOT_FED = (
    "Every call decodes the same input token: write the new one into tokens, in place, inside."
)
REBOUND = (
    "Every call decodes the same token at the same position: a new tensor under the old name is "
    "not what it reads."
)
WARMED = "The first token is number {}: a warm-up decoded. Undo it."
MOVED = "The position is {} too far on: the warm-up advanced it. Restore it, as you do the token."
READ = "The first token is the one that the step reads: return those that come after it."
LIKELIEST = "These are the most likely tokens: draw them, with the temperature and the generator."
DREW = (
    "Other tokens are drawn than eager draws: the warm-up drew too. Put the generator's state back."
)
WAITS = (
    "Each call waits for the GPU: leave the tokens there, and let the "
    "caller decide when to read them."
)
NO_ROOM = (
    "The warm-up decodes beyond the end of the cache, which has room for one "
    "warm-up: capture with warmup=1."
)
ONE_STAGE = "A reduction still runs over all {} logits of a row: reduce within the pieces first."
State = tuple[Tensor, Tensor, Tensor]


def prompted(rows: int, room: int = 0) -> tuple[Decoder, State]:
    """A tiny decoder, and its state after a prompt: tokens and positions (rows, 1), and the cache.

    room: how many more tokens fit into the cache; by default the prompt is short.
    """
    length = SIZES.max_seq_len - room if room else few(4, 8)
    model = Decoder(SIZES, "cuda").requires_grad_(False)
    cache = new_kv_cache(SIZES, rows, "cuda", torch.float32)
    prompt = torch.randint(SIZES.vocab_size, (rows, length), device="cuda")
    tokens = sample(
        model(prompt, torch.arange(prompt.shape[1], device="cuda").expand_as(prompt), cache)
    )
    return model, (tokens, torch.full_like(tokens, prompt.shape[1]), cache)


def decoded(
    model: Decoder, state: State, count: int, draw: tuple = (), **breaks: bool
) -> list[Tensor]:
    """The next count tokens. draw: temperature and generator. breaks: feeds=False decodes the same
    input again, moves=False stays at the position, keeps=False loses what is written into the
    cache."""
    feeds, moves, keeps = ({"feeds": True, "moves": True, "keeps": True} | breaks).values()
    (tokens, positions, cache), given = copied(state), []
    for _ in range(count):
        given.append(sample(model(tokens, positions, cache if keeps else cache.clone()), *draw))
        tokens, positions = given[-1] if feeds else tokens, positions + moves
    return given


def broken(model: Decoder, state: State, count: int, draw: Callable) -> Iterator[tuple[str, list]]:
    """What can be wrong with count tokens, and the tokens it leads to. draw(late) begins late draws
    later.
    """
    expected = decoded(model, state, count, draw())
    yield READ, [state[0], *expected[:-1]]
    if draw():
        yield LIKELIEST, decoded(model, state, count)
    yield NOT_FED, decoded(model, state, count, draw(), feeds=False)
    yield REBOUND, decoded(model, state, count, draw(), feeds=False, moves=False)
    yield FORGETS, decoded(model, state, count, draw(), keeps=False)
    tokens, positions, cache = copied(state)
    late_by = range(1, min(len(LATE), cache.shape[-2] - int(positions.max()) - count) + 1)
    later = decoded(model, state, count + len(late_by), draw())
    yield FROZEN, decoded(model, state, count, draw(), moves=False)
    for late, token in zip(late_by, later, strict=False):
        model(tokens, positions, cache)
        tokens, positions = token, positions + 1
        for first in (state[0], tokens):
            yield FROZEN, decoded(model, (first, positions, cache), count, draw(), moves=False)
        yield MOVED.format(late), decoded(model, (state[0], positions, cache), count, draw())
        yield WARMED.format(late + 1), later[late : late + count]
        yield DREW, decoded(model, state, count, draw(late))


def graph_decode(answer: Callable) -> None:
    """The most likely tokens of one row, then tokens that a generator draws for two."""
    for rows, temperature, calls in ((1, 0.0, 4), (2, 0.9, 4)):
        (model, state), seed = prompted(rows), few(1, 1000)

        def draw(late=0, rows=rows, temperature=temperature, seed=seed):
            generator = torch.Generator("cuda").manual_seed(seed)
            for _ in range(late):
                sample(torch.zeros(rows, SIZES.vocab_size, device="cuda"), 1.0, generator)
            return temperature, generator

        expected = decoded(model, state, calls, draw())
        own = copied(state)  # kept alive: a graph holds addresses only
        used = use(_without_wait(answer(model, *own, *draw())), [()] * calls)
        if not close(used.given, expected):
            for message, tokens in broken(model, state, calls, draw):
                if close(used.given, tokens):
                    raise Wrong(message)
        used.gives(expected, {})
        used.replays(graphs=calls, operators=calls)


def _without_wait(following: Any) -> Any:
    """The reader's function; on the stand-in it raises Wrong if a call waits for the GPU."""
    if not callable(following) or not CUDAGraph.stand_in:
        return following

    def call():
        result = following()
        if not launch_log():
            raise Wrong(WAITS)
        return result

    return call


def generate(answer: Callable) -> None:
    """One row that comes to its end within a replay, not before the limit, or just behind it."""
    for at, every, limit in ((4, 3, 9), (None, 2, 4), (5, 3, 5), (None, 5, 3)):
        room = limit + every - 1 + every  # beyond the limit, and for one warm-up
        model, state = prompted(1, room)
        tokens = [one.item() for one in decoded(model, state, room)]
        end = SIZES.vocab_size if at is None else tokens[at]
        count = tokens.index(end) + 1 if end in tokens[:limit] else limit
        own = copied(state)
        with watch() as seen:
            try:
                given = answer(model, *own, end, every, limit)
            except RuntimeError as error:
                if "device-side assert" not in str(error):
                    raise
                raise Wrong(NO_ROOM) from None
        nothing_freed()
        one_graph(seen)
        if not isinstance(given, list | tuple) or not all(isinstance(one, int) for one in given):
            raise Wrong("A list of whole numbers is asked: .tolist() makes one.")
        if not seen.replayed:
            raise Wrong(EAGER)
        _generated(list(given), tokens, count, every, len(seen.replayed), (model, state))


def _generated(given, tokens, count, every, made, start):
    """Raises Wrong unless given are the first count of tokens, from as few replays of every tokens
    as do. start: the model and its state before the first of them.
    """
    asked = -(-count // every)
    if given != tokens[:count]:
        if given[:every] == given[every - 1 : every] * every:
            raise Wrong(
                "All tokens of a replay are its last one: clone each, inside of the capture."
            )
        if given == tokens[: count - 1]:
            raise Wrong("The last token is missing: the end belongs to the answer.")
        if given == tokens[: len(given)]:
            raise Wrong(
                f"{len(given)} tokens where {count} are asked: stop with the end, or at the limit."
            )
        for message, expected in broken(*start, 3, lambda late=0: ()):
            if given and given[:3] == [token.item() for token in expected][: len(given)]:
                raise Wrong(message)
        raise Wrong(f"The tokens are not eager's: yours {given[:6]}, expected {tokens[:6]}.")
    if made != asked:
        raise Wrong(
            f"{made} replays where {asked} do: {every} tokens in one "
            "graph, and a look after each replay."
        )


def largest_token(answer: Callable) -> None:
    """The largest logit's number, for several rows and pieces, captured and on new logits."""
    for rows, pieces, size in ((1, 8, 16), (3, 4, 10), (2, 16, 3)):
        logits = [torch.randn(rows, pieces * size, device="cuda") for _ in range(3)]
        static = logits[0].clone()
        with Reductions() as reductions:
            first = answer(static, pieces)
        if max(reductions.lengths, default=0) > max(pieces, size):
            raise Wrong(ONE_STAGE.format(pieces * size))
        if not torch.is_tensor(first):
            raise Wrong("A tensor (B, 1) is asked: the CPU must not read the number.")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = answer(static, pieces)
        for new in logits:
            static.copy_(new)
            graph.replay()
            expected = new.argmax(dim=-1, keepdim=True)
            _largest(found.clone(), expected, pieces, size)


def _largest(found: Tensor, expected: Tensor, pieces: int, size: int) -> None:
    """Raises Wrong unless found are the expected numbers, (B, 1)."""
    if found.shape != expected.shape:
        raise Wrong(f"The shape is {tuple(found.shape)}, expected {tuple(expected.shape)}.")
    if torch.equal(found, expected):
        return
    if torch.equal(found, expected % size):
        raise Wrong("These are places within a piece: add where the piece begins.")
    if torch.equal(found, expected // size):
        raise Wrong("These are the numbers of the pieces, not of the logits.")
    if torch.equal(found, expected // size * pieces + expected % size):
        raise Wrong("A piece begins at its number times the size of a piece.")
    raise Wrong(f"Yours are {found.flatten().tolist()}, expected {expected.flatten().tolist()}.")


class Reductions(TorchDispatchMode):
    """Notes over how many numbers each argmax, max and topk of the block runs."""

    def __init__(self) -> None:
        super().__init__()
        self.lengths: list[int] = []

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        if operator.overloadpacket.__name__ in ("argmax", "max", "amax", "topk", "sort"):
            dim = args[1] if len(args) > 1 else (kwargs or {}).get("dim")
            if operator.overloadpacket.__name__ in ("topk", "sort"):
                dim = -1
            if isinstance(dim, list):
                dim = dim[0] if dim else None
            self.lengths.append(args[0].numel() if dim is None else args[0].shape[dim])
        return operator(*args, **(kwargs or {}))
