"""Scenarios of Split a decoder over two GPUs: one rank's share of a layer, sums through a buffer, a
head in two halves. The scenario plays the other rank.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from cpu_graph.log import places
from exercises.answers.graph_use import AnswerCalls, GraphUse, call_answer, watch_graphs
from exercises.answers.wrong import Wrong, require_function
from exercises.scenarios.common import draw_int, nodes_of, require_integers
from exercises.scenarios.rules import require_one_graph, unmodified

TWICE = "The bias of down is added twice: add it after the all-reduce, or on one rank before it."
LEFT_OUT = "The bias of down is left out: add it once."
OWN_SHARE = "The result is this rank's summand alone: capture the all-reduce too."
WHOLE = "Each rank computes the whole layer, so the sum is twice as large: keep a share."
SAME_SHARE = "Both ranks compute the same share: chunk(world_size)[rank] is this rank's."
NO_HIDDEN_BIAS = "The bias of up is left out: each rank adds the share of its hidden units."
OVERWRITTEN = (
    "The first sum is gone when it is added.",
    "The second exchange wrote into the same buffer: clone the sum, inside of the capture.",
)
OWN_TOKENS = "The tokens count from this rank's first row: add rank * len(head)."
OWN_BEST = "Each result is this rank's best token: compare with the other rank's."
OTHER_WAY = "The rank with the smaller value wins."


def frozen_layers(*sizes: tuple[int, int]) -> list[nn.Linear]:
    """Linear layers from so many numbers to so many, which nobody trains."""
    return [nn.Linear(*size).cuda().requires_grad_(False) for size in sizes]


def judge_graph_feed_forward(answer: Callable) -> None:
    """A share of two, then one of four, for four inputs each; the answer plays all ranks."""
    for rank, world_size in ((0, 2), (3, 4)):
        up, down = frozen_layers((6, 8), (8, 6))
        xs = list(torch.randn(4, draw_int(), 6, device="cuda"))
        hidden = [linear(x, up.weight, up.bias).relu() for x in xs]
        whole = [linear(one, down.weight) for one in hidden]
        own, first = (partial_sums(hidden, down, number, world_size) for number in (rank, 0))
        others = [number for number in range(world_size) if number != rank]
        sent = [_sent_by(answer, up, down, number, world_size, xs) for number in others]
        theirs = [sum(summands) for summands in zip(*sent, strict=True)]
        summand = torch.zeros_like(theirs[0])  # what the other ranks send
        sample = xs[0].clone()
        with unmodified("sample or x", sample, xs):
            with watch_graphs() as built:
                function = answer(
                    up, down, lambda x, add=summand: x + add, rank, world_size, sample
                )
            reduced = wrap_with_summands(require_function(function), summand, theirs)
            used = call_answer(reduced, list(xs))
        expected = [one + down.bias for one in whole]
        no_bias = [linear(linear(x, up.weight).relu(), down.weight) for x in xs]
        used.require_results(
            expected,
            {
                LEFT_OUT: whole,
                TWICE: [one + down.bias for one in expected],
                OWN_SHARE: [one + down.bias for one in own],
                WHOLE: [2 * one for one in expected],
                NO_HIDDEN_BIAS: [one + down.bias for one in no_bias],
                SAME_SHARE: [2 * one + down.bias for one in first],
            },
        )
        used.require_launches(graphs=4, operators=12)
        require_one_graph(built)
        require_own_share(built, len(up.weight))


def require_own_share(built: GraphUse, hidden: int) -> None:
    """Raises Wrong if a captured node works on all hidden units. Only the stand-in knows."""
    used = places([(node.args, node.kwargs, node.outputs) for node in nodes_of(built)])
    if any(hidden in place.where[1] for place in used):
        raise Wrong(
            f"The graph computes with all {hidden} hidden units: a rank keeps its share of them, "
            "so that each matrix is read once by all ranks together."
        )


def partial_sums(hidden: list[Tensor], down: nn.Linear, rank: int, world_size: int) -> list[Tensor]:
    """A rank's summands, without a bias: its part of the hidden units (B, 8) through down."""
    weight = down.weight.chunk(world_size, dim=1)[rank]
    return [one.chunk(world_size, dim=1)[rank] @ weight.t() for one in hidden]


def _sent_by(answer, up, down, rank, world_size, xs):
    """What the answer hands to the all-reduce on a rank, for each input; nothing comes back."""
    kept = []

    def all_reduce(x):
        kept.append(x.clone())
        return kept[-1].clone()

    function = require_function(answer(up, down, all_reduce, rank, world_size, xs[0].clone()))
    sent = []
    for x in xs:
        function(x.clone())
        if not kept:
            raise Wrong(OWN_SHARE)
        sent.append(kept[-1].clone())
    return sent


def wrap_with_summands(function: Callable, summand: Tensor, theirs: list[Tensor]) -> Callable:
    """The answer's function, called after the other rank has set what it sends."""
    turns = iter(theirs)

    def call(x):
        summand.copy_(next(turns))
        return function(x)

    return call


def judge_graph_two_layers(answer: Callable) -> None:
    """Four inputs through two layers, whose other halves another rank adds."""
    first, second = frozen_layers((6, 6), (6, 6))
    xs = list(torch.randn(4, draw_int(), 6, device="cuda"))
    buffer = torch.zeros_like(xs[0])
    others = torch.randn(2, *buffer.shape, device="cuda")
    calls = []

    def exchange(tensor):
        calls.append(tensor.data_ptr())
        return tensor.add_(others[(len(calls) - 1) % 2])

    sample = xs[0].clone()
    with unmodified("sample or x", sample, xs):
        used = call_answer(answer(first, second, exchange, buffer, sample), list(xs))
    if any(address != buffer.data_ptr() for address in calls):
        raise Wrong(
            "exchange got a tensor that the other ranks cannot read.",
            "Copy into buffer, and exchange that.",
        )
    if not calls or len(calls) % 2:
        raise Wrong(
            f"exchange was called {len(calls)} times.", "Each run of the step needs two calls."
        )
    sums = [first(x) + others[0] for x in xs]
    seconds = [second(y) + others[1] for y in sums]
    expected = [y + z for y, z in zip(sums, seconds, strict=True)]
    used.require_results(expected, {OVERWRITTEN: [2 * z for z in seconds]})
    used.require_launches(graphs=4, operators=8)


TIED_TOKENS = (5, 16 + 3)  # of which each has the same row in the head


def judge_graph_best_token(answer: Callable) -> None:
    """Each rank's half of a head; rows are won by both ranks, and in some two tokens tie."""
    heads = torch.randn(2, 16, 6, device="cuda")
    xs = list(torch.randn(4, 8, 6, device="cuda"))
    tied = torch.tensor([3.0, 1, -2, 2, 1, 3], device="cuda")  # whole, so that no sum rounds
    heads[0, 5] = heads[1, 3] = tied
    for x in xs:
        x[0] = tied
    by_rank = [_require_best_tokens(answer, heads, xs, rank) for rank in (0, 1)]
    for one, other in zip(*by_rank, strict=True):
        if one != other:
            raise Wrong(
                f"Two logits tie, and rank 0 chooses token {one}, rank 1 token {other}: decide by "
                "what gather returned, which is the same on every rank."
            )


def _require_best_tokens(answer, heads, xs, rank):
    """The tokens that a rank chooses where two tie. Raises Wrong if others are not the best."""
    best = [[(x @ head.t()).max(dim=-1) for head in heads] for x in xs]
    sent = torch.zeros(2, 8, device="cuda"), torch.zeros(2, 8, dtype=torch.long, device="cuda")
    shapes = []

    def gather(values, tokens):
        shapes.append((tuple(values.shape), tuple(tokens.shape)))
        if shapes[-1] != ((8,), (8,)):
            return values.expand(2, *values.shape), tokens.expand(2, *tokens.shape)
        both = [
            torch.stack([own, theirs[1 - rank]])
            for own, theirs in zip((values, tokens), sent, strict=True)
        ]
        return [pair.flip(0) if rank else pair for pair in both]

    turns = iter(best)

    def call(x, function):
        for number, (values, tokens) in enumerate(next(turns)):
            sent[0][number].copy_(values)
            sent[1][number].copy_(tokens + 16 * number)
        return function(x)

    sample = xs[0].clone()
    with unmodified("sample or x", sample, xs):
        function = require_function(answer(heads[rank].clone(), gather, rank, sample))
        if not shapes:
            raise Wrong(OWN_BEST)
        if any(pair != ((8,), (8,)) for pair in shapes):
            raise Wrong(
                f"gather got the shapes {shapes[0]}: only the best value and token of each row."
            )
        used = call_answer(lambda x: call(x, function), list(xs))
    right = [torch.cat([x @ head.t() for head in heads], dim=-1).argmax(dim=-1) for x in xs]
    tied = _accept_tied_tokens(used, right)
    mine = [pair[rank].indices for pair in best]
    other = [pair[1 - rank].indices + 16 * (1 - rank) for pair in best]
    wins = [pair[rank].values > pair[1 - rank].values for pair in best]
    own = [one + 16 * rank for one in mine]
    symptoms = {
        OWN_TOKENS: pick_winners(wins, mine, other),
        OWN_BEST: own,
        OTHER_WAY: pick_winners(wins, other, own),
    }
    used.require_results(right, symptoms)
    used.require_launches(graphs=4, operators=32)
    require_integers(used.given)
    return tied


def _accept_tied_tokens(used: AnswerCalls, right: list[Tensor]) -> list[int]:
    """The tokens that were chosen where two tie; from then on they are the right ones."""
    tokens = []
    for given, one in zip(used.given, right, strict=True):
        if given.shape != one.shape:
            continue
        for row in range(len(one)):
            if int(one[row]) in TIED_TOKENS and int(given[row]) in TIED_TOKENS:
                one[row] = given[row]
                tokens.append(int(given[row]))
    return tokens


def pick_winners(wins: list[Tensor], these: list[Tensor], those: list[Tensor]) -> list[Tensor]:
    """These tokens in the rows that are won, those in the others."""
    return [torch.where(won, a, b) for won, a, b in zip(wins, these, those, strict=True)]
