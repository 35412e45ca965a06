"""Scenarios: random numbers in graphs. Each raises Wrong with the symptom it finds."""

from collections.abc import Callable

import torch
from torch.nn.functional import dropout

from course.answers.graph_use import Wrong, close, use
from course.scenarios.common import few


def noise_graph(answer: Callable) -> None:
    """A generator that was seeded, and five draws of one shape."""
    shape = (few(), 3)
    seed = few(1, 1000)
    calls = 5
    reference, own = (torch.Generator("cuda").manual_seed(seed) for _ in range(2))

    def draws(count, generator=None):
        return [torch.randn(shape, device="cuda", generator=generator) for _ in range(count)]

    later = draws(calls + 10, reference)
    expected = later[:calls]
    torch.cuda.manual_seed(seed + 1)
    others = draws(calls)
    torch.cuda.manual_seed(seed + 1)
    used = use(answer(own, shape), [()] * calls)
    symptoms = {
        "Every draw is the same: draw the numbers inside of the capture.": expected[:1] * calls,
        "The numbers are not the generator's but the default one's: pass "
        "generator=generator.": others,
    }
    for late in range(1, 11):
        symptoms[f"The first draw is number {late + 1}: a warm-up drew. Put its state back."] = (
            later[late : late + calls]
        )
    used.gives(expected, symptoms)
    used.replays(graphs=calls, operators=calls)


def paired(answer: Callable) -> None:
    """A graph of dropout, and pairs of inputs that are to get the same mask."""
    rows, pairs = few(), 4
    inputs = 1 + torch.rand(pairs, 2, rows, 8, device="cuda")
    static, graph = torch.ones(rows, 8, device="cuda"), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = dropout(static, 0.5)

    def replay(new):
        static.copy_(new)
        graph.replay()
        return output

    start = torch.cuda.get_rng_state()
    masks = [dropout(torch.ones_like(static), 0.5) for _ in range(2 * pairs)]
    torch.cuda.set_rng_state(start)
    used = use(
        lambda *pair: _pair(answer(replay, *pair)), [tuple(pair) for pair in inputs], what="It"
    )
    expected = [[mask * new for new in pair] for mask, pair in zip(masks, inputs, strict=False)]
    drawn = [(a != 0, b != 0) for a, b in used.given]
    if close(*zip(*used.given, strict=True)):
        raise Wrong("Both results are the second one: clone the first before the second replay.")
    if not all(torch.equal(*pair) for pair in drawn):
        raise Wrong(
            "The two masks differ: put the random state of the GPU back before the second replay."
        )
    if all(torch.equal(first, drawn[0][0]) for first, _ in drawn):
        raise Wrong(
            "Every call has the same mask: rewind to where this call began, and do not seed."
        )
    used.gives(expected, {})
    used.replays(graphs=2 * pairs, operators=10 * pairs)


def _pair(results):
    if not isinstance(results, tuple | list) or len(results) != 2:
        raise Wrong("Two results are asked: return first, second.")
    return list(results)
