"""Scenarios of the puzzles, with small whole numbers, which a picture shows. They need the
stand-in, not the course.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from cpu_graph import on_stand_in
from cpu_graph.log import operator_of, ordered
from exercises.answers.comparison import brief
from exercises.answers.graph_use import (
    EAGER,
    EVERY_TIME_THE_FIRST,
    EVERY_TIME_THE_LAST,
    ONE_BEHIND,
    Used,
    Watched,
    Wrong,
    close,
    match_symptoms,
    not_the_last,
    nothing_freed,
    parting,
    returned,
    watch,
)
from exercises.answers.launches import around_replays, launches

NO_WARM_UP = "It leaves out the warm-up: keep that line, and undo what it does to state."
CHANGED = (
    "It changes a tensor of the caller.",
    "copy_ writes into the tensor before the dot: it should be the static one.",
)
WARMED = ("It counts from one too far.", "The warm-up counted, too: undo it in place.")
NOT_MOVED = (
    "The caller's state has not moved as often as the graph was replayed.",
    "The graph must write to the tensor that it was given: `state = ...` names another one.",
)
WAITS = (
    "The CPU waits for the GPU {} times.",
    "Clone each loss after its replay, and read all of them at once, at the end.",
)
FROZEN = (
    "Both kinds of x take the same branch.",
    "`if` chose once, at the capture. torch.where(condition, this, that) chooses in every replay.",
)
EACH = ("Each number chooses for itself.", "The condition is one number: that of the sum.")
SWAPPED = "It takes the other branch each time."
ONE_STREAM = (
    "Nothing of the graph can run at the same time.",
    "sin belongs on the side stream, and cos must not wait for it.",
)
NO_FORK = (
    "The graph has no node of the side stream.",
    "A stream takes part in a capture once it waits for the capturing one: "
    "side.wait_stream(torch.cuda.current_stream()).",
)
SAME_NOISE = (
    "Every call adds the same noise.",
    "It was drawn once, before or at the capture: draw it by torch, inside.",
)
ONE_NUMBER = ("All numbers get the same noise.", "Draw one for each: torch.randn_like.")
OVERWRITTEN = (
    "The scores are overwritten by the decoder's replay.",
    "The scorer was captured later and got memory that the decoder uses: capture in the order of "
    "the replays.",
)
POOLS = ("The graphs have two pools.", "Give the second capture pool=... of the first.")
ORDER = ("A call does not replay score, then decode.", "Change the order of the captures.")
LAST_ALONE = (
    "It is the gradient of the last batch alone.",
    "A .grad that is None at the capture is written anew by each replay; a tensor that is there is "
    "added to.",
)
ZERO = ("The gradient is 0.", "Make it before the capture: the graph knows the tensor of then.")
NOT_FED = ("Every token follows the first one.", "Copy next_token into token, inside.")
STAYS = ("All tokens are written to the same position.", "Move position in place, inside.")
WENT_ON = (
    "The first answer is right, the second one is not.",
    "A request begins by writing to token and to position, in place.",
)
IGNORED = ("The first answer begins with token 0.", "Write the first token into token, in place.")
AS_SAMPLED = "The first token of an answer is the one that was given: return those that follow."


def numbers(count: int = 3) -> torch.Tensor:
    """Whole numbers from 1 to 9, all different."""
    return (torch.randperm(9)[:count] + 1).float().to("cuda")


class Outside(TorchDispatchMode):
    """The names of the operators that run outside of captures."""

    def __init__(self) -> None:
        super().__init__()
        self.operators: set[str] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if not torch.cuda.is_current_stream_capturing():
            self.operators.add(func.name())
        return func(*args, **(kwargs or {}))


def served(run: Callable, requests: Iterable[tuple], keeps: bool = True) -> Used:
    """Call a function with each request, and read the results; if it keeps them, at the end."""
    returned(run)
    given, counts = [], Counter()
    with watch() as seen:
        for request in requests:
            with launches() as one:
                result = run(*request)
            counts.update(one)
            if not torch.is_tensor(result) and not isinstance(result, tuple | list):
                raise Wrong(f"It gives {brief(result)}: a tensor is asked.")
            given.append(result if keeps else read(result))
    return Used(given, [read(one) for one in given], counts, seen)


def read(value: Any) -> Any:
    """The value on the CPU: what is compared there is no part of the picture."""
    return tree_map_only(torch.Tensor, lambda tensor: tensor.detach().cpu(), value)


def judge(used: Used, expected: list, symptoms: Iterable = ()) -> None:
    """Raises Wrong unless the results are the expected ones."""
    nothing_freed()
    if close(used.kept, expected := read(expected)):
        return
    match_symptoms(used.kept, read(list(symptoms)))
    not_the_last(used.kept)
    if len(expected) > 1:
        match_symptoms(used.kept, [(EVERY_TIME_THE_FIRST, expected[:1] * len(expected))])
        if close(used.kept[1:], expected[:-1]):
            raise Wrong(ONE_BEHIND)
    raise Wrong(parting(used.kept, expected))


def ten_times(answer: Callable) -> None:
    """Three numbers."""
    x = numbers()
    expected = [10 * read(x)]
    used = served(answer, [(x,)])
    judge(used, expected)
    if not used.seen.replayed:
        raise Wrong(EAGER)


def make_ten_times(answer: Callable) -> None:
    """A sample, and three requests."""
    static_x, requests = numbers(), [numbers() for _ in range(3)]
    before, sample = read([requests, static_x])
    used = served(answer(static_x), [(request,) for request in requests], keeps=False)
    if not close(read(requests), before):
        raise Wrong(CHANGED)
    judge(used, [10 * request for request in before], [(EVERY_TIME_THE_FIRST, [10 * sample] * 3)])
    used.replays(graphs=3, operators=9)


def keep_results(answer: Callable) -> None:
    """A graph that doubles, and three requests whose results are read at the end."""
    static_x = numbers()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        static_y = 2 * static_x
    requests = [numbers() for _ in range(3)]
    first, *expected = (2 * one for one in read([static_x, *requests]))
    with watch() as seen:
        given = answer(graph, static_x, static_y, requests)
    if not isinstance(given, list | tuple) or len(given) != 3:
        raise Wrong(f"It gives {brief(given)}: a list of three tensors is asked.")
    if seen.captured:
        raise Wrong("It captures a graph of its own: replay the one that it was given.")
    if not seen.replayed:
        raise Wrong(EAGER)
    used = Used([], read(list(given)), Counter(), seen)
    judge(used, expected, [(ONE_BEHIND, [first, *expected[:-1]])])
    if len(seen.replayed) != 3:
        raise Wrong(f"{len(seen.replayed)} replays for 3 requests: each needs one.")


def count_up(answer: Callable) -> None:
    """A state that three replays move."""
    state = numbers()
    start = read(state)
    with watch() as seen, Outside() as outside:
        replay = returned(answer(state))
    if not seen.captured:
        raise Wrong(EAGER)
    states = []
    with watch() as used:
        for _ in range(3):
            replay()
            states.append(read(state))
    if not used.replayed:
        raise Wrong(EAGER)
    match_symptoms(states, [(WARMED, [start + number for number in (2, 3, 4)])])
    if not close(states, [start + number for number in (1, 2, 3)]):
        raise Wrong(NOT_MOVED)
    if "aten::add_.Tensor" not in outside.operators:
        raise Wrong(NO_WARM_UP)


def make_shifted(answer: Callable) -> None:
    """Offsets that no caller keeps, and tensors that come after them."""
    x, offset = numbers(), read(numbers())
    expected = [read(x) + offset] * 2
    run = answer(x, offset.tolist())
    later = [torch.full((3,), 70.0, device="cuda") for _ in range(3)]
    used = served(run, [()] * 2)
    judge(used, expected)
    used.replays(graphs=2, operators=6)
    del later


def losses_of(answer: Callable) -> None:
    """Three batches."""
    x, batches = numbers(), [numbers() for _ in range(3)]
    expected = [batch.square().sum() for batch in read(batches)]
    device, epochs = on_stand_in(), []

    def noted(replay, graph):
        epochs.append(device.order.epoch if device else 0)
        replay(graph)

    with watch() as seen, around_replays(noted):
        losses = answer(x, batches)
    waits = device.order.epoch - epochs[0] if device and epochs else 1
    if not isinstance(losses, list) or not all(isinstance(one, float) for one in losses):
        raise Wrong(f"It gives {brief(losses)}: a list of Python numbers is asked.")
    if len(seen.replayed) != 3:
        raise Wrong(f"{len(seen.replayed)} replays for 3 batches: each needs one.")
    judge(Used([], [torch.tensor(one) for one in losses], Counter(), seen), expected)
    if waits > 1:
        raise Wrong(WAITS[0].format(waits), WAITS[1])


def make_positive(answer: Callable) -> None:
    """Vectors whose sums are positive, negative and positive."""
    x = torch.tensor([5.0, -2.0, 1.0], device="cuda")
    requests = [numbers() * sign for sign in (1, -1, 1)]
    for request in requests:
        request[0] = -request[0] / 4
    known = read(requests)
    used = served(answer(x), [(request,) for request in requests], keeps=False)
    other = [-one if one.sum() > 0 else one for one in known]
    expected = [-one for one in other]
    symptoms = [(FROZEN, known), (EACH, [one.abs() for one in known]), (SWAPPED, other)]
    judge(used, expected, symptoms)
    used.replays(graphs=3, operators=9)


def on_two_streams(answer: Callable) -> None:
    """Three numbers; sin and cos may run at the same time."""
    x = numbers()
    known = read(x)
    with watch() as seen:
        y = answer(x)
    if not torch.is_tensor(y):
        raise Wrong(f"It gives {brief(y)}: a tensor is asked.")
    if not seen.replayed:
        raise Wrong(EAGER)
    if on_stand_in():
        _two_branches(seen)
    judge(Used([], [read(y)], Counter(), seen), [known.sin() + known.cos()])


def _two_branches(seen: Watched) -> None:
    nodes = {operator_of(node): node for node in seen.captured[-1].capture.nodes}
    if "sin" not in nodes or "cos" not in nodes:
        raise Wrong(NO_FORK)
    sin, cos = nodes["sin"], nodes["cos"]
    if sin.stream == cos.stream or ordered(sin, cos):
        raise Wrong(ONE_STREAM)


def make_noisy(answer: Callable) -> None:
    """Three calls for the same three numbers."""
    x = numbers()
    known = read(x)
    used = served(answer(x), [()] * 3, keeps=False)
    used.replays(graphs=3, operators=3)
    nothing_freed()
    noise = [result - known for result in used.kept]
    if not all(bool(one.isfinite().all()) for one in noise):
        raise Wrong(parting(used.kept, [known] * 3))
    if any(close(a, b) for a, b in pairwise(noise)):
        raise Wrong(SAME_NOISE)
    if any(close(one, one[:1].expand(3), margin=1e-4) for one in noise):
        raise Wrong(ONE_NUMBER)
    if torch.stack(noise).abs().max() > 8 or torch.stack(noise).abs().max() < 0.01:
        raise Wrong("What is added is not drawn from a normal distribution of width 1.")


def score(x: torch.Tensor) -> torch.Tensor:
    """One node."""
    scores = 10 * x
    return scores  # noqa: RET504  the name that the picture gives it


def decode(x: torch.Tensor) -> torch.Tensor:
    """Two nodes; the memory of the first is free after the second."""
    shifted = x + 1
    decoded = 100 * shifted
    return decoded  # noqa: RET504


def score_and_decode(answer: Callable) -> None:
    """Two functions of one tensor, called three times with new values in it."""
    x = numbers()
    with watch() as built:
        run = returned(answer(x, score, decode))
    given, expected = [], []
    replayed = []
    for _ in range(3):
        new = numbers()
        x.copy_(new)
        with watch() as seen:
            result = run()
        if not isinstance(result, tuple | list) or len(result) != 2:
            raise Wrong("Return two results: scores, decoded.")
        replayed += seen.replayed
        given.append(read(result))
        expected.append((score(read(new)), decode(read(new))))
    if not replayed:
        raise Wrong(EAGER)
    scored, decoded = (
        [close(one[side], other[side]) for one, other in zip(given, expected, strict=True)]
        for side in (0, 1)
    )
    if all(decoded) and not any(scored):
        raise Wrong(OVERWRITTEN)
    judge(Used([], given, Counter(), Watched()), expected)
    _in_one_pool(built, replayed)


def _in_one_pool(built: Watched, replayed: list) -> None:
    if len(built.pools) > 1:
        raise Wrong(POOLS)
    if len(built.captured) != 2 or len(replayed) != 6:
        raise Wrong("Each call replays two graphs: one scores, one decodes.")
    if on_stand_in() and [len(graph.capture.nodes) for graph in replayed[:2]] != [1, 2]:
        raise Wrong(ORDER)


def sum_of_gradients(answer: Callable) -> None:
    """A weight, and three batches."""
    weight = numbers().requires_grad_()
    x, batches = numbers(), [numbers() for _ in range(3)]
    each = [2 * read(weight) * batch.square() for batch in read(batches)]
    with watch() as seen:
        gradient = answer(weight, x, batches)
    if not torch.is_tensor(gradient):
        raise Wrong(f"It gives {brief(gradient)}: a tensor is asked.")
    if len(seen.replayed) != 3:
        raise Wrong(f"{len(seen.replayed)} replays for 3 batches: each needs one.")
    symptoms = [(LAST_ALONE, [each[-1]]), (ZERO, [0 * each[-1]])]
    judge(Used([], [read(gradient)], Counter(), seen), [sum(each)], symptoms)


def make_server(answer: Callable) -> None:
    """A table that says which token follows which, and two requests."""
    order = torch.randperm(9).tolist()
    follows = dict(zip(order, [*order[1:], order[0]], strict=True))
    table = torch.tensor([follows[token] for token in range(9)], device="cuda")
    with watch() as built:
        respond = returned(answer(table, 9))
    built.captures_at_most_one()
    del table
    requests = [(order[2], 5), (order[5], 4)]
    used = served(respond, requests)
    first, second = used.kept
    if (first.shape, second.shape) != ((5,), (4,)):
        raise Wrong("Each answer is as long as asked: out[:count].")
    nothing_freed()
    expected = [_tokens(follows, *request) for request in requests]
    used.replays(graphs=9, operators=30)
    if close(used.kept, expected):
        return
    if not close(first, expected[0]) and close(first[:4], expected[1]):
        raise Wrong(EVERY_TIME_THE_LAST)
    alone = [torch.full((count,), follows[token]) for token, count in requests]
    match_symptoms(used.kept, [(NOT_FED, alone)])
    if close(first, expected[0]):
        raise Wrong(WENT_ON)
    if close(first, _tokens(follows, 0, 5)):
        raise Wrong(IGNORED)
    if first[0] == order[2]:
        raise Wrong(AS_SAMPLED)
    if not first[1:].any():
        raise Wrong(STAYS)
    raise Wrong(parting(used.kept, expected, what="Answer"))


def _tokens(follows: dict, first: int, count: int) -> torch.Tensor:
    """The tokens that follow the first one."""
    made = []
    for _ in range(count):
        first = follows[first]
        made.append(first)
    return torch.tensor(made)
