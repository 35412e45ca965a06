"""Scenarios: a decoder's next tokens: of one prompt after the other, of several rows, up to the
end.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from cpu_graph import on_stand_in
from cpu_graph.log import launch_log
from examples.decoder import Config, Decoder, new_kv_cache, prefill, sample
from exercises.answers.graph_use import (
    call_answer,
    raise_symptom,
    require_no_freed_reads,
    watch_graphs,
)
from exercises.answers.tensors import are_close, copy_tensors
from exercises.answers.wrong import WRITTEN_OVER, Wrong
from exercises.scenarios.common import draw_int, require_replay, unpack
from exercises.scenarios.rules import call_with_one_graph, require_one_graph

SIZES = Config(
    n_layers=1, dim=32, n_heads=4, n_kv_heads=2, hidden_dim=64, vocab_size=64, max_seq_len=40
)
FROZEN = (
    "The position stays that of the capture: keep it in a tensor, and "
    "advance that in place, inside."
)
NOT_FED = (
    "Every call decodes the same input token: write the new one into tokens, in place, inside."
)
WARMED = "The first token is number {}: a warm-up decoded. Undo it."
READ = "The first token is the one that the step reads: return those that come after it."
LAST = ("All tokens of an answer are its last one.", "Clone each token after its replay.")
IGNORED = (
    "The first token of an answer is right, and the others do not follow from the prompt.",
    "The graph reads the cache of its capture: read the prompt into that one.",
)
WENT_ON = (
    "The first token of an answer is right, and the others are decoded at the positions where the "
    "answer before ended.",
    "Write the length of the prompt into input_pos, in place.",
)
IGNORED_AND_WENT_ON = (
    "The first token of an answer is right, and the others do not follow from the prompt, whatever "
    "it is.",
    "Read the prompt into the cache of the capture, and write its length into input_pos.",
)
BESIDE = (
    "The new tokens are decoded one position beside the right one.",
    "The first new token belongs right after the prompt: count the tokens before it.",
)
ONE_POSITION = (
    "All rows are decoded at the position of the {} prompt: input_pos has a position for each row."
)
State = tuple[Tensor, Tensor, Tensor]


def prompted(room: int) -> tuple[Decoder, State]:
    """A tiny decoder, and its state after a prompt: tokens and positions (1, 1), and the cache.

    room: how many more tokens fit into the cache.
    """
    model = Decoder(SIZES, "cuda").requires_grad_(False)
    prompt = torch.randint(SIZES.vocab_size, (1, SIZES.max_seq_len - room), device="cuda")
    return model, prefill(model, SIZES, [prompt])


def _decoded(model, state, count, feeds=True, moves=True):
    """The next count tokens. feeds=False decodes the same input again, moves=False stays at the
    position.
    """
    (tokens, positions, cache), given = copy_tensors(state), []
    for _ in range(count):
        given.append(sample(model(tokens, positions, cache)))
        tokens, positions = given[-1] if feeds else tokens, positions + moves
    return given


def _refuse_waits(following: Any) -> Any:
    """The reader's function; on the stand-in it raises Wrong if a call waits for the GPU."""
    if not callable(following) or not on_stand_in():
        return following

    def call():
        result = following()
        if not launch_log():
            raise Wrong(
                "Each call waits for the GPU: leave the tokens there, and let the caller decide "
                "when to read them."
            )
        return result

    return call


def _answers(model, requests, reads=True, places=True, warm=3, beside=0):
    """What an answer's respond returns to the requests, pairs of prompt and count.

    reads: the prompt goes into the graph's cache. places: its length becomes the position, plus
    beside. warm: steps of a warm-up that nobody undoes.
    """
    cache = new_kv_cache(SIZES, 1, "cuda", torch.float32)
    tokens = torch.zeros(1, 1, dtype=torch.int64, device="cuda")
    position = torch.zeros_like(tokens)
    for _ in range(warm):
        tokens = sample(model(tokens, position, cache))
        position = position + 1
    answers = []
    for prompt, count in requests:
        own = cache if reads else torch.zeros_like(cache)
        tokens = sample(model(prompt, torch.arange(prompt.shape[1], device="cuda")[None], own))
        if places:
            position = torch.full_like(tokens, prompt.shape[1] + beside)
        made = [tokens]
        for _ in range(count - 1):
            tokens = sample(model(tokens, position, cache))
            position = position + 1
            made.append(tokens)
        answers.append(torch.cat(made, dim=1))
    return answers


def judge_make_responder(answer: Callable) -> None:
    """Three prompts of different lengths, one after the other; the second is the shortest."""
    model = Decoder(SIZES, "cuda").requires_grad_(False)
    requests = [
        (torch.randint(SIZES.vocab_size, (1, length), device="cuda"), count)
        for length, count in ((draw_int(6, 9), 4), (draw_int(2, 5), 3), (draw_int(9, 12), 3))
    ]
    expected = _answers(model, requests)
    used = call_answer(call_with_one_graph(answer, model, SIZES), requests)
    if not are_close(used.given, expected):
        if all(bool((made == made[:, -1:]).all()) for made in used.given):
            raise Wrong(LAST)
        raise_symptom(used.given, _responses_by_fault(partial(_answers, model, requests)))
    used.require_results(expected)
    asked = sum(count - 1 for _, count in requests)
    used.require_launches(graphs=max(asked, used.counts["graphs"]), operators=10**6)


def _responses_by_fault(answers: Callable) -> Iterator[tuple[tuple[str, str], list]]:
    for warm in (3, 0):
        yield IGNORED, answers(reads=False, warm=warm)
        yield WENT_ON, answers(places=False, warm=warm)
        yield IGNORED_AND_WENT_ON, answers(reads=False, places=False, warm=warm)
    yield BESIDE, answers(beside=-1)
    yield BESIDE, answers(beside=1)


def judge_graph_rows(answer: Callable) -> None:
    """Three prompts of different lengths as rows of one batch."""
    model = Decoder(SIZES, "cuda").requires_grad_(False)
    lengths = [draw_int(6, 9), draw_int(2, 5), draw_int(10, 13)]
    prompts = [torch.randint(SIZES.vocab_size, (1, length), device="cuda") for length in lengths]
    calls = 4
    first, _, cache = state = prefill(model, SIZES, prompts)
    expected = _decoded(model, state, calls)
    both = call_with_one_graph(answer, model, SIZES, copy_tensors(prompts))
    first_tokens, following = unpack(both, "the first tokens", "a function")
    given = copy_tensors(first_tokens)
    used = call_answer(_refuse_waits(following), [()] * calls)
    if not are_close(given, first):
        warmed = ((WARMED.format(number), tokens) for number, tokens in enumerate(expected, 2))
        raise_symptom(given, warmed)
        raise Wrong(
            "The first tokens are not those that the prompts get alone: read each prompt as it "
            "is, without padding, into its own row of the cache."
        )
    if not are_close(used.given, expected):
        for which, length in (("longest", max(lengths)), ("shortest", min(lengths))):
            same = _decoded(model, (first, torch.full_like(first, length), cache), calls)
            raise_symptom(used.given, [(ONE_POSITION.format(which), same)])
        not_fed = _decoded(model, state, calls, feeds=False)
        frozen = _decoded(model, state, calls, moves=False)
        raise_symptom(used.given, [(NOT_FED, not_fed), (FROZEN, frozen)])
    used.require_results(expected)
    if not are_close(first_tokens, first):
        raise Wrong(WRITTEN_OVER)
    used.require_launches(graphs=calls, operators=calls)


def judge_generate(answer: Callable) -> None:
    """One row that comes to its end within a replay, not before the limit, or just behind it."""
    for at, every, limit in ((4, 3, 9), (None, 2, 4), (5, 3, 5), (None, 5, 3)):
        room = limit + every - 1 + every  # beyond the limit, and for one warm-up
        model, state = prompted(room)
        tokens = [one.item() for one in _decoded(model, state, room)]
        end = SIZES.vocab_size if at is None else tokens[at]
        count = tokens.index(end) + 1 if end in tokens[:limit] else limit
        own = copy_tensors(state)
        with watch_graphs() as seen:
            try:
                given = answer(model, *own, end, every, limit)
            except RuntimeError as error:
                if "device-side assert" not in str(error):
                    raise
                raise Wrong(
                    "The warm-up decodes beyond the end of the cache, which has room for one "
                    "warm-up: capture with warmup=1."
                ) from None
        require_no_freed_reads()
        require_one_graph(seen)
        if not isinstance(given, list | tuple) or not all(isinstance(one, int) for one in given):
            raise Wrong("A list of whole numbers is asked: .tolist() makes one.")
        require_replay(seen)
        _judge_tokens(list(given), int(state[0]), tokens, count, every)
        needed = -(-count // every)
        if len(seen.replayed) != needed:
            raise Wrong(
                f"{len(seen.replayed)} replays where {needed} do: {every} tokens in one "
                "graph, and a look after each replay."
            )


def _judge_tokens(given, first, tokens, count, every):
    """Raises Wrong unless given are the first count of the tokens that follow the first one."""
    if given == tokens[:count]:
        return
    if given[:every] == given[every - 1 : every] * every:
        raise Wrong("All tokens of a replay are its last one: clone each, inside of the capture.")
    if given == tokens[: count - 1]:
        raise Wrong("The last token is missing: the end belongs to the answer.")
    if given == tokens[: len(given)]:
        raise Wrong(
            f"{len(given)} tokens where {count} are asked: stop with the end, or at the limit."
        )
    first_tokens = given[:3]
    if first_tokens == [first, *tokens][: len(first_tokens)]:
        raise Wrong(READ)
    for late in range(1, len(tokens) - 2):
        if first_tokens == tokens[late : late + len(first_tokens)]:
            raise Wrong(WARMED.format(late + 1))
    raise Wrong(f"The tokens are not the eager ones: yours {given[:6]}, expected {tokens[:6]}.")
