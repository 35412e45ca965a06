"""Scenarios: loops and skipped steps in conditional nodes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

import torch

from cpu_graph import on_stand_in
from cpu_graph.graphs import Conditional, all_nodes, executed_nodes
from exercises.answers.graph_use import GraphUse, call_answer, watch_graphs
from exercises.answers.tensors import are_close, copy_tensors
from exercises.answers.wrong import Wrong, require_function
from exercises.scenarios import rules
from exercises.scenarios.common import draw_int, nodes_of, require_integers
from exercises.scenarios.warm_ups import FILLED

NO_NODE = "The graph has no {} node: capture one."
STALE = (
    "Every call returns the first completions.",
    "Reset the completions, the count and the flags in the graph, before the node.",
)
NO_END = ("The EOS token is missing in the completions.", "Write it, then stop.")
FIRST_END = ("All rows end with the first one that has ended.", "Go on while any row does.")
GOES_ON = ("A row goes on after its EOS token.", "Write only into the rows that have not ended.")
SAME_NOISE = ("Every call uses the same noise.", "Draw it again, in place, before each launch.")
FIRST_ROW = (
    "Every iteration uses the first row of the noise.",
    "Iteration i reads row i: index the noise with count.",
)
NO_TEMPERATURE = "The temperature changes nothing: divide the logits by it."
ANEW = (
    "From the second step on, the weights are those of SGD without momentum.",
    "A state that is created in the body is created again by every replay: a step before the "
    "capture must create it.",
)
NEVER_MOVES = (
    "The weights never move.",
    "The step has to be in the body, and its flag true where all gradients are finite.",
)


@contextmanager
def count_runs(most: int) -> Iterator[list[int]]:
    """How often the bodies of conditional nodes ran on the stand-in, a number for each launch of a
    node. Raises Wrong in a launch of more than so many.
    """
    runs: list[int] = []

    def counted(node):
        runs.append(0)
        node.begins.read()
        while node.set:
            runs[-1] += 1
            if runs[-1] > most:
                raise Wrong(
                    f"A loop does not end: its body ran {runs[-1]} times in one launch.",
                    "Set the condition at the end of the body, from a flag that becomes false.",
                )
            yield from executed_nodes(node.nodes)
            node.set = node.set and node.loops

    with patch.object(Conditional, "rounds", counted):
        yield runs


@contextmanager
def watch_loop(
    limit: int, what: str, *tensors: torch.Tensor
) -> Iterator[tuple[GraphUse, list[int]]]:
    """The block captures one loop and uses it: its graphs, and how often each launch ran the body.

    Raises Wrong if an index of a replay is out of bounds, since the error itself does not say so,
    or if the caller's tensors change. what: their names in the exercise.
    """
    with rules.unmodified(what, *tensors), watch_graphs() as seen, count_runs(limit + 2) as runs:
        try:
            yield seen, runs
        except RuntimeError as error:
            if "device-side assert" not in str(error):
                raise
            raise Wrong(
                "An index on the GPU is out of bounds (CUDA error: device-side assert triggered).",
                "No iteration may index a row behind the limit.",
            ) from None
    rules.require_one_graph(seen)


def require_conditional_node(seen: GraphUse, loops: bool) -> None:
    """A while or an if node: raises Wrong if no captured graph has one, or if the capture ended
    inside of a body. Only the stand-in knows.
    """
    if on_stand_in() is None:
        return
    if any(len(graph.capture.bodies) > 1 for graph in seen.captured):
        raise Wrong(
            "The capture ends inside of a body.",
            "Call end_capture_to_conditional_node after the body.",
        )
    if not any(isinstance(node, Conditional) and node.loops == loops for node in nodes_of(seen)):
        raise Wrong(NO_NODE.format("while" if loops else "if"))


def judge_capture_generate(answer: Callable) -> None:
    """Rows on a ring of tokens, each at another distance from EOS; one does not get there."""
    size, limit = 29, draw_int(6, 12)
    ring = torch.randperm(size).tolist()
    after = torch.tensor(
        [ring[(ring.index(token) + 1) % size] for token in range(size)], device="cuda"
    )
    distances = [[2, limit + 3, 1, limit - 1], [1, 3, 2, 3], [limit, 2, 4, 1]]
    requests = [
        torch.tensor([ring[-1 - distance] for distance in row], device="cuda") for row in distances
    ]
    sample = requests[0].clone()
    with watch_loop(limit, "tokens", sample, *requests) as (seen, runs):
        generate = answer(lambda last: after[last], sample, ring[-1], limit)
        used = call_answer(generate, requests)
    used.require_launches(graphs=len(requests), operators=3 * len(requests))
    require_conditional_node(seen, loops=True)
    ends = [[min(limit, distance) for distance in row] for row in distances]

    def completions(lengths):
        return [
            _completions(row, ring, limit, lengths(row, max(end)))
            for row, end in zip(distances, ends, strict=True)
        ]

    used.require_results(
        completions(lambda row, _: [min(limit, distance) for distance in row]),
        {
            NO_END: completions(lambda row, _: [d - 1 if d <= limit else limit for d in row]),
            FIRST_END: completions(lambda row, _: [min(row)] * len(row)),
            GOES_ON: completions(lambda row, longest: [longest] * len(row)),
            STALE: lambda: [used.given[0]] * len(requests),
        },
    )
    require_integers(used.given)
    _require_run_counts(runs, [max(row) for row in ends])


def _completions(distances, ring, limit, lengths):
    """The tokens of rows that start so far from the end of the ring; -1 after these lengths."""
    table = torch.full((len(distances), limit), -1, device="cuda")
    for row, distance, length in zip(table, distances, lengths, strict=True):
        tokens = [ring[(number - distance) % len(ring)] for number in range(length)]
        row[:length] = torch.tensor(tokens, device="cuda")
    return table


def _require_run_counts(runs, expected):
    """Raises Wrong if a launch ran the body more or less often than expected."""
    if on_stand_in() is None:
        return
    for found, enough in zip(runs, expected, strict=True):
        if found != enough:
            raise Wrong(
                f"The body runs {found} times in a launch, where {enough} would do.",
                "Compute the flag from the new state, and set the condition after it.",
            )


def judge_capture_sampler(answer: Callable) -> None:
    """A table of logits: each token has those of the next one. EOS is rare."""
    size, limit = 11, draw_int(8, 12)
    temperature = 0.5
    table = torch.randn(size, size, device="cuda")
    table[:, 0] -= 1.5
    starts = [torch.tensor([token], device="cuda") for token in (3, 5, 3, 7)]
    sample = starts[0].clone()

    def reference(seed, token, row=None, scale=temperature):
        """The completion of one call, computed eagerly; row: of the noise, for each token."""
        torch.manual_seed(seed)
        noise = torch.empty(limit, size, device="cuda").exponential_()
        completion = torch.full((limit,), -1, device="cuda")
        for number in range(limit):
            scores = table[token] / scale - noise[number if row is None else row].log()
            token = scores.argmax(dim=-1)
            completion[number] = token[0]
            if token.item() == 0:
                break
        return completion

    with watch_loop(limit, "token", sample, *starts) as (seen, runs):
        sampler = require_function(
            answer(lambda token: table[token], sample, temperature, 0, limit)
        )

        def sampled(seed, token):
            torch.manual_seed(seed)
            return sampler(token)

        used = call_answer(sampled, list(enumerate(starts)))
    used.require_launches(graphs=len(starts), operators=6 * len(starts))
    require_conditional_node(seen, loops=True)
    if any(getattr(node, "draws", None) for node in all_nodes(nodes_of(seen))):
        raise Wrong(
            "The graph draws random numbers, which PyTorch refuses in a conditional node.",
            "Draw the noise of all iterations before the launch.",
        )
    expected = [reference(*request) for request in enumerate(starts)]
    used.require_results(
        expected,
        {
            STALE: lambda: [used.given[0]] * len(starts),
            FIRST_ROW: [reference(*request, row=0) for request in enumerate(starts)],
            NO_TEMPERATURE: [reference(*request, scale=1.0) for request in enumerate(starts)],
            SAME_NOISE: lambda: used.given if are_close(used.given[0], used.given[2]) else [],
        },
    )
    require_integers(used.given)
    _require_run_counts(runs, [int((row != -1).sum()) for row in expected])


def judge_guarded_step(answer: Callable) -> None:
    """Two parameters, and gradients that are finite, infinite or not a number."""
    parameters = [torch.randn(draw_int(), 3, device="cuda", requires_grad=True) for _ in range(2)]
    for one in parameters:
        one.grad = torch.ones_like(one)
    before = copy_tensors(parameters)
    spoils = [0.0, float("inf"), 0.0, float("nan"), -float("inf"), 0.0]
    requests = [tuple(torch.randn_like(one) for one in before) for _ in spoils]
    for pair, spoil in zip(requests, spoils, strict=True):
        pair[draw_int(0, 2)][0, 0] += spoil
    addresses = [one.data_ptr() for one in parameters]
    with watch_graphs() as seen:
        replay = require_function(answer(parameters, 0.5))
    if [one.data_ptr() for one in parameters] != addresses:
        raise Wrong(
            "The parameters have new memory, and the graph writes to the old one.",
            "Copy the saved values back into the parameters, in place.",
        )
    if not are_close(parameters, before):
        raise Wrong(
            "The warm-up has moved the weights.",
            "Put back what it changed, before the first replay.",
        )

    def train(*pair):
        for one, gradient in zip(parameters, pair, strict=True):
            one.grad.copy_(gradient)
        replay()
        return copy_tensors(parameters)

    used = call_answer(train, requests)
    used.require_launches(graphs=len(spoils), operators=10 * len(spoils))
    require_conditional_node(seen, loops=False)
    if not all(map(_all_finite, used.given)):
        raise Wrong(
            "A gradient that is not finite reaches the weights.",
            "The step is to be taken only if all gradients are finite.",
        )
    ones = [torch.ones_like(one) for one in before]
    used.require_results(
        _weights_after_each_request(before, requests, _all_finite),
        {
            ANEW: _weights_after_each_request(before, requests, _all_finite, momentum=0.0),
            FILLED: _weights_after_each_request(before, requests, _all_finite, buffers=ones),
            NEVER_MOVES: [before] * len(requests),
        },
    )


def _all_finite(gradients):
    return all(gradient.isfinite().all() for gradient in gradients)


def _weights_after_each_request(weights, requests, allowed, momentum=0.9, buffers=None):
    """The weights after each request, by SGD with momentum where its gradients are allowed."""
    buffers = buffers or [torch.zeros_like(weight) for weight in weights]
    states = []
    for gradients in requests:
        if allowed(gradients):
            buffers = torch._foreach_add(gradients, buffers, alpha=momentum)
            weights = torch._foreach_sub(weights, buffers, alpha=0.5)
        states.append(weights)
    return states
