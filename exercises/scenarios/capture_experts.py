"""Scenarios of Capture a mixture of experts: a count of drops, a capacity that was frozen, a
capacity that may be too small.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from exercises.answers.graph_use import call_answer
from exercises.answers.wrong import Wrong, require_function
from exercises.scenarios.common import draw_int
from exercises.scenarios.rules import unmodified

WARM_UP_COUNTED = (
    "total is {found} before the first replay, and was {start}: the warm-up counts too. Undo it."
)
START_LOST = "total held {start} before the capture, which is lost: restore it, do not zero it."
NOT_COUNTED = "total is what it was: a replay must write into it, so the step adds in place."
KEPT_COUNT = "total counts the tokens that are kept, not those that are dropped."
FROZEN_COUNT = "Each replay adds the drops of the sample: count inside of the captured step."
LAST_COUNT = "total holds the drops of the last replay alone: add them to what it holds."
FROZEN_GROUPS = (
    "The groups have the sizes that they had at the capture: tokens of other "
    "routings meet the wrong expert.",
    "The sizes must stay on the GPU, or be read anew for each call.",
)
FROZEN_ORDER = (
    "Each token goes to the expert that the sample's token chose.",
    "Route in each call.",
)
FROZEN_CAPACITY = (
    "Tokens are dropped.",
    "The capacity is the sample's largest group, and later groups are larger.",
)
OTHER_CAPACITIES = (
    "layer is called with the capacities {found}, where {right} are right: the smallest that would "
    "have dropped at most 1% of the earlier tokens, and all tokens of a batch."
)
DROPS = "A result lacks the tokens that the first graph dropped: replay the second one then."


def capacity_mask(expert: Tensor, n_expert: int, capacity: int) -> Tensor:
    """Whether each token is among the first of its expert."""
    chosen = expert == torch.arange(n_expert, device="cuda")[:, None]
    return chosen.cumsum(1).gather(0, expert[None])[0] <= capacity


def expert_outputs(up: Tensor, x: Tensor, expert: Tensor) -> Tensor:
    """Each token through its expert's matrix."""
    return (x[:, None] @ up[expert])[:, 0]


def make_dropping_layer(up: Tensor, route: Callable) -> Callable:
    """A function of x and a capacity: zeros for dropped tokens, and whether each was kept."""

    def layer(x, capacity):
        expert = route(x)
        kept = capacity_mask(expert, len(up), capacity)
        return zero_dropped(expert_outputs(up, x, expert), kept), kept

    return layer


def route(x: Tensor) -> Tensor:
    """Each token's expert, which its first number says."""
    return x[:, 0].long()


def draw_tokens(routing: Tensor, n_embd: int) -> Tensor:
    """Random tokens that choose these experts."""
    x = torch.randn(len(routing), n_embd, device="cuda")
    x[:, 0] = routing.cuda()
    return x


def draw_experts_and_tokens(routings: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """The matrices of four experts, (4, n_embd, n_hidden), and tokens of these routings."""
    n_embd, n_hidden = draw_int(3, 6), draw_int(6, 9)
    up = torch.randn(4, n_embd, n_hidden, device="cuda")
    return up, [draw_tokens(routing, n_embd) for routing in routings]


def judge_graph_counted(answer: Callable) -> None:
    """Five routings of twelve tokens to four experts with three rows each; the sample's drops."""
    n_expert, tokens = 4, 12
    capacity = 3
    start = draw_int(3, 9)
    routings = [torch.tensor([0, 1] * 6), torch.arange(tokens) % n_expert, torch.full((12,), 3)]
    routings += [torch.randint(n_expert, (tokens,)), torch.tensor([0, 1, 2] * 4)]
    up, xs = draw_experts_and_tokens(routings)
    layer = make_dropping_layer(up, route)
    total = torch.full((), start, device="cuda")

    sample = xs[0].clone()
    with unmodified("sample or x", sample, xs):
        function = require_function(answer(lambda x: layer(x, capacity), total, sample))
        _require_drop_count(function, total, start, xs, layer, capacity)


def _require_drop_count(function, total, start, xs, layer, capacity):
    """Raises Wrong unless replays alone count the drops, from the start."""
    n_expert, tokens = 4, len(xs[0])
    before = total.item()
    if before > start:
        raise Wrong(WARM_UP_COUNTED.format(found=before, start=start))
    if before < start:
        raise Wrong(START_LOST.format(start=start))
    used = call_answer(function, list(xs))
    expected = [layer(x, capacity)[0] for x in xs]
    of_sample = [zero_dropped(y, capacity_mask(route(xs[0]), n_expert, capacity)) for y in expected]
    used.require_results(expected, {FROZEN_ORDER: of_sample})
    drops = [(~layer(x, capacity)[1]).sum().item() for x in xs]
    found, right = total.item(), start + sum(drops)
    faults = {
        NOT_COUNTED: start,
        KEPT_COUNT: start + 5 * tokens - sum(drops),
        FROZEN_COUNT: start + 5 * drops[0],
        LAST_COUNT: drops[-1],
    }
    if found == right and used.seen.replayed:
        used.seen.replayed[-1].replay()
        if total.item() != right + drops[-1]:
            raise Wrong(
                "total is right, but a replay alone adds nothing to it: the captured step adds "
                "the drops to total, in place."
            )
    used.require_launches(graphs=5, operators=10)
    if found != right:
        for message, wrong in faults.items():
            if found == wrong:
                raise Wrong(message)
        raise Wrong(f"total is {found} after all replays, where {right} is right.")


def zero_dropped(y: Tensor, ok: Tensor) -> Tensor:
    """The rows of y that are ok, and zeros."""
    return torch.where(ok[:, None], y, 0)


def judge_graph_groups(answer: Callable) -> None:
    """Four inputs with other routings than the sample's; the last goes to one expert."""
    routings = [torch.arange(8) // 2, torch.tensor([0, 1, 1, 1, 2, 3, 3, 3])]
    routings += [torch.tensor([3, 1, 3, 0, 3, 2, 0, 3]), torch.full((8,), 2)]
    up, xs = draw_experts_and_tokens(routings)
    sample = xs[0].clone()
    with unmodified("sample or x", sample, xs):
        _require_expert_outputs(call_answer(answer(route, up, sample), list(xs)), up, xs, routings)


def _require_expert_outputs(used, up, xs, routings):
    """Raises Wrong unless each token is multiplied by its expert's matrix."""
    n_expert = len(up)
    expected = [expert_outputs(up, x, route(x)) for x in xs]
    used.require_only_replays()
    counts = torch.bincount(routings[0], minlength=n_expert).tolist()
    of_sample = [route(xs[0])] * 4
    largest = max(counts)

    def with_rows(capacity):
        return [
            zero_dropped(y, capacity_mask(route(x), n_expert, capacity))
            for x, y in zip(xs, expected, strict=True)
        ]

    faults = {
        FROZEN_GROUPS: [_in_groups(up, x, route(x), counts) for x in xs],
        FROZEN_ORDER: [expert_outputs(up, x, e) for x, e in zip(xs, of_sample, strict=True)],
        FROZEN_CAPACITY: with_rows(largest),
    }
    for capacity in range(largest + 1, len(xs[0])):
        repair = f"{capacity} rows are not enough: at worst, all tokens choose one expert."
        faults["Tokens are dropped.", repair] = with_rows(capacity)
    used.require_results(expected, faults)


def _in_groups(up, x, expert, counts):
    """What groups of these sizes give, in the order of the tokens."""
    order = expert.argsort(stable=True)
    y = torch.cat([a @ b for a, b in zip(x[order].split(counts), up, strict=True)])
    return torch.empty_like(y).index_copy_(0, order, y)


def judge_graph_two_capacities(answer: Callable) -> None:
    """Five inputs, of which the first, the third and the last fit into the capacity."""
    fits, overflows = torch.arange(12) % 4, torch.tensor([0] * 7 + [1, 2, 3, 1, 2])
    up, xs = draw_experts_and_tokens([fits, overflows, fits.flip(0), torch.full((12,), 2), fits])
    for sample in (draw_tokens(fits, up.shape[1]), draw_tokens(overflows, up.shape[1])):
        with unmodified("sample or x", sample, xs):
            _judge_capacities(answer, up, sample, xs)


def _judge_capacities(answer, up, sample, xs):
    """Two of the inputs overflow the first capacity: seven graph launches."""
    plain = make_dropping_layer(up, route)
    capacities = set()
    right = 7
    loads, capacity = _loads_and_capacity(len(up))

    def layer(x, capacity):
        capacities.add(int(capacity))
        return plain(x, int(capacity))

    used = call_answer(answer(layer, loads, sample), list(xs))
    used.require_only_replays()
    if capacities != {capacity, len(sample)}:
        both = sorted(capacities), [capacity, len(sample)]
        raise Wrong(OTHER_CAPACITIES.format(found=both[0], right=both[1]))
    expected = [expert_outputs(up, x, route(x)) for x in xs]
    used.require_results(expected, {DROPS: [plain(x, capacity)[0] for x in xs]})
    if (found := used.counts["graphs"]) != right:
        raise Wrong(
            f"{found} graph launches where {right} are asked.",
            "Each call replays the first graph, and only after a drop the second one too.",
        )
    used.require_launches(graphs=right, operators=40)


def _loads_and_capacity(n_expert):
    """Earlier loads, in which few batches are uneven, and the capacity that drops 1% at most."""
    loads = torch.tensor([[3, 3, 3, 3]] * 20 + [[4, 2, 2, 4]] * 10 + [[1, 7, 1, 3], [2, 1, 8, 1]])
    capacity = 1
    while (loads - capacity).clamp(min=0).sum() > 0.01 * loads.sum():
        capacity += 1
    return loads[:, torch.randperm(n_expert)], capacity
