"""Scenarios: requests of many shapes, and their results on the CPU."""

from bisect import bisect_left
from collections.abc import Callable

import torch
from torch import nn

from cpu_graph import on_stand_in
from cpu_graph.log import is_replay, launch_log, races
from exercises.answers.comparison import short_repr
from exercises.answers.graph_use import call_answer, require_expected, watch_graphs
from exercises.answers.tensors import are_close
from exercises.answers.wrong import Wrong
from exercises.scenarios.common import (
    WRITTEN_WHILE_READ,
    draw_int,
    require_descending,
    require_one_pool,
    require_replays,
    require_smallest_fitting,
    unpack_tensors,
)
from helpers.capture import capture_step

SPREAD = (
    "The standard deviation is too large for requests that are shorter than x.",
    "Behind the request, `centered` is zero minus the mean, and its square counts: mask again "
    "after the mean is subtracted.",
)
COUNTED = (
    "The mean and the standard deviation are those of all rows.",
    "Mask the rows behind the request before each sum, and divide by `length`.",
)

CANCELLED = (
    "The results are right but for rounding, which is larger than it need be.",
    "The mean of squares minus the square of the mean loses the digits that cancel: subtract the "
    "mean first, and square `centered`.",
)
CANCELS = 5e-2  # of a result: more than cancelled digits change it


def _fill_padding_with_garbage(values, lengths):
    """Pairs of values and a length; what is behind it is large, and not finite from the fifth on.

    values: (requests, size, ...).
    """
    inf, nan = torch.inf, torch.nan
    requests = []
    for number, (one, length) in enumerate(zip(values, lengths, strict=True)):
        behind = [97.0, 98.0, 99.0, 100.0] if number < 4 else [nan, inf, -inf, nan, inf]
        for place, value in enumerate(behind[: len(one) - length], length):
            one[place] = value
        requests.append((one, torch.tensor(length, device="cuda")))
    return requests


def judge_standardize(answer: Callable) -> None:
    """Rows with finite and other numbers behind the valid ones; the answer is captured."""
    size, columns = 6, draw_int(2, 5)
    lengths = [3, 2, size, draw_int(2, 5), 4, 2]
    x = torch.randn(len(lengths), size, columns, device="cuda") + 3
    requests = _fill_padding_with_garbage(x, lengths)
    replay = _capture_answer(answer, requests[0])
    given = call_answer(replay, requests[:4], what="It").given
    pairs = [(x, length) for (x, _), length in zip(requests, lengths, strict=True)]
    expected = [_standardized(x[:length]) for x, length in pairs]
    shapes = {tuple(result.shape) for result in given}
    if shapes != {(size, columns)}:
        raise Wrong(f"It returns tensors of shape {shapes.pop()} for x of shape {(size, columns)}.")
    tops = [result[:length] for result, length in zip(given, lengths[:4], strict=True)]
    spread = [_standardized(x[:length], len(x) - length) for x, length in pairs[:4]]
    counted = [_standardized(x)[:length] for x, length in pairs[:4]]
    _require_no_cancellation(tops, expected[:4])
    require_expected(tops, expected[:4], [(SPREAD, spread), (COUNTED, counted)])
    if any(result[length:].any() for result, length in zip(given, lengths[:4], strict=True)):
        raise Wrong(
            "The rows behind the request are not zero.", "Mask again after the mean is subtracted."
        )
    others = call_answer(replay, requests[4:], what="It").given
    zeros = [torch.cat([top, top.new_zeros(size - len(top), columns)]) for top in expected[4:]]
    _require_no_cancellation(others, zeros)
    if not are_close(others, zeros):
        raise Wrong(
            "An infinity or nan behind the request spoils the result.",
            "Arithmetic with a mask does not remove it: select, with torch.where.",
        )


def _require_no_cancellation(given, expected):
    """Raises Wrong if nothing but rounding parts the results from the expected ones."""
    if not are_close(given, expected) and are_close(given, expected, margin=CANCELS):
        raise Wrong(CANCELLED)


def _standardized(x, padding=0):
    """x, (rows, columns), by the mean of its rows, and by their variance with rows of padding."""
    mean = x.mean(0)
    squares = (x - mean).square().sum(0) + padding * mean.square()
    return (x - mean) / (squares / len(x) + 1e-5).sqrt()


def _capture_answer(answer, request):
    """A function that replays the answer for a request. Raises Wrong if it cannot be captured."""
    static = [tensor.clone() for tensor in request]
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            torch.zeros(1, device="cuda")  # a graph that is refused shall not be called empty, too
            output = answer(*static)
    except RuntimeError as refusal:
        text = str(refusal.__context__ or refusal)
        if "captur" not in text:
            raise
        if "pinned" in text:
            raise Wrong(
                "The capture is refused, because the function copies a tensor from the CPU.",
                'Make it on the GPU, with device="cuda".',
            ) from None
        error = text.splitlines()[0].rstrip(".")
        raise Wrong(
            f"The capture is refused: {error}.",
            "Something in the function needs a value on the CPU, such as .item(), a slice up to a "
            "tensor, or a boolean index. Keep the shape, and select with a mask.",
        ) from None
    if not torch.is_tensor(output):
        raise Wrong(
            f"A tensor is asked, not {short_repr(output)}, which every replay would repeat."
        )

    def replay(*inputs):
        for tensor, new in zip(static, inputs, strict=True):
            tensor.copy_(new)
        graph.replay()
        return output.clone()

    return replay


def judge_pad_to_buckets(answer: Callable) -> None:
    """Sums over requests of 1 to 8 rows, by graphs of 2, 4 and 8 rows; zero rows add nothing."""
    sizes, layer = [2, 4, 8], nn.Linear(3, 5, bias=False).cuda().requires_grad_(False)
    lengths = [8, 4, 3, 1, 5, 2, 1, draw_int(1, 9)]
    requests = [torch.randn(length, 3, device="cuda") for length in lengths]

    inputs: list[tuple[int, int]] = []  # rows and address of each captured input

    def total(rows):
        if torch.cuda.is_current_stream_capturing():
            inputs.append((len(rows), rows.data_ptr()))
        return layer(rows).square().sum(0)

    expected = [total(rows) for rows in requests]
    stale = []
    static = torch.zeros(8, 3, device="cuda")
    for rows in requests:
        static[: len(rows)] = rows
        stale.append(total(static[: sizes[bisect_left(sizes, len(rows))]]))
    with watch_graphs() as built:
        function = answer(total, sizes, 3)
    used = call_answer(function, requests)
    behind = "Rows of an earlier request are left behind a shorter one: fill them with zeros."
    used.require_results(expected, {behind: stale})
    used.require_launches(graphs=len(requests), operators=6 * len(requests))
    require_smallest_fitting(used.seen.replayed, sizes, lengths)
    _require_sharing(inputs, built)


def _require_sharing(inputs, built):
    """Raises Wrong unless the graphs were captured in one pool and input, the largest first."""
    if len({address for _, address in inputs}) > 1:
        raise Wrong(
            "Each graph has its own static input: let all of them read the first rows of one, of "
            "the largest size."
        )
    require_one_pool(built)
    require_descending([rows for rows, _ in inputs])


def judge_read_results(answer: Callable) -> None:
    """Requests whose results are read on the CPU while the next replay runs."""
    columns, count = draw_int(2, 5), draw_int(4, 8)
    layer = nn.Linear(3, columns, bias=False).cuda().requires_grad_(False)
    requests = [torch.randn(3, device="cuda") for _ in range(count)]
    expected = [layer(request).cpu() for request in requests]
    replay = capture_step(layer, requests[0].clone())
    torch.cuda.synchronize()
    idle: list[bool] = []  # at each request: whether the CPU has waited for all earlier replays
    raced = []

    def serve(request):
        idle.append(not any(map(is_replay, launch_log())))
        raced.extend(races())
        return replay(request)

    with watch_graphs() as seen:
        results = answer(serve, requests, columns)
    require_replays(seen, count, "requests")
    _require_results_arrived(results, expected)
    if raced:
        raise Wrong(WRITTEN_WHILE_READ)
    if on_stand_in() and any(idle[1:]):
        raise Wrong(
            "The GPU is idle between two replays.",
            "The CPU waits for a result before it launches the next replay: launch first, then "
            "wait for the event of the previous result.",
        )


def _require_results_arrived(results, expected):
    """Raises Wrong unless the results are the expected tensors, on the CPU and each its own."""
    count = len(expected)
    results = unpack_tensors(results, count, "results")
    if any(result.is_cuda for result in results):
        raise Wrong("The results are to be tensors on the CPU.")
    if len({result.data_ptr() for result in results}) < count:
        raise Wrong(
            "Several results are the same memory.",
            "The list holds the buffers, and later copies overwrite them: clone each.",
        )
    for number, (result, right) in enumerate(zip(results, expected, strict=True)):
        if not are_close([result], [right]):
            raise Wrong(
                f"Result {number} is not the one of its request.",
                "The buffer was read before its copy was complete: wait for the event of that "
                "copy, then read.",
            )
