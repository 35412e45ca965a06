"""Scenarios of the puzzles, with small whole numbers, which a picture shows. They need the
stand-in, not the course.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from cpu_graph import on_stand_in
from cpu_graph.graphs import all_nodes
from cpu_graph.history import Step, shown_numbers
from cpu_graph.log import Listener, listeners_off, listening, operator_of, ordered
from exercises.answers.comparison import short_repr
from exercises.answers.graph_use import (
    AnswerCalls,
    GraphUse,
    raise_symptom,
    require_distinct_results,
    require_expected,
    require_no_freed_reads,
    watch_graphs,
)
from exercises.answers.launches import count_launches
from exercises.answers.tensors import are_close, describe_first_difference
from exercises.answers.wrong import (
    EAGER,
    EVERY_TIME_THE_FIRST,
    EVERY_TIME_THE_LAST,
    Wrong,
    require_function,
)
from exercises.scenarios.common import require_replay, require_replays
from exercises.scenarios.rules import require_one_graph

CHANGED = (
    "It changes a tensor of the caller.",
    "copy_ writes into the tensor before the dot: it should be the static one.",
)
WARMED = ("It counts from one too far.", "The warm-up counted, too: undo it in place.")
NOT_MOVED = (
    "The caller's state has not moved as often as the graph was replayed.",
    "The graph must write to the tensor that it was given: `state = ...` names another one.",
)
READ_ONCE = "Clone each loss after its replay; at the end, torch.stack(losses).tolist() waits once."
EARLY = (
    "The CPU reads a copy that may not have arrived: non_blocking=True does not wait.",
    "Keep the losses on the GPU, and read them by torch.stack(losses).tolist().",
)
FLOATS = "Return a list of three Python numbers: torch.stack(losses).tolist() is one."
FROZEN = (
    "Both kinds of x take the same branch.",
    "`if` chose once, at the capture. torch.where(condition, this, that) chooses in every replay.",
)
EACH = ("Each number chooses for itself.", "The condition is one number: that of the sum.")
SWAPPED = "It takes the other branch each time."
NORMAL = {"normal_", "normal", "normal_functional", "randn", "randn_like"}
CAPTURES = "Capture score and decode in a graph of its own each, and replay both in each call."
ORDER = ("A call does not replay the graph of score, then that of decode.", CAPTURES)
LAST_ALONE = (
    "It is the gradient of the last batch alone.",
    "A .grad that is None at the capture is written anew by each replay; a tensor that is there is "
    "added to.",
)
ZERO = ("The gradient is 0.", "Make it before the capture: the graph knows the tensor of then.")
NOT_FED = ("Every token follows the first one.", "Copy next_token into token, inside.")
STAYS = ("All tokens are written to the same position.", "Move position in place, inside.")
IGNORED = ("The first answer begins with token 0.", "Write the first token into token, in place.")
VECTORS = (
    [5.0, -2.0, -2.5],
    [-5.0, 2.0, 2.5],
    [4.0, -1.0, -3.0],
    [1.0, -4.0, 2.0],
    [-1.0, 4.0, 1.5],
)
AS_SAMPLED = "The first token of an answer is the one that was given: return those that follow."


def numbers(count: int = 3) -> torch.Tensor:
    """Whole numbers from 1 to 9, all different."""
    return (torch.randperm(9)[:count] + 1).float().to("cuda")


class WrongInPicture(Wrong):
    """What is wrong, with what the picture says at the steps where where(step) is true."""

    def __init__(self, said: tuple[str, str], what: str, where: Callable[[Step], bool]):
        super().__init__(said)
        self.what, self.where = what, where


class Heard(Listener):
    """The nodes of each launch and its graph, and how often the CPU has waited since a replay."""

    def __init__(self) -> None:
        self.launches: list[tuple[list, Any]] = []
        self.waits = 0

    def launched(self, nodes: list, graph: Any) -> None:
        """Note a launch."""
        self.launches.append((nodes, graph))

    def waited(self) -> None:
        """Count a wait after a replay."""
        self.waits += any(graph for _, graph in self.launches)


def call_and_read(run: Callable, requests: Iterable[tuple], keeps: bool = True) -> AnswerCalls:
    """Call a function with each request, and read the results; if it keeps them, at the end."""
    require_function(run)
    given, counts = [], Counter()
    with watch_graphs() as seen:
        for request in requests:
            with count_launches() as one:
                result = require_tensor(run(*request))
            counts.update(one)
            given.append(result if keeps else read(result))
    return AnswerCalls(given, [read(one) for one in given], counts, seen)


def require_tensor(value: Any) -> torch.Tensor:
    """The value. Raises Wrong if it is no tensor."""
    if value is None:
        raise Wrong("It returns None: is a `return` missing?")
    if not torch.is_tensor(value):
        raise Wrong(f"It returns {describe_value(value)}: return a tensor.")
    return value


def describe_value(value: Any) -> str:
    """What a value is, in words."""
    if isinstance(value, list | tuple) and value:
        what = "tensor" if torch.is_tensor(value[0]) else type(value[0]).__name__
        return f"a {type(value).__name__} of {len(value)} {what}s"
    return "a tensor" if torch.is_tensor(value) else short_repr(value)


def read(value: Any) -> Any:
    """The value on the CPU: what is compared there is no part of the picture."""
    return tree_map_only(torch.Tensor, lambda tensor: tensor.detach().cpu(), value)


def read_unheard(value: Any) -> Any:
    """The value on the CPU, read without a row in the picture."""
    with listeners_off():
        return read(value)


def require_intact(tensor: torch.Tensor, before: torch.Tensor, name: str = "x") -> None:
    """Raises Wrong unless a tensor of the caller holds what it held before."""
    if not are_close(read_unheard(tensor), before):
        raise Wrong(f"It changes {name}, a tensor of the caller.", "Compute into a new tensor.")


def judge(given: list, expected: list, symptoms: Iterable = ()) -> None:
    """Raises Wrong unless the results that are given are the expected ones."""
    require_no_freed_reads()
    expected = read(expected)
    pairs = zip(given, expected, strict=True)
    wrong = [(yours, right) for yours, right in pairs if not are_close(yours, right)]
    if not wrong:
        return
    shown = [shown_numbers(torch.cat([x.flatten() for x in tree_leaves(one)])) for one in wrong[0]]
    try:
        raise_symptom(given, read(list(symptoms)))
        require_distinct_results(given)
        require_expected(given, expected)
    except Wrong as told:
        raise WrongInPicture(
            (told.symptom, told.repair),
            f"{shown[1]} is expected",
            lambda step: step.fetches and shown[0] in step.values.values(),
        ) from None


def judge_ten_times(answer: Callable) -> None:
    """Three numbers."""
    x = numbers()
    before = read(x)
    used = call_and_read(answer, [(x,)])
    judge(used.kept, [10 * before])
    require_replay(used.seen)
    require_intact(x, before)


def judge_make_ten_times(answer: Callable) -> None:
    """A sample, and three requests."""
    static_x, requests = numbers(), [numbers() for _ in range(3)]
    before, sample = read([requests, static_x])
    used = call_and_read(answer(static_x), [(request,) for request in requests], keeps=False)
    if not are_close(read_unheard(requests), before):
        raise Wrong(CHANGED)
    judge(
        used.kept, [10 * request for request in before], [(EVERY_TIME_THE_FIRST, [10 * sample] * 3)]
    )
    used.require_launches(graphs=3, operators=9)


def judge_keep_results(answer: Callable) -> None:
    """A graph that doubles, and three requests whose results are read at the end."""
    static_x = numbers()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        static_y = 2 * static_x
    requests = [numbers() for _ in range(3)]
    expected = [2 * one for one in read(requests)]
    with watch_graphs() as seen:
        given = answer(graph, static_x, static_y, requests)
    if not isinstance(given, list | tuple) or [*map(torch.is_tensor, given)] != [True] * 3:
        raise Wrong(f"It returns {describe_value(given)}: return a list of three tensors.")
    if seen.captured:
        raise Wrong("It captures a graph of its own: replay the one that it was given.")
    require_replay(seen)
    judge(read(list(given)), expected)
    require_replays(seen, 3, "requests")


def judge_count_up(answer: Callable) -> None:
    """A state that three replays move."""
    state = numbers()
    start = read(state)
    with watch_graphs() as seen, listening(outside := Heard()):
        replay = require_function(answer(state))
    if not seen.captured:
        raise Wrong(EAGER)
    states, replays = [], []
    for _ in range(3):
        with watch_graphs() as used:
            replay()
        states.append(read(state))
        replays.append(len(used.replayed))
    if not any(replays):
        raise Wrong(EAGER)
    if replays != [1, 1, 1]:
        raise Wrong("Not each call replays the graph once.", "Return graph.replay.")
    raise_symptom(states, [(WARMED, [start + number for number in (2, 3, 4)])])
    if not are_close(states, [start + number for number in (1, 2, 3)]):
        raise Wrong(NOT_MOVED)
    eager = {operator_of(node) for nodes, graph in outside.launches if not graph for node in nodes}
    if on_stand_in() and "add_" not in eager:
        raise Wrong("It leaves out the warm-up: keep that line, and undo what it does to state.")


def judge_make_shifted(answer: Callable) -> None:
    """Offsets that no caller keeps, and tensors that come after them."""
    x, offset = numbers(), read(numbers())
    before = read(x)
    expected = [before + offset] * 2
    run = answer(x, offset.tolist())
    later = [torch.full((3,), 70.0, device="cuda") for _ in range(3)]
    used = call_and_read(run, [()] * 2)
    judge(used.kept, expected)
    used.require_launches(graphs=2, operators=6)
    require_intact(x, before)
    del later


def judge_losses_of(answer: Callable) -> None:
    """Three batches."""
    x, batches = numbers(), [numbers() for _ in range(3)]
    expected = [batch.square().sum() for batch in read(batches)]
    device = on_stand_in()
    with watch_graphs() as seen, listening(heard := Heard()):
        losses = answer(x, batches)
    if not isinstance(losses, list) or not all(isinstance(one, float) for one in losses):
        raise Wrong(f"It returns {describe_value(losses)}.", FLOATS)
    if len(losses) != 3:
        raise Wrong(f"It returns {len(losses)} numbers.", FLOATS)
    require_replays(seen, 3)
    if device and any(finding.kind == "race" for finding in device.findings):
        raise WrongInPicture(EARLY, "reads before the copy has ended", lambda step: step.fetches)
    judge([torch.tensor(one) for one in losses], expected)
    if heard.waits > 1:
        symptom = (
            f"The CPU waits for the GPU {heard.waits} times: item, tolist, cpu, float and "
            "torch.tensor each wait."
        )
        raise WrongInPicture((symptom, READ_ONCE), "the CPU waits here", lambda step: step.waits)


def judge_make_positive(answer: Callable) -> None:
    """Vectors by whose signs, orders and products nobody can tell that of their sums."""
    x = torch.tensor([5.0, -2.0, 1.0], device="cuda")
    known = [torch.tensor(one) for one in VECTORS]
    requests = [one.to("cuda") for one in known]
    used = call_and_read(answer(x), [(request,) for request in requests], keeps=False)
    if not are_close(read_unheard(requests), known):
        raise Wrong(CHANGED)
    other = [-one if one.sum() > 0 else one for one in known]
    expected = [-one for one in other]
    symptoms = [(FROZEN, known), (EACH, [one.abs() for one in known]), (SWAPPED, other)]
    judge(used.kept, expected, symptoms)
    used.require_launches(graphs=5, operators=15)


def judge_on_two_streams(answer: Callable) -> None:
    """Three numbers; sin and cos may run at the same time."""
    x = numbers()
    known = read(x)
    with watch_graphs() as seen:
        y = require_tensor(answer(x))
    require_replay(seen)
    if on_stand_in():
        _require_branches(seen)
    judge([read(y)], [known.sin() + known.cos()])
    require_intact(x, known)


def _require_branches(seen: GraphUse) -> None:
    nodes = {operator_of(node): node for node in seen.captured[-1].capture.nodes}
    if "sin" not in nodes or "cos" not in nodes:
        raise Wrong(
            "The graph has no node of the side stream.",
            "A stream takes part in a capture once it waits for the capturing one: "
            "side.wait_stream(torch.cuda.current_stream()).",
        )
    sin, cos = nodes["sin"], nodes["cos"]
    if sin.stream == cos.stream or ordered(sin, cos):
        raise Wrong(
            "Nothing of the graph can run at the same time.",
            "sin and cos belong on two streams, and neither may wait for the other.",
        )


def judge_make_noisy(answer: Callable) -> None:
    """Three calls for the same three numbers, and what eager draws add with the same seed."""
    x = numbers()
    known, seed = read(x), int(torch.randint(1000, ()))
    with watch_graphs() as built:
        run = require_function(answer(x))
    torch.manual_seed(seed)
    used = call_and_read(run, [()] * 3, keeps=False)
    used.require_only_replays()
    require_no_freed_reads()
    require_intact(x, known)
    draws = _count_normal_draws(built) if on_stand_in() else 1
    used.require_launches(graphs=3, operators=3)
    noise = [result - known for result in used.kept]
    if any(are_close(one, one[:1].expand(3), margin=1e-4) for one in noise):
        raise Wrong("All numbers get the same noise.", "Draw one for each: torch.randn_like.")
    torch.manual_seed(seed)
    like = torch.zeros(3, device="cuda")
    eager = [known + read(torch.randn_like(like)) for _ in range(3 * draws)]
    if any(are_close(used.kept, eager[first::draws]) for first in range(draws)):
        return
    right, yours = (shown_numbers(one) for one in (eager[0], used.kept[0]))
    raise Wrong(
        "It does not return x plus new normal noise.",
        f"With the same seed, x + torch.randn_like(x) is {right} in the first call, and yours is "
        f"{yours}.",
    )


def _count_normal_draws(built: GraphUse) -> int:
    """How many nodes draw. Raises Wrong if none does, or one from another distribution."""
    nodes = [node for graph in built.captured for node in all_nodes(graph.capture.nodes)]
    drawing = [operator_of(node) for node in nodes if node.draws]
    if not drawing:
        raise Wrong(
            "No node of the graph draws random numbers, so no replay does.",
            "Draw them by torch.randn_like inside of the capture.",
        )
    if others := [operator for operator in drawing if operator not in NORMAL]:
        raise Wrong(
            f"{others[0]} does not draw from the normal distribution of mean 0 and width 1.",
            "torch.randn_like does.",
        )
    return len(drawing)


def score(x: torch.Tensor) -> torch.Tensor:
    """One node."""
    scores = 10 * x
    return scores  # noqa: RET504  the name that the picture gives it


def decode(x: torch.Tensor) -> torch.Tensor:
    """Two nodes; the memory of the first is free after the second."""
    shifted = x + 1
    decoded = 100 * shifted
    return decoded  # noqa: RET504


def judge_score_and_decode(answer: Callable) -> None:
    """Two functions of one tensor, called three times with new values in it."""
    x = numbers()
    captured_in = {}  # the name of a function -> the graph that it is in

    def noted(function):
        def call(given):
            if torch.cuda.is_current_stream_capturing():
                captured_in[function.__name__] = built.captured[-1]
            return function(given)

        return call

    with watch_graphs() as built:
        run = require_function(answer(x, noted(score), noted(decode)))
    given, expected = [], []
    replayed = []
    for _ in range(3):
        new = numbers()
        x.copy_(new)
        with watch_graphs() as seen:
            result = run()
        if not isinstance(result, tuple | list) or len(result) != 2:
            raise Wrong("Return two results: scores, decoded.")
        replayed.append(seen.replayed)
        given.append([read(require_tensor(one)) for one in result])
        expected.append([one(read_unheard(new)) for one in (score, decode)])
        require_intact(x, read_unheard(new))
    if not any(replayed):
        raise Wrong(EAGER)
    scored, decoded = (
        [are_close(one[side], other[side]) for one, other in zip(given, expected, strict=True)]
        for side in (0, 1)
    )
    if all(decoded) and not any(scored):
        raise Wrong(
            "The scores are overwritten by the decoder's replay.",
            "The scorer was captured later and got memory that the decoder uses: capture in the "
            "order of the replays.",
        )
    judge(given, expected)
    _judge_pool_use(built, replayed, [captured_in.get(one.__name__) for one in (score, decode)])


def _judge_pool_use(built: GraphUse, replayed: list, asked: list) -> None:
    if len(built.pools) > 1:
        raise Wrong("The graphs have two pools.", "Give the second capture pool=... of the first.")
    if len(built.captured) != 2 or any(len(call) != 2 for call in replayed):
        raise Wrong("Each call replays two graphs: one scores, one decodes.")
    if any(call != asked for call in replayed):
        raise Wrong(ORDER)


def judge_sum_of_gradients(answer: Callable) -> None:
    """A weight, and three batches."""
    weight = numbers().requires_grad_()
    x, batches = numbers(), [numbers() for _ in range(3)]
    each = [2 * read(weight) * batch.square() for batch in read(batches)]
    with watch_graphs() as seen:
        gradient = require_tensor(answer(weight, x, batches))
    require_replays(seen, 3)
    symptoms = [(LAST_ALONE, [each[-1]]), (ZERO, [0 * each[-1]])]
    judge([read(gradient)], [sum(each)], symptoms)


def judge_make_server(answer: Callable) -> None:
    """A table that says which token follows which, and two requests."""
    order = torch.randperm(9).tolist()
    follows = dict(zip(order, [*order[1:], order[0]], strict=True))
    table = torch.tensor([follows[token] for token in range(9)], device="cuda")
    with watch_graphs() as built:
        respond = require_function(answer(table, 9))
    require_one_graph(built)
    del table
    requests = [(order[2], 5), (order[5], 4)]
    with listening(heard := Heard()):
        used = call_and_read(respond, requests)
    first, second = used.kept
    if (first.shape, second.shape) != ((5,), (4,)):
        raise Wrong("Each answer is as long as asked: out[:count].")
    require_no_freed_reads()
    expected = [_generate(follows, *request) for request in requests]
    used.require_launches(graphs=9, operators=30)
    if not are_close(used.kept, expected):
        _raise_server_symptom(used, expected, follows, requests)
    _require_no_input_writes(heard)


def _raise_server_symptom(used: AnswerCalls, expected: list, follows: dict, requests: list) -> None:
    first = used.kept[0]
    if not are_close(first, expected[0]) and are_close(first[:4], expected[1]):
        raise Wrong(EVERY_TIME_THE_LAST)
    alone = [torch.full((count,), follows[token]) for token, count in requests]
    raise_symptom(used.kept, [(NOT_FED, alone)])
    if are_close(first, expected[0]):
        raise Wrong(
            "The first answer is right, the second one is not.",
            "A request begins by writing to token and to position, in place.",
        )
    if are_close(first, _generate(follows, 0, 5)):
        raise Wrong(IGNORED)
    if first[0] == requests[0][0]:
        raise Wrong(AS_SAMPLED)
    if not first[1:].any():
        raise Wrong(STAYS)
    raise Wrong(describe_first_difference(used.kept, expected, what="Answer"))


def _require_no_input_writes(heard: Heard) -> None:
    """Raises Wrong if operators write to what the graph reads, but for the first replay of a
    request.
    """
    replays, inputs = 0, {}
    for nodes, graph in heard.launches:
        if graph:
            replays, inputs = replays + 1, graph.capture.reads
        written = [block for node in nodes for (block, *_), writes in node.spans.items() if writes]
        if graph is None and replays not in (0, 5, 9) and any(block in inputs for block in written):
            raise Wrong(
                f"Between two replays, {operator_of(nodes[0])} writes to memory that the graph "
                "reads.",
                "Let the graph prepare its own next replay, inside of the capture.",
            )


def _generate(follows: dict, first: int, count: int) -> torch.Tensor:
    """The tokens that follow the first one."""
    made = []
    for _ in range(count):
        first = follows[first]
        made.append(first)
    return torch.tensor(made)
