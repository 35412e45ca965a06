"""Scenarios: branches and counters on the GPU. Each raises Wrong with the symptom it finds."""

from collections.abc import Callable

import torch

from course.answers.graph_use import Wrong, copied, use
from course.scenarios.common import few


def clip_norm(answer: Callable) -> None:
    """Vectors shorter and longer than a limit, which changes too; the answer is captured."""
    vectors = torch.randn(6, few(3, 9), device="cuda")
    limits = vectors.norm(dim=1) * torch.tensor([2.0, 0.5, 3.0, 0.1, 0.7, 1.5], device="cuda")
    x = vectors[0].clone()
    limit = limits[0].clone()
    graph = torch.cuda.CUDAGraph()
    scales = limits / vectors.norm(dim=1)
    always, never = list(vectors * scales[:, None]), list(vectors)
    expected = list(vectors * scales.clamp(max=1)[:, None])
    answer(x.clone(), limit.clone())
    with torch.cuda.graph(graph):
        output = answer(x, limit)

    def replay(vector, new):
        x.copy_(vector)
        limit.copy_(new)
        graph.replay()
        if not torch.equal(x, vector) or not torch.equal(limit, new):
            raise Wrong("It changes what it is given: write the result into a new tensor.")
        return copied(output)

    swapped = [a if scale > 1 else n for a, n, scale in zip(always, never, scales, strict=True)]
    symptoms = {
        "It scales every vector, the short ones too.": always,
        "It scales no vector: is the branch that of the capture?": never,
        "It scales the short vectors and leaves the long ones: the other way round.": swapped,
    }
    use(replay, list(zip(vectors, limits, strict=True)), what="It").gives(expected, symptoms)


def ramp(answer: Callable) -> None:
    """A function that counts its calls, captured at its
    first and replayed a few times more than it counts.
    """
    steps = few(3, 6)
    vectors, calls = 1 + torch.rand(steps + 3, 4, device="cuda"), range(1, steps + 4)
    function = answer(steps)
    x = vectors[0].clone()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = function(x)

    def replay(vector):
        x.copy_(vector)
        graph.replay()
        return copied(output)

    def scaled(factors):
        return [vector * factor for vector, factor in zip(vectors, factors, strict=True)]

    symptoms = {
        "Every replay is the first call: count in a tensor on the GPU, and in place.": scaled(
            [1 / steps] * len(calls)
        ),
        "It goes on beyond 1: clamp the factor.": scaled(call / steps for call in calls),
        "It lags by one call: count first, then compute the factor.": scaled(
            min(1, (c - 1) / steps) for c in calls
        ),
    }
    expected = scaled(min(1, call / steps) for call in calls)
    use(replay, list(vectors), what="It").gives(expected, symptoms)
