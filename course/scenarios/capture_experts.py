"""Scenarios of Capture a mixture of experts: a fixed capacity, group sizes that were frozen, chosen
experts' matrices, and experts on two ranks. The last scenario plays the other rank.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from course.answers.comparison import brief
from course.answers.graph_use import EAGER, EVERY_TIME_THE_FIRST, Wrong, close, use
from course.scenarios.common import few

TWO_RESULTS = (
    "Two tensors are asked, the results and the number of dropped tokens, not {given}. A Python "
    "number would be frozen."
)
TOOK_A_ROW = (
    "A token without room takes the row of another one: send it to a spare row that nobody reads."
)
NOT_ZERO = "A dropped token gets another token's result: its own must be zeros."
LAST_KEPT = "An expert keeps its last tokens: it is to keep its first ones, in their order."
NOT_DROPPED = "No token is dropped: an expert takes `capacity` tokens at most."
KEPT_COUNT = "The number counts the tokens that are kept, not those that are dropped."
FROZEN_COUNT = "The number of dropped tokens is the sample's: count inside of the captured step."
FROZEN_GROUPS = (
    "The groups have the sizes that they had at the capture: tokens of other routings meet the "
    "wrong expert. The sizes must stay on the GPU, or be read anew for each call."
)
FROZEN_ORDER = "Each token goes to the expert that the sample's token chose: route in each call."
FROZEN_CAPACITY = (
    "Tokens are dropped: the capacity is the sample's largest group, and later groups are larger. "
    "At worst one expert gets all tokens."
)
WHILE_USED = "It captures while it is used: capture once, before the first call."
READS_UP = (
    "A product reads `up` itself, and so the matrices of experts that nobody chose: gather the "
    "chosen ones first."
)
NOT_CHOSEN = (
    "The result is NaN, because an expert that nobody chose takes part: 0 times NaN is NaN."
)
NO_WEIGHTS = "The experts' results are added up without their weights."
FROZEN_CHOICE = "The experts are those that the sample chose: route inside of the captured step."
BY_RANK = (
    "Rows meet the wrong expert: exchange returns them by rank, and the product needs them by "
    "expert. Transpose, do not only reshape."
)
BACK = "Results come back at the wrong rows: before the second exchange they must be by rank again."
NOT_BACK = "The results stay on the rank of their expert: a second exchange returns them."
OTHER_PARTS = "exchange got {found} parts, not one for each of the {right} ranks."
NOT_CONTIGUOUS = (
    "exchange got a tensor that is not contiguous: NCCL sends memory as it is. Call .contiguous()."
)


def sizes() -> tuple[int, int]:
    """n_embd and n_hidden."""
    return few(3, 6), few(6, 9)


def keeps(expert: Tensor, n_expert: int, capacity: int) -> Tensor:
    """Whether each token is among the first of its expert."""
    chosen = expert == torch.arange(n_expert, device="cuda")[:, None]
    return chosen.cumsum(1).gather(0, expert[None])[0] <= capacity


def results(up: Tensor, x: Tensor, expert: Tensor) -> Tensor:
    """Each token through its expert's matrix."""
    return (x[:, None] @ up[expert])[:, 0]


def graph_capacity(answer: Callable) -> None:
    """Five routings of twelve tokens to four experts with three rows each; the sample's is even."""
    n_expert, tokens, capacity = 4, 12, 3
    n_embd, n_hidden = sizes()
    up = torch.randn(n_expert, n_embd, n_hidden, device="cuda")
    routings = [torch.arange(tokens) % n_expert, torch.tensor([0, 2] * 6), torch.full((12,), 3)]
    routings += [torch.randint(n_expert, (tokens,)) for _ in range(2)]
    experts = [routing.cuda() for routing in routings]
    xs = [torch.randn(tokens, n_embd, device="cuda") for _ in experts]
    requests = list(zip(xs, experts, strict=True))

    function = answer(up, capacity, xs[0].clone(), experts[0].clone())

    def checked(x, expert):
        given = function(x, expert)
        leaves = tree_leaves(given)
        if len(leaves) != 2 or not all(map(torch.is_tensor, leaves)):
            raise Wrong(TWO_RESULTS.format(given=brief(given)))
        return given

    used = use(checked if callable(function) else function, requests)
    whole = [results(up, x, expert) for x, expert in requests]
    kept = [keeps(expert, n_expert, capacity) for expert in experts]
    drops = [(~ok).sum() for ok in kept]
    expected = [(rows(y, ok), count) for y, ok, count in zip(whole, kept, drops, strict=True)]
    given, counts = ([tree_leaves(pair)[place] for pair in used.given] for place in (0, 1))
    last = [keeps(expert.flip(0), n_expert, capacity).flip(0) for expert in experts]
    _results(
        given,
        [y for y, _ in expected],
        {
            LAST_KEPT: list(map(rows, whole, last)),
            NOT_DROPPED: whole,
            FROZEN_ORDER: [rows(results(up, x, experts[0]), kept[0]) for x in xs],
        },
    )
    for y, right, ok, request in zip(given, whole, kept, requests, strict=True):
        if y.shape == right.shape:
            _one_request(y, right, ok, *request, up)
    _results(counts, drops, {KEPT_COUNT: [ok.sum() for ok in kept], FROZEN_COUNT: drops[:1] * 5})
    used.gives(expected, {EVERY_TIME_THE_FIRST: expected[:1] * 5})
    used.replays(graphs=5, operators=20)


def _results(given, right, faults):
    """Raise Wrong with the fault that explains the results, if they are not the right ones."""
    if not close(given, right):
        for message, wrong in faults.items():
            if close(given, wrong):
                raise Wrong(message)


def rows(y: Tensor, ok: Tensor) -> Tensor:
    """The rows of y that are ok, and zeros."""
    return torch.where(ok[:, None], y, 0)


def _one_request(y, right, ok, x, expert, up):
    """Raise Wrong where a kept token has a dropped token's row, or a dropped token has a result."""
    for token in range(len(y)):
        if ok[token] and not close(y[token], right[token]):
            others = [x[other] @ up[expert[token]] for other in range(len(x)) if not ok[other]]
            if any(close(y[token], other) for other in others):
                raise Wrong(TOOK_A_ROW)
            return
    if y[~ok].count_nonzero():
        raise Wrong(NOT_ZERO)


def graph_groups(answer: Callable) -> None:
    """Four inputs with other routings than the sample's; the last goes to one expert."""
    n_expert, tokens = 4, 8
    n_embd, n_hidden = sizes()
    up = torch.randn(n_expert, n_embd, n_hidden, device="cuda")
    routings = [torch.arange(tokens) // 2, torch.tensor([0, 1, 1, 1, 2, 3, 3, 3])]
    routings += [torch.tensor([3, 1, 3, 0, 3, 2, 0, 3]), torch.full((tokens,), 2)]
    xs = []
    for routing in routings:
        x = torch.randn(tokens, n_embd, device="cuda")
        x[:, 0] = routing.cuda()  # what route reads
        xs.append(x)

    def route(x):
        return x[:, 0].long()

    function = answer(route, up, xs[0].clone())
    used = use(function, list(xs))
    expected = [results(up, x, route(x)) for x in xs]
    if used.seen.captured:
        raise Wrong(WHILE_USED)
    if not used.seen.replayed:
        raise Wrong(EAGER)
    counts = torch.bincount(routings[0], minlength=n_expert).tolist()
    of_sample = [route(xs[0])] * 4
    largest = max(counts)
    used.gives(
        expected,
        {
            FROZEN_GROUPS: [_in_groups(up, x, route(x), counts) for x in xs],
            FROZEN_ORDER: [results(up, x, e) for x, e in zip(xs, of_sample, strict=True)],
            FROZEN_CAPACITY: [
                rows(y, keeps(route(x), n_expert, largest))
                for x, y in zip(xs, expected, strict=True)
            ],
            EVERY_TIME_THE_FIRST: expected[:1] * 4,
        },
    )


def _in_groups(up, x, expert, counts):
    """What groups of these sizes give, in the order of the tokens."""
    order = expert.argsort(stable=True)
    y = torch.cat([a @ b for a, b in zip(x[order].split(counts), up, strict=True)])
    return torch.empty_like(y).index_copy(0, order, y)


class _Products(TorchDispatchMode):
    """Notes whether a matrix product reads the memory of a tensor."""

    def __init__(self, tensor: Tensor):
        super().__init__()
        self.address = tensor.untyped_storage().data_ptr()
        self.found = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        """Run the operator."""
        if func.overloadpacket.__name__ in ("mm", "bmm", "addmm", "baddbmm", "mv"):
            read = [arg.untyped_storage().data_ptr() for arg in args if torch.is_tensor(arg)]
            self.found |= self.address in read
        return func(*args, **(kwargs or {}))


def graph_chosen(answer: Callable) -> None:
    """Four inputs of a few tokens, of eight experts; the matrices of those not chosen are NaN."""
    n_expert, tokens, top_k = 8, few(1, 4), 2
    n_embd, n_hidden = sizes()
    up = torch.randn(n_expert, n_embd, n_hidden, device="cuda")
    router = torch.randn(n_embd, n_expert, device="cuda")
    router[:, -2:] = 0
    bias = torch.zeros(n_expert, device="cuda")
    bias[-2:] = -1e4  # nobody chooses the last two
    up[-2:] = float("nan")
    xs = list(torch.randn(4, tokens, n_embd, device="cuda"))

    def route(x):
        return (x @ router + bias).softmax(-1).topk(top_k)

    def weighted(x, weights, experts):
        return (weights[..., None] * (x[:, None, None] @ up[experts])[:, :, 0]).sum(1)

    sample = torch.randn(tokens, n_embd, device="cuda")
    with _Products(up) as products:
        function = answer(route, up, sample.clone())
    used = use(function, list(xs))
    if any(leaf.isnan().any() for leaf in tree_leaves(used.given) if torch.is_tensor(leaf)):
        raise Wrong(NOT_CHOSEN)
    expected = [weighted(x, *route(x)) for x in xs]
    of_sample = route(sample)
    used.gives(
        expected,
        {
            NO_WEIGHTS: [weighted(x, torch.ones_like(route(x)[0]), route(x)[1]) for x in xs],
            FROZEN_CHOICE: [weighted(x, *of_sample) for x in xs],
            EVERY_TIME_THE_FIRST: expected[:1] * 4,
        },
    )
    used.replays(graphs=4, operators=8)
    if products.found:
        raise Wrong(READS_UP)


def graph_my_experts(answer: Callable) -> None:
    """Rank 0, then rank 1, of two, with three experts each; four buffers of two rows each."""
    world_size, n_mine, capacity = 2, 3, 2
    n_expert = world_size * n_mine
    n_embd, n_hidden = sizes()
    for rank in range(world_size):
        up = torch.randn(n_expert, n_embd, n_hidden, device="cuda")
        parts_of_up = up.view(world_size, n_mine, n_embd, n_hidden)
        buffers = torch.randn(4, world_size, n_expert, capacity, n_embd, device="cuda")
        other = Other(rank, parts_of_up, torch.zeros_like(buffers[0, 0]))
        function = answer(parts_of_up[rank].clone(), other.exchange, world_size, buffers[0, rank])
        if not callable(function):
            raise Wrong(f"A function is to be returned, not {brief(function)}.")
        if other.calls != {True, False}:
            raise Wrong(NOT_BACK)

        def call(number, function=function, other=other, buffers=buffers, rank=rank):
            other.buffer.copy_(buffers[number, 1 - rank])
            return function(buffers[number, rank])

        used = use(call, [(number,) for number in range(4)])
        expected = [both[rank] @ up for both in buffers]
        own = slice(rank * n_mine, (rank + 1) * n_mine)
        symptoms: dict[str, list] = {EVERY_TIME_THE_FIRST: expected[:1] * 4, BY_RANK: [], BACK: []}
        for both, right in zip(buffers, expected, strict=True):
            received = both[:, own]  # (world_size, n_mine, capacity, n_embd)
            by_rank = received.reshape(n_mine, -1, n_embd) @ up[own]
            by_expert = received.transpose(0, 1).flatten(1, 2) @ up[own]
            for message, y in ((BY_RANK, by_rank), (BACK, by_expert)):
                wrong = right.clone()
                wrong[own] = y.reshape(world_size, n_mine, capacity, n_hidden)[rank]
                symptoms[message].append(wrong)
        used.gives(expected, symptoms)
        used.replays(graphs=4, operators=12)


class Other:
    """The other rank: it sends its buffer, and the results of the rows that it receives."""

    def __init__(self, rank: int, up: Tensor, buffer: Tensor):
        self.rank = rank
        self.up = up  # (world_size, n_mine, n_embd, n_hidden)
        self.buffer = buffer
        self.calls: set[bool] = set()  # of the first exchange, of the second
        self.received = buffer

    def exchange(self, parts: Tensor) -> Tensor:
        """What each rank sends to this one, by rank."""
        if len(parts) != len(self.up):
            raise Wrong(OTHER_PARTS.format(found=len(parts), right=len(self.up)))
        if not parts.is_contiguous():
            raise Wrong(NOT_CONTIGUOUS)
        first = parts.numel() == self.buffer.numel()
        self.calls.add(first)
        if first:
            self.received = parts[1 - self.rank].reshape(len(self.up[0]), -1, self.up.shape[2])
            theirs = self.buffer.view(len(self.up), -1)[self.rank]
        else:
            theirs = self.received @ self.up[1 - self.rank]
        both = [parts[self.rank].flatten(), theirs.flatten()]
        return torch.stack(both if self.rank == 0 else both[::-1]).view_as(parts)
