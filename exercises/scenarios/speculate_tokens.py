"""Scenarios of Speculate tokens: drafts are verified, a speculative step, several steps up to a
limit, drafts from the text itself.
"""

import copy
from collections.abc import Callable

import torch
from torch import Tensor

from examples.decoder import Config, Decoder, new_kv_cache, prefill, project
from exercises.answers.graph_use import call_answer
from exercises.answers.tensors import are_equal, copy_tensors
from exercises.answers.wrong import EVERY_TIME_THE_FIRST, Wrong, require_function
from exercises.scenarios.common import draw_int
from exercises.scenarios.rules import call_with_one_graph

SIZES = Config(
    n_layers=1, dim=32, n_heads=4, n_kv_heads=2, hidden_dim=64, vocab_size=32, max_seq_len=48
)
UP_TO_THE_FIRST = "Count the agreements up to the first disagreement."
AFTER_A_REJECTED_ONE = ("A draft counts although one before it was rejected.", UP_TO_THE_FIRST)
DRAFTS_WRITTEN = "A rejected draft stays in text: write the model's choices, not the drafts."
NOT_THE_MODELS = (
    "input_pos moves by the accepted drafts alone: the model's own token after them counts too."
)
WARMED = ("The warm-up has written tokens.", "Put text and input_pos back, in place.")
NOT_MOVED = ("input_pos does not move.", "Advance it in place, inside of the capture.")
BEYOND = "A step started beyond the limit: hold input_pos back after every step, in the graph."
FIRST_OCCURRENCE = "The drafts follow the first occurrence: the latest earlier one is asked."
FOUND_ITSELF = (
    "The last token has found itself: an occurrence counts only at positions below input_pos."
)
LEFT_OVER = (
    "The drafts follow a token after input_pos, which is left over from a rejected draft: an "
    "occurrence counts only at positions below input_pos."
)
SAME_DRAFTS = (
    "Every call returns the drafts of the first one: read the last token and compare it inside of "
    "the capture."
)
State = tuple[Tensor, Tensor, Tensor]


def logits_of(model: Decoder, tokens: Tensor, input_pos: Tensor, kv_cache: Tensor) -> Tensor:
    """The logits after each of tokens (B, T)."""
    x = model.hidden_states(tokens, input_pos, kv_cache)
    logits = project(model.norm(x).flatten(0, 1), model.embedding.weight)
    return logits.unflatten(0, tokens.shape)


def state_after_prompt(model: Decoder, rows: int, prompt: Tensor | None = None) -> State:
    """Text, the positions of its last tokens and a cache, after a prompt of 4 to 7 tokens."""
    if prompt is None:
        prompt = torch.randint(SIZES.vocab_size, (rows, draw_int(4, 8)), device="cuda")
    tokens, input_pos, cache = prefill(model, SIZES, prompt.split(1))
    text = torch.zeros(rows, SIZES.max_seq_len, dtype=torch.long, device="cuda")
    text[:, : prompt.shape[1] + 1] = torch.cat((prompt, tokens), dim=1)
    return text, input_pos, cache


def greedy(model: Decoder, state: State, count: int) -> Tensor:
    """The text with the next count tokens."""
    text, input_pos, cache = copy_tensors(state)
    for _ in range(count):
        logits = logits_of(model, text.gather(1, input_pos), input_pos, cache)
        text.scatter_(1, input_pos + 1, logits.argmax(dim=-1))
        input_pos += 1
    return text


def drafts_with(model: Decoder, state: State, right: Tensor, k: int) -> Tensor:
    """Drafts (B, k) of which the first right (B, 1) are accepted. The first wrong one is followed
    by what the model would write after it.
    """
    text, input_pos, cache = copy_tensors(state)
    tokens, drafts = text.gather(1, input_pos), []
    for number in range(k):
        choice = logits_of(model, tokens, input_pos + number, cache).argmax(dim=-1)
        tokens = torch.where(right == number, (choice + 1) % SIZES.vocab_size, choice)
        drafts.append(tokens)
    return torch.cat(drafts, dim=1)


def verify_step(model: Decoder, state: State, drafts: Tensor, prefix: bool = True) -> Tensor:
    """Verify drafts, advance the state in place, and return how many are accepted; prefix=False
    counts drafts after a rejected one too.
    """
    text, input_pos, cache = state
    positions = input_pos + torch.arange(drafts.shape[1] + 1, device="cuda")
    tokens = torch.cat((text.gather(1, input_pos), drafts), dim=1)
    choices = logits_of(model, tokens, positions, cache).argmax(dim=-1)
    agreements = (choices[:, :-1] == drafts).long()
    accepted = (agreements.cumprod(dim=1) if prefix else agreements).sum(dim=1, keepdim=True)
    text.scatter_(1, positions + 1, choices)
    input_pos += accepted + 1
    return accepted


def judge_graph_verify(answer: Callable) -> None:
    """Four drafts for two rows; a rejected draft is followed by ones that agree with it."""
    model, k = Decoder(SIZES, "cuda").requires_grad_(False), 3
    start = state_after_prompt(model, rows=2)
    right = [(0, 2), (k, 1), (1, k), (2, 0)]
    state = copy_tensors(start)
    requests, expected = [], []
    for pair in right:
        numbers = torch.tensor(pair, device="cuda")[:, None]
        requests.append(drafts_with(model, state, numbers, k))
        expected.append(verify_step(model, state, requests[-1]))

    def other(drafts=requests, **breaks):
        own = copy_tensors(start)
        return [verify_step(model, own, one, **breaks) for one in drafts]

    own = copy_tensors(start)  # kept alive: a graph holds addresses only
    function = answer(model, *own, k)
    if not are_equal(own[:2], start[:2]):
        raise Wrong(WARMED)
    used = call_answer(function, requests)
    accepted = sum(used.given) if all(one.shape == (2, 1) for one in used.given) else 0
    if torch.equal(own[1], start[1]):
        raise Wrong(NOT_MOVED)
    if not torch.equal(own[1], state[1]) and torch.equal(own[1], start[1] + accepted):
        raise Wrong(NOT_THE_MODELS)
    first = int(start[1][0]) + 1
    if own[0][0, first] == requests[0][0, 0]:
        raise Wrong(DRAFTS_WRITTEN)
    symptoms = {
        AFTER_A_REJECTED_ONE: lambda: other(prefix=False),
        EVERY_TIME_THE_FIRST: lambda: other(requests[:1] * 4),
    }
    used.require_results(expected, symptoms)
    used.require_launches(graphs=4, operators=8)
    require_text(own, state[1], greedy(model, start, 12))


def require_text(own: State, expected_pos: Tensor, expected: Tensor) -> None:
    """Raises Wrong unless input_pos is the expected one, and the text up to there too."""
    text, input_pos, _ = own
    for row, (yours, last) in enumerate(zip(input_pos[:, 0], expected_pos[:, 0], strict=True)):
        if not torch.equal(text[row, : last + 1], expected[row, : last + 1]):
            raise Wrong(f"The text of row {row} is not greedy decoding's. {DRAFTS_WRITTEN}")
        if yours != last:
            raise Wrong(f"input_pos of row {row} is {yours.item()}, where {last.item()} is right.")


def positions_after_replays(function: Callable, input_pos: Tensor, calls: int) -> list[Tensor]:
    """The positions after each call. Raises Wrong unless each call is one launch of a graph."""
    require_function(function)

    def moved():
        function()
        return input_pos

    used = call_answer(moved, [()] * calls)
    used.require_launches(graphs=calls, operators=calls)
    return used.given


def is_greedy(model: Decoder, text: Tensor, start: int) -> bool:
    """Whether the model would choose each token of text (T) from position start on."""
    cache = new_kv_cache(SIZES, 1, "cuda", torch.float32)
    positions = torch.arange(len(text) - 1, device="cuda")[None]
    choices = logits_of(model, text[None, :-1], positions, cache).argmax(dim=-1)
    return torch.equal(choices[0, start - 1 :], text[start:])


def judge_graph_speculate(answer: Callable) -> None:
    """Three steps with a drafter that is often right, then six with one that is the model."""
    model, k = Decoder(SIZES, "cuda").requires_grad_(False), 2
    near = copy.deepcopy(model)
    for weight in near.parameters():
        if weight.dim() == 2:
            weight += 0.25 * weight.std() * torch.randn_like(weight)
    for drafter, calls in ((near, 3), (model, 6)):
        start = state_after_prompt(model, rows=2)
        length = int(start[1][0])
        draft_cache = state_after_prompt(drafter, 2, start[0][:, :length])[2]
        own, own_cache = copy_tensors(start), draft_cache.clone()
        function = answer(model, drafter, *own, own_cache, k)
        if not are_equal(own[:2], start[:2]):
            raise Wrong(WARMED)
        positions = positions_after_replays(function, own[1], calls)
        if torch.equal(positions[-1], start[1]):
            raise Wrong(NOT_MOVED)
        for row in range(2):
            last = int(positions[-1][row])
            if not is_greedy(model, own[0][row, : last + 1], length):
                raise Wrong(
                    f"The text of row {row} is not greedy decoding's, with a drafter that is not "
                    "always right.",
                    UP_TO_THE_FIRST,
                )
            if drafter is model and last < length + calls * (k + 1):
                raise Wrong(
                    f"With a drafter that is the model, {last - length - calls} of {calls * k} "
                    "drafts are accepted.",
                    "The drafter has not read all tokens that were accepted.",
                )


def judge_graph_steps(answer: Callable) -> None:
    """Three replays of four steps, which move the rows by different numbers; one replay more."""
    k, every = 3, 4
    limit = 17
    text = torch.full((2, 200), -1, device="cuda")
    input_pos = torch.full((2, 1), draw_int(2, 5), device="cuda")
    moves = torch.randint(1, k + 2, text.shape, device="cuda")
    moves[0] = moves[0].clamp(min=3)

    def step():
        positions = input_pos + torch.arange(1, k + 2, device="cuda")
        text.scatter_(1, positions, 5 * positions)
        input_pos.add_(moves.gather(1, input_pos))

    place = input_pos.clone()
    expected = []
    for _ in range(4):
        for _ in range(every):
            place = (place + moves.gather(1, place)).clamp(max=limit)
        expected.append(place)
    before = copy_tensors((text, input_pos))
    function = call_with_one_graph(answer, step, text, input_pos, limit, every)
    warmed = not are_equal((text, input_pos), before)
    positions = positions_after_replays(function, input_pos, 4)
    if (text[:, limit + k + 2 :] != -1).any():
        raise Wrong(BEYOND)
    if warmed:
        raise Wrong(WARMED)
    _require_positions(positions, expected, limit)
    columns = torch.arange(text.shape[1], device="cuda")
    inside = (columns > before[1]) & (columns <= limit)
    if not torch.equal(text[inside], (5 * columns).expand_as(text)[inside]):
        raise Wrong("The text up to the limit is not what the steps write.")


def _require_positions(positions: list[Tensor], expected: list[Tensor], limit: int) -> None:
    """Raises Wrong unless the rows are where they should be after each replay."""
    for number, (yours, right) in enumerate(zip(positions, expected, strict=True), 1):
        if yours.max() > limit:
            raise Wrong(
                f"After replay {number} a row is at {yours.max().item()}, beyond the limit of "
                f"{limit}: hold input_pos back after every step, in the graph."
            )
        if not torch.equal(yours, right):
            raise Wrong(
                f"After replay {number} the rows are at {yours[:, 0].tolist()}, where "
                f"{right[:, 0].tolist()} is right."
            )


def judge_graph_lookup(answer: Callable) -> None:
    """Four calls; between them, the text is written anew and input_pos moves. In each row the last
    token occurs twice before it, and again in what is left over after it.
    """
    k = draw_int(2, 5)
    rows, length = 3, 40
    text = torch.zeros(rows, length, dtype=torch.long, device="cuda")
    input_pos = torch.zeros(rows, 1, dtype=torch.long, device="cuda")

    def write() -> list[Tensor]:
        """What follows the last token of each row, (rows, 4, k): at its first place, at the latest
        before input_pos, at input_pos and after it.
        """
        places = torch.tensor(
            [[draw_int(1, 4) + row, draw_int(9, 13), draw_int(20, 26), 0] for row in range(rows)]
        )
        places[:, 3] = places[:, 2] + 2
        last = torch.tensor([[draw_int(30, 32)] for _ in range(rows)])
        written = torch.randint(30, (rows, length)).scatter(1, places, last.expand(-1, 4))
        text.copy_(written)
        input_pos.copy_(places[:, 2:3])
        return [written[:, None].expand(-1, 4, -1).gather(2, places[..., None] + follow)]

    follow = torch.arange(1, k + 1)
    right = write()
    function = answer(text, input_pos, k)

    def requests():
        yield ()
        for _ in range(3):
            right.extend(write())
            yield ()

    used = call_answer(function, requests())
    expected = [drafts.to("cuda") for drafts in right]  # (rows, 4, k)
    symptoms = {
        FIRST_OCCURRENCE: [drafts[:, 0] for drafts in expected],
        FOUND_ITSELF: [drafts[:, 2] for drafts in expected],
        LEFT_OVER: [drafts[:, 3] for drafts in expected],
        SAME_DRAFTS: [expected[0][:, 1]] * 4,
    }
    used.require_results([drafts[:, 1] for drafts in expected], symptoms)
    used.require_launches(graphs=4, operators=4)
