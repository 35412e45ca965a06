"""Scenarios of Change weights under live graphs: merge and unmerge, an adapter for each row, an
update on another stream.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import nn

from cpu_graph import on_stand_in
from cpu_graph.log import launch_log
from exercises.answers.graph_use import (
    AnswerCalls,
    call_answer,
    require_no_freed_reads,
    watch_graphs,
)
from exercises.answers.tensors import are_close
from exercises.answers.wrong import Wrong
from exercises.scenarios.common import as_functions, draw_int, require_replay
from exercises.scenarios.rules import occupy_freed, require_one_graph, unmodified

HALF_WRITTEN = (
    "A replay computed with a part of the new weights.",
    "The current stream has to wait until all are written.",
)
NEVER_MERGED = (
    "merge has no effect on the graph.",
    "It reads the weight that was captured: copy the merged weight into it.",
)
STILL_MERGED = (
    "After unmerge the adapter is still in the weight that the graph reads.",
    "Copy the weight that was never merged into it.",
)
ADDED = (
    "A second merge adds its adapter to the first one.",
    "Merge into the weight that was never merged.",
)
FIRST_SLOTS = (
    "Every call uses the slots of the first one, or of the capture: the slots are an input, which "
    "has to be copied into a static tensor on the GPU."
)
NOT_LOADED = (
    "load has no effect on the graph: copy A and B into the tensors that it captured, in place."
)
SAME_FOR_ALL = "All rows use the same adapter: each row has a slot of its own."
TOO_EARLY = (
    "A replay ran before the new weights were written.",
    "The current stream has to wait for the stream of the copies.",
)
TOO_LATE = (
    "A replay that was issued before publish computed with the new weights.",
    "Before it copies, the stream has to wait for the current one.",
)
TOO_SOON = (
    "A replay computed with something that the caller has not yet written.",
    "The copies do not wait for the new weights, which the caller computes on the current stream "
    "just before publish: stream has to wait there for the current stream.",
)
FREED_EARLY = (
    "A replay computed with what the caller stored later, in the memory of the new weights.",
    "The caller frees them after publish: let the current stream wait for the copies there, or "
    "call record_stream on each of them.",
)


def call_without_capture(change: Callable, *arguments: Any) -> None:
    """Call a function that changes weights. Raises Wrong if it captures."""
    with watch_graphs() as seen:
        change(*arguments)
    if seen.captured:
        raise Wrong(
            "It captures again.", "The graph that is there can read new values at its addresses."
        )


def check_calls(used: AnswerCalls, expected: list, symptoms: Iterable[tuple[str, list]]) -> None:
    """Raises Wrong unless each call was one replay and gave what eager gives."""
    used.require_results(expected, symptoms)
    used.require_launches(graphs=len(expected), operators=3 * len(expected))


def require_results_unchanged(kept: list, expected: list) -> None:
    """Raises Wrong unless results of earlier calls are as they were."""
    if not are_close(kept, expected):
        raise Wrong("A later replay wrote over a result: clone it.")


def judge_adapter_server(answer: Callable) -> None:
    """One adapter merged and unmerged; then two in a row, and unmerged."""
    n_in, n_out = 5, 6
    layer = nn.Linear(n_in, n_out, bias=False, device="cuda").requires_grad_(False)
    base = layer.weight.clone()
    batches = list(torch.randn(2, draw_int(), n_in, device="cuda"))
    adapters = []
    for _ in range(3):
        A = torch.randn(2, n_in, device="cuda")
        adapters.append((A, 10 * torch.randn(n_out, 2, device="cuda")))
    sample = batches[0].clone()
    with unmodified("sample", sample):
        returned = answer(layer, sample)
        _require_merged_adapter(
            as_functions(returned, "predict", "merge", "unmerge"), base, batches, adapters
        )


def _require_merged_adapter(returned, base, batches, adapters):
    """Raises Wrong unless predict computes with the adapter that is merged, if any."""
    predict, merge, unmerge = returned

    def outputs(*merged):
        weight = base + sum(B @ A for A, B in merged)
        return [batch @ weight.T for batch in batches]

    def check(expected, *symptoms):
        used = call_answer(predict, batches, "predict")
        check_calls(used, expected, symptoms)
        return used.kept

    before = check(outputs())
    for merged in (adapters[:1], adapters[1:]):
        for adapter in merged:
            call_without_capture(merge, *adapter)
        added = [(ADDED, outputs(*merged))] if len(merged) > 1 else []
        check(outputs(merged[-1]), (NEVER_MERGED, outputs()), *added)
        call_without_capture(unmerge)
        after = check(outputs(), (STILL_MERGED, outputs(merged[-1])), (ADDED, outputs(merged[0])))
        differing = sum(int((a != b).sum()) for a, b in zip(after, before, strict=True))
        if differing:
            every = sum(one.numel() for one in before)
            raise Wrong(
                f"After unmerge {differing} of {every} outputs are not bitwise those before the "
                "merge.",
                "(w + d) - d rounds: keep a copy of the weight that is never merged.",
            )
    require_results_unchanged(before, outputs())


def judge_adapter_rows(answer: Callable) -> None:
    """Nothing loaded; two of three slots loaded; one of these loaded again."""
    n_in, n_out = 4, 5
    rank, n_slots = 2, 3
    rows = draw_int(4, 8)
    weight = torch.randn(n_out, n_in, device="cuda")
    batches = list(torch.randn(6, rows, n_in, device="cuda"))
    slots = [torch.arange(rows, device="cuda").roll(number) % n_slots for number in range(6)]
    sample = batches[0].clone()
    with unmodified("sample, inputs or slots", sample, batches, slots), watch_graphs() as built:
        returned = answer(weight, n_slots, rank, sample)
        _require_adapter_per_row(
            as_functions(returned, "predict", "load"), weight, batches, slots, rank
        )
    require_one_graph(built)


def _require_adapter_per_row(returned, weight, batches, slots, rank):
    """Raises Wrong unless each row is computed with the adapter of its slot."""
    predict, load = returned
    n_out, n_in = weight.shape
    n_slots = 3

    def outputs(deltas, some, of_rows):
        return [
            one @ weight.T + (deltas[numbers] @ one[..., None])[..., 0]
            for one, numbers in zip(some, of_rows, strict=True)
        ]

    deltas = torch.zeros(3, n_slots, n_out, n_in, device="cuda")  # after no, two and three loads
    kept, expected = [], []
    for number, loaded in enumerate(((), (2, 0), (2,))):
        if number:
            deltas[number] = deltas[number - 1]
        for slot in loaded:
            A = torch.randn(rank, n_in, device="cuda")
            B = torch.randn(n_out, rank, device="cuda")
            call_without_capture(load, slot, A.clone(), B.clone())
            deltas[number, slot] = B @ A
        some, of_rows = (given[2 * number : 2 * number + 2] for given in (batches, slots))
        right = outputs(deltas[number], some, of_rows)
        used = call_answer(predict, list(zip(some, of_rows, strict=True)), "predict")
        if not number and not are_close(used.given[:1], right[:1]):
            raise Wrong("A slot that was never loaded adds something: start with zeros.")
        symptoms = [(NOT_LOADED, outputs(old, some, of_rows)) for old in deltas[:number]]
        for fixed in (slots[0], of_rows[0], torch.zeros_like(slots[0])):
            symptoms.append((FIRST_SLOTS, outputs(deltas[number], some, [fixed] * 2)))
        same = [one[:1].expand_as(one) for one in of_rows]
        check_calls(used, right, [*symptoms, (SAME_FOR_ALL, outputs(deltas[number], some, same))])
        kept += used.kept
        expected += right
    require_results_unchanged(kept, expected)


@contextmanager
def no_wait_of_the_cpu() -> Iterator[None]:
    """Raises Wrong where the block lets the CPU wait for the GPU."""

    def waits(*args, **options):
        raise Wrong("The CPU waits in publish.", "Let the streams wait for each other on the GPU.")

    with (
        patch.object(torch.cuda, "synchronize", waits),
        patch.object(torch.cuda.Stream, "synchronize", waits),
        patch.object(torch.cuda.Event, "synchronize", waits),
    ):
        yield


def count_stream_launches(stream: torch.cuda.Stream) -> int:
    """How many launches on a stream the stand-in has noted."""
    return sum(node.stream == stream.stream_id for node in launch_log())


def _publish_and_predict(predict, publish, versions, batches, stream):
    """The result of each batch; the weights of its version are published before it."""
    results = []
    with no_wait_of_the_cpu(), watch_graphs() as seen:
        for number, batch in enumerate(batches):
            if number:
                weights = versions[number]
                if number == 2:  # written just now, and freed as soon as publish returns
                    weights = [weight.clone() for weight in weights]
                before = count_stream_launches(stream)
                call_without_capture(publish, weights)
                if on_stand_in() and count_stream_launches(stream) == before:
                    raise Wrong("The copies do not run on stream.", "Keep them there.")
                shapes = [weight.shape for weight in weights]
                del weights
                kept = occupy_freed(shapes)
            results.append(predict(batch))
    torch.cuda.synchronize()
    del kept
    require_replay(seen)
    return results


def judge_published(answer: Callable) -> None:
    """Predict and publish in turns; nothing but the answer's own waits orders the streams."""
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2)).to("cuda")
    net.requires_grad_(False)
    versions = [[weight.clone() for weight in net.parameters()]]
    for _ in range(2):
        versions.append([torch.randn_like(weight) for weight in versions[0]])
    batches = list(torch.randn(3, draw_int(), 4, device="cuda"))

    versions.append([torch.full_like(weight, 7.0) for weight in versions[0]])  # of freed memory

    def output(version, batch):
        w1, b1, w2, b2 = versions[version]
        return torch.tanh(batch @ w1.T + b1) @ w2.T + b2

    stream = torch.cuda.Stream()
    sample = batches[0].clone()
    with unmodified("sample", sample):
        predict, publish = as_functions(answer(net, sample, stream), "predict", "publish")
        torch.cuda.synchronize()
        results = _publish_and_predict(predict, publish, versions, batches, stream)
        _require_versions(results, batches, output)


def _require_versions(results, batches, output):
    """Raises Wrong unless each result was computed with the weights published before it."""
    for number, (result, batch) in enumerate(zip(results, batches, strict=True)):
        fitting = [version for version in range(3) if are_close([result], [output(version, batch)])]
        if number in fitting:
            continue
        require_no_freed_reads()
        if are_close([result], [output(3, batch)]):
            raise Wrong(FREED_EARLY)
        if number == 0:  # no publish came before it
            raise Wrong(TOO_LATE)
        if not fitting:
            raise Wrong(TOO_SOON if number == 2 else HALF_WRITTEN)
        raise Wrong(TOO_EARLY if fitting[0] < number else TOO_LATE)
