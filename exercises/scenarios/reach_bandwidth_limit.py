"""Scenarios of Reach the memory-bandwidth limit: a norm that is folded into a product, attention in
splits, the largest logit in two stages.
"""

import math
from collections.abc import Callable, Iterator

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor

from cpu_graph.log import operator_of, places
from cpu_graph.nodes import Node
from exercises.answers.graph_use import Watched, Wrong, close, filled, use, watch
from exercises.scenarios.common import few, nodes_of
from exercises.scenarios.rules import callers_own
from helpers.capture import capture_step

PRODUCTS = ("mm", "addmm", "mv", "bmm")
REDUCES = ("max", "amax", "argmax", "sum", "logsumexp", "topk")
ALONG = ("_softmax", "sort")  # along the dimension that an argument names
NO_EPS = ("The results are too large where x is small.", "Add norm.eps before the square root.")
FROZEN_SCALE = (
    "Every result is divided by the root mean square of the sample.",
    "Compute it inside of the capture.",
)
NO_GAIN = ("The gain of the norm is missing.", "Multiply each column of the weight by its gain.")
BY_ROWS = ("The gain multiplies rows of the weight.", "It belongs to the columns, which meet x.")
WEIGHT_AGAIN = (
    "{} nodes of the graph work on as many numbers as the weight has.",
    "Only the product should: compute the folded weight before the capture.",
)
AFTER_NORM = (
    "The product reads what an earlier kernel of the graph wrote.",
    "Fold the gain into the weight, multiply it by x itself, and the result by the scale.",
)
ONE_STAGE = (
    "A reduction runs over {} numbers, more than a piece has.",
    "Reduce within each piece, then over the pieces. A product and a softmax reduce, too.",
)
OTHER_PIECES = (
    "Your pieces have {} numbers, expected {}.",
    "unflatten(-1, (n_pieces, -1)) divides a row into n_pieces pieces.",
)
AVERAGED = ("The splits count equally.", "Weight each with its share of the softmax's sum.")
NOT_RESCALED = (
    "Sums of splits are added although each split subtracted its own largest score.",
    "Bring them to the same largest score first.",
)
BY_LARGEST = (
    "A split counts by its largest score alone.",
    "Its share depends on its sum of exponentials, too.",
)
NOT_A_NUMBER = (
    "A result holds NaN.",
    "A split behind the position has only minus infinity, so its sum is zero: give it no weight.",
)
OVERFLOW = (
    "A result is not finite where scores are large.",
    "Subtract the largest score before each exp.",
)
FROZEN_POSITION = (
    "Every replay attends to the same slots, whatever the position.",
    "Compare slots with input_pos on the GPU, inside of the function.",
)
SLOT_MISSING = ("The slot at the position itself is missing.", "The query attends to it, too.")


def fold_norm(answer: Callable) -> None:
    """Five inputs of different sizes, through a norm with gains and a large eps."""
    dim = few(5, 9)
    norm = nn.RMSNorm(dim, eps=0.5, device="cuda").requires_grad_(False)
    norm.weight.copy_(torch.rand(dim) + 0.5)
    linear = nn.Linear(dim, dim, bias=False, device="cuda").requires_grad_(False)
    xs = [torch.randn(1, dim, device="cuda") * size for size in (1.0, 0.3, 2.0, 0.1, 5.0)]
    sample = xs[0].clone()
    with callers_own("a weight or the sample", norm.weight, linear.weight, sample):
        with watch() as built:
            replay = answer(norm, linear, sample)
        used = use(replay, xs)

    def product(x, gain, eps, like=None):
        like = x if like is None else like
        scale = torch.rsqrt(like.square().mean(dim=-1, keepdim=True) + eps)
        return F.linear(x, linear.weight * gain) * scale

    gain, rows = norm.weight, norm.weight[:, None]
    used.gives(
        [product(x, gain, norm.eps) for x in xs],
        {
            NO_EPS: [product(x, gain, 0.0) for x in xs],
            FROZEN_SCALE: [product(x, gain, norm.eps, xs[0]) for x in xs],
            NO_GAIN: [product(x, 1.0, norm.eps) for x in xs],
            BY_ROWS: [product(x, rows, norm.eps) for x in xs],
        },
    )
    used.replays(graphs=5, operators=10)
    reads_weight_once(nodes_of(built), linear.weight.numel())


def reads_weight_once(nodes: list[Node], size: int) -> None:
    """Raises Wrong unless a single node, a product, works on a tensor of the weight's size, and
    reads no other node's output.
    """
    large = [
        node
        for node in nodes
        if any(
            math.prod(place.where[1]) == size
            for place in places((node.args, node.kwargs, node.outputs))
        )
    ]
    if len(large) > 1:
        raise Wrong(filled(WEIGHT_AGAIN, len(large)))
    written: set[int] = set()
    for node in nodes:
        if operator_of(node) in PRODUCTS and any(id(p.block) in written for p in places(node.args)):
            raise Wrong(AFTER_NORM)
        written |= {id(place.block) for place in places(node.outputs)}


def reduced_over(node: Node) -> int:
    """How many numbers each result of a reduction, a softmax or a product is made of, else 0."""
    name, given = operator_of(node), places(node.args)
    if name in REDUCES:
        return math.prod(given[0].where[1]) // math.prod(places(node.outputs)[0].where[1])
    if name in ALONG:
        dim = node.args[1] if len(node.args) > 1 else node.kwargs["dim"]
        return given[0].where[1][dim]
    if name in PRODUCTS:
        return given[-2].where[1][-1]
    if "scaled_dot_product" in name:
        return given[1].where[1][-2]  # the slots of the keys
    return 0


def in_two_stages(seen: Watched, longest: int) -> None:
    """Raises Wrong if a reduction of a captured graph runs over more than longest numbers."""
    length = max(map(reduced_over, nodes_of(seen)), default=0)
    if length > longest:
        raise Wrong(filled(ONE_STAGE, length))


def in_pieces(seen: Watched, total: int, size: int) -> None:
    """Raises Wrong if a reduction of all the total numbers does not run over size of them."""
    for node in nodes_of(seen):
        length = reduced_over(node)
        if length not in (0, size) and math.prod(places(node.args)[0].where[1]) == total:
            raise Wrong(filled(OTHER_PIECES, length, size))


def replayed(function: Callable, static: Tensor, news: list[Tensor]) -> Iterator[Tensor]:
    """Capture function(), and its result after a replay for each new value of static."""
    replay = capture_step(lambda _: function(), static)
    for new in news:
        result = replay(new)
        if not torch.is_tensor(result):
            raise Wrong("Return a tensor: the CPU must not read the result.")
        yield result.clone()


def largest_token(answer: Callable) -> None:
    """The largest logit's number, for several rows and pieces, captured and on new logits."""
    for rows, pieces, size in ((1, 8, 16), (3, 4, 10), (2, 16, 3)):
        logits = [torch.randn(rows, pieces * size, device="cuda") for _ in range(3)]
        static = logits[0].clone()
        with watch() as seen:
            found = list(replayed(lambda: answer(static, pieces), static, logits))  # noqa: B023
        for one, new in zip(found, logits, strict=True):
            _largest(one, new.argmax(dim=-1, keepdim=True), pieces, size)
        in_two_stages(seen, max(pieces, size))
        in_pieces(seen, rows * pieces * size, size)


def _largest(found: Tensor, expected: Tensor, pieces: int, size: int) -> None:
    """Raises Wrong unless found are the expected numbers, (B, 1)."""
    if found.shape != expected.shape:
        raise Wrong(f"The shape is {tuple(found.shape)}, expected {tuple(expected.shape)}.")
    if torch.equal(found, expected):
        return
    if torch.equal(found, expected % size):
        raise Wrong("These are indices within a piece: add where the piece begins.")
    if torch.equal(found, expected // size * pieces + expected % size):
        raise Wrong("A piece begins at its number times the size of a piece.")
    raise Wrong(f"Yours are {found.flatten().tolist()}, expected {expected.flatten().tolist()}.")


def attend(q: Tensor, keys: Tensor, values: Tensor, slots: Tensor) -> Tensor:
    """Attention of q (heads, head_dim) to the slots that are True, (heads, head_dim)."""
    scores = (keys @ q[:, :, None])[..., 0].masked_fill(~slots, -torch.inf)
    return (scores.softmax(dim=-1)[:, None] @ values)[:, 0]


def split_attention(answer: Callable) -> None:
    """The last position, the first, one in the second split; then with scores that overflow."""
    heads, head_dim = few(2, 4), 4
    n_splits, size = 4, 8
    keys, values = torch.randn(2, heads, n_splits * size, head_dim, device="cuda")
    numbers = torch.arange(n_splits * size, device="cuda")
    positions = [torch.full((1,), pos, device="cuda") for pos in (n_splits * size - 1, 0, size + 2)]
    for scale in (1.0, 100.0):
        q = torch.randn(heads, head_dim, device="cuda") * scale
        input_pos = positions[0].clone()
        given = q, keys, values, input_pos
        with callers_own("q, keys or values", *given[:3]), watch() as seen:
            found = list(replayed(lambda: answer(*given, n_splits), input_pos, positions))  # noqa: B023
        expected = [attend(q, keys, values, numbers <= pos) for pos in positions]
        if not close(found, expected):
            _attention(found, expected, given, positions, n_splits, scale)
        in_two_stages(seen, max(size, n_splits))


def _attention(found, expected, given, positions, n_splits, scale):
    """Raises Wrong with what is wrong with the attention's results."""
    q, keys, values, _ = given
    numbers = torch.arange(keys.shape[1], device="cuda")
    if close(found, expected[:1] * 3):
        raise Wrong(FROZEN_POSITION)
    if close(found[0], attend(q, keys, values, numbers < positions[0])):
        raise Wrong(SLOT_MISSING)
    if any(bool(one.isnan().any()) for one in found[1:]) and scale == 1:
        raise Wrong(NOT_A_NUMBER)
    if any(not bool(one.isfinite().all()) for one in found):
        raise Wrong(OVERFLOW)
    scores = (keys @ q[:, :, None])[..., 0].unflatten(1, (n_splits, -1))
    top = scores.amax(dim=-1, keepdim=True)  # (heads, splits, 1)
    total = (scores - top).exp().sum(dim=-1, keepdim=True)
    pieces = (scores.softmax(dim=-1)[:, :, None] @ values.unflatten(1, (n_splits, -1)))[:, :, 0]
    shares = {AVERAGED: torch.ones_like(top), NOT_RESCALED: total, BY_LARGEST: top.softmax(dim=1)}
    for symptom, share in shares.items():
        if close(found[0], (share * pieces).sum(dim=1) / share.sum(dim=1)):
            raise Wrong(symptom)
    raise Wrong("The results are not those of attention over all slots up to the position.")
