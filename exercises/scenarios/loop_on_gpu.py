"""Scenarios: iterations of a loop that know their end, steps that may be skipped. Each raises Wrong
with what it finds.
"""

from collections.abc import Callable

import torch

from exercises.answers.graph_use import Wrong, close, copied, use
from exercises.scenarios.common import few

MOVED = (
    "The warm-up has moved {}.",
    "Put back what it changed, before the first replay.",
)
NOT_EMPTY = "answers holds {} before the first replay: it begins with -1 everywhere."
OUT_OF_BOUNDS = (
    "A replay after the limit indexes a column that answers does not have: select the column with "
    "torch.where, which finds none then."
)
NEW_MEMORY = (
    "The parameters have new memory, and the graph writes to the old one.",
    "Copy the saved values back into the parameters, in place.",
)
NEVER_MOVES = (
    "The weights never move.",
    "The step has to write into the parameters, in place, where all gradients are finite.",
)
ONE_IS_ENOUGH = (
    "A gradient that is not finite reaches the weights.",
    "The step is taken if any number is finite: all of them must be.",
)
SPOILED = (
    "A gradient that is not finite spoils the weights.",
    "Zero times infinity is not a number: torch.where selects without multiplying.",
)
INFINITE = (
    "An infinite gradient reaches the weights.",
    "isfinite tells it, isnan does not.",
)
EACH_ALONE = (
    "Each {} is judged alone.",
    "What is not finite stops the step for all.",
)
GOES_ON = "A row goes on after its end token: choose with torch.where what it keeps."
BEYOND = "A replay after the limit still changes something: count the iterations, in a tensor."


def capture_turn(answer: Callable) -> None:
    """Rows on a ring of tokens, each at another distance from the end token; one does not get there
    in time.
    """
    size, limit = 29, few(6, 12)
    ring = torch.randperm(size).tolist()
    after = torch.tensor(
        [ring[(ring.index(token) + 1) % size] for token in range(size)], device="cuda"
    )
    distances = [few(2, limit), limit + 3, 1, limit - 1]
    tokens = torch.tensor([ring[-1 - distance] for distance in distances], device="cuda")
    start = tokens.tolist()
    rows = [[ring[(place - distance) % size] for place in range(limit)] for distance in distances]
    given = answer(lambda last: after[last], tokens, ring[-1], limit)
    if not (
        isinstance(given, tuple | list) and len(given) == 3 and all(map(torch.is_tensor, given[1:]))
    ):
        raise Wrong(
            "Return three things: a function that replays an iteration, answers, and going."
        )
    replay, answers, going = given
    if tuple(answers.shape) != (len(rows), limit):
        raise Wrong(f"The answers have the shape {tuple(answers.shape)}, not (rows, limit).")
    if going.numel() != 1 or going.dtype != torch.bool:
        raise Wrong(f"going is to be one bool, not {tuple(going.shape)} of {going.dtype}.")
    if tokens.tolist() == start and going.item() and (answers != -1).all():
        raise Wrong(NOT_EMPTY.format(sorted({*answers.flatten().tolist()})[:2]))
    if tokens.tolist() != start or (answers != -1).any() or not going.item():
        raise Wrong(MOVED[0].format("the tokens, the answers or going"), MOVED[1])

    def after_replay():
        try:
            replay()
        except RuntimeError as error:
            if "device-side assert" in str(error):
                raise Wrong(OUT_OF_BOUNDS) from None
            raise
        return copied((tokens, answers, going.view(())))

    states = use(after_replay, [()] * (limit + 3))
    for number, state in enumerate(states.given, 1):
        _compare(number, [one.tolist() for one in state], rows, ring[-1])
    states.replays(graphs=limit + 3, operators=3 * (limit + 3))


def _compare(number, state, rows, end):
    """Raises Wrong unless the state after so many iterations is the expected one."""
    tokens, answers, going = state
    limit, more = len(rows[0]), False
    for token, answer, row in zip(tokens, answers, rows, strict=True):
        stop = min(number, row.index(end) + 1 if end in row else limit)
        more = more or (stop == number < limit and row[stop - 1] != end)
        if answer != row[:stop] + [-1] * (limit - stop):
            raise Wrong(_parted(number, answer, row[:stop], end))
        if token != row[stop - 1]:
            raise Wrong(
                GOES_ON
                if end in row[:stop]
                else BEYOND
                if number > limit
                else _parted(number, token, row, end)
            )
    if bool(going) != more:
        why = (
            "a row has not come to its end"
            if more
            else "every row has come to its end, or the limit"
        )
        raise Wrong(f"After iteration {number} going is {not more}, but {why}.")


def _parted(number, found, expected, end):
    """What is wrong with a row after so many iterations, in words."""
    if isinstance(found, list):
        written = [token for token in found if token != -1]
        if end in expected and written == expected[:-1]:
            return "The end token is missing in the answers: write it, then stop."
        if end in expected and written[: len(expected)] == expected:
            return GOES_ON
        if number > len(found):
            return BEYOND
        if not written:
            return (
                "The answers stay as they are: does a replay read and write the tensors that you "
                "made, in place?"
            )
    return f"After iteration {number} a row is {found}, and {expected} is expected."


def guarded_step(answer: Callable) -> None:
    """Two parameters, and gradients that are finite, infinite or not a number."""
    parameters = [torch.randn(few(), 3, device="cuda", requires_grad=True) for _ in range(2)]
    for one in parameters:
        one.grad = torch.ones_like(one)
    before, spoils = copied(parameters), [0.0, float("inf"), 0.0, float("nan"), -float("inf"), 0.0]
    requests = [tuple(torch.randn_like(one) for one in before) for _ in spoils]
    for pair, spoil in zip(requests, spoils, strict=True):
        pair[few(0, 2)][0, 0] += spoil
    addresses = [one.data_ptr() for one in parameters]
    replay = answer(parameters, 0.5)
    if [one.data_ptr() for one in parameters] != addresses:
        raise Wrong(NEW_MEMORY)
    if not close(parameters, before):
        raise Wrong(MOVED[0].format("the weights"), MOVED[1])

    def train(*pair):
        for one, gradient in zip(parameters, pair, strict=True):
            one.grad.copy_(gradient)
        replay()
        return copied(parameters)

    used = use(train, requests)
    _judge(used, before, requests)
    used.replays(graphs=len(spoils), operators=10 * len(spoils))


def _judge(used, weights, requests):
    """Raises Wrong unless the weights after each request are the expected ones; the second has an
    infinity.
    """
    second = torch.cat([one.flatten() for one in used.given[1]])
    if close(used.given[:2], _descent(weights, requests[:2], _any_is_finite)):
        raise Wrong(ONE_IS_ENOUGH)
    if second.isnan().any():
        raise Wrong(SPOILED)
    if second.isinf().any():
        raise Wrong(INFINITE)
    rules = {
        NEVER_MOVES: lambda *_: False,
        (EACH_ALONE[0].format("parameter"), EACH_ALONE[1]): lambda _, one: one.isfinite().all(),
        (EACH_ALONE[0].format("element"), EACH_ALONE[1]): lambda _, one: one.isfinite(),
    }
    expected = _descent(
        weights, requests, lambda pair, _: all(one.isfinite().all() for one in pair)
    )
    used.gives(expected, {what: _descent(weights, requests, rule) for what, rule in rules.items()})


def _any_is_finite(pair, _):
    return any(one.isfinite().any() for one in pair)


def _descent(weights, requests, allowed):
    """The weights after each request, with what is allowed of its gradients."""
    states = []
    for pair in requests:
        steps = [
            torch.where(torch.as_tensor(allowed(pair, one), device=one.device), one, 0)
            for one in pair
        ]
        weights = [weight - 0.5 * step for weight, step in zip(weights, steps, strict=True)]
        states.append(weights)
    return states
