"""Scenarios: branches, counters and logs on the GPU. Each raises Wrong with its symptom."""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from course.answers.graph_use import Wrong, copied, use
from course.scenarios.common import few

UNTOUCHED = "It changes what it is given: write the result into a new tensor."


def halved_sum(answer: Callable) -> None:
    """Losses of which none, some or all are above a limit; the answer is captured."""
    size = few(3, 6)
    offsets = (-4.0, 0.0, 0.3, 4.0, 0.0)
    cases = [3 + offset + torch.rand(size, device="cuda") - 0.5 for offset in offsets]
    static_limit = torch.full((), 3.0, device="cuda")
    losses = cases[1].clone()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = answer(losses, static_limit)
    if not torch.is_tensor(output):
        raise Wrong("It returns a Python number, which every replay repeats: return a tensor.")

    def replay(case):
        losses.copy_(case)
        graph.replay()
        if not torch.equal(losses, case):
            raise Wrong(UNTOUCHED)
        return copied(output)

    symptoms = {
        "It halves the sum: halve each loss that is above the limit.": [
            torch.where(case.sum() > 3, case.sum() / 2, case.sum()) for case in cases
        ],
        "It leaves out the losses that are not above the limit.": [
            ((case > 3) * case / 2).sum() for case in cases
        ],
        "It cuts large losses off at the limit: halve them.": [
            case.clamp(max=3).sum() for case in cases
        ],
    }
    expected = [torch.where(case > 3, case / 2, case).sum() for case in cases]
    use(replay, cases, what="It").gives(expected, symptoms)


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
            raise Wrong(UNTOUCHED)
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
    before = _kept(function)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = function(x)
    _moved_nothing(function, before)

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


def logger(answer: Callable) -> None:
    """Losses written into a log of a few rows, more of them than it has rows."""
    rows = few(3, 6)
    losses = 1 + torch.rand(rows + 2, device="cuda")
    log = torch.zeros(rows, device="cuda")
    write = answer(log)
    static_loss = losses[0].clone()
    before = _kept(write)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = write(static_loss)
    _moved_nothing(write, before)
    if not torch.is_tensor(output) or output.data_ptr() != log.data_ptr():
        raise Wrong("It should write into the log that it is given, and return it.")

    def replay(loss):
        static_loss.copy_(loss)
        graph.replay()
        return copied(output)

    def logged(first, stride):
        filled, results = torch.zeros(rows, device="cuda"), []
        for number, loss in enumerate(losses):
            filled[(first + stride * number) % rows] = loss
            results.append(filled.clone())
        return results

    used = use(replay, list(losses), what="It")
    used.kept = used.given  # all results are the log itself
    symptoms = {
        "Every replay writes the same row: the row number must be a tensor on the GPU, and be "
        "advanced in place.": logged(0, 0),
        "It starts at the second row: write first, then advance the row.": logged(1, 1),
    }
    used.gives(logged(0, 1), symptoms)


def _kept(function: Callable) -> dict[str, list[Any]]:
    """The tensors that a function keeps between its calls, by the names that it calls them."""
    code = getattr(function, "__code__", None)
    cells = getattr(function, "__closure__", None) or ()
    names = code.co_freevars if code else ()
    return {
        name: [leaf for leaf in tree_leaves(cell.cell_contents) if torch.is_tensor(leaf)]
        for name, cell in zip(names, cells, strict=True)
    }


def _moved_nothing(function: Callable, before: dict[str, list[Any]]) -> None:
    """Raises Wrong if a tensor that the function keeps is at a different address than before."""
    for name, tensors in _kept(function).items():
        old = [tensor.data_ptr() for tensor in before[name]]
        if old and [tensor.data_ptr() for tensor in tensors] != old:
            raise Wrong(
                f"`{name}` is a new tensor after each call, but the graph reads the address of "
                f"the old one: write into it in place, as in {name}.add_(1)."
            )
