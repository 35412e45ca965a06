"""Traffic for a small server: requests that arrive, and which tokens the next step reads.

    slots = [None] * 32  # one row of the key-value cache each
    slots[0] = make_requests(1)[0]
    batch = schedule(slots, budget=512)  # {0: 94}: slot 0 brings its prompt of 94 tokens
    take_tokens(slots, batch, next_tokens, now)

The scheduling is that of vLLM and SGLang in its simplest form: continuous batching, with prompts in
chunks. Nothing here needs a GPU.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class Request:
    """A prompt, and later the answer to it."""

    tokens: list[int]  # the prompt, then the answer
    limit: int  # how many tokens to generate
    arrival: float  # in seconds
    computed: int = 0  # tokens whose keys and values are in the cache
    times: list[float] = field(default_factory=list)  # when each token of the answer was known
    causes: list[str] = field(default_factory=list)  # whether its step also read a prompt


def make_requests(
    count: int, rate: float | None = None, seed: int = 0, vocab_size: int = 32000
) -> list[Request]:
    """Random prompts of 8 to 900 tokens, half of them shorter than 150, with limits of 8 to 32.

    rate: requests per second, which arrive at random times (a Poisson process); None: all at 0.
    """
    rng, now = random.Random(seed), 0.0
    requests = []
    for _ in range(count):
        length = min(900, max(8, round(rng.lognormvariate(5, 1))))
        prompt = [rng.randrange(vocab_size) for _ in range(length)]
        requests.append(Request(prompt, limit=rng.randint(8, 32), arrival=now))
        if rate:
            now += rng.expovariate(rate)
    return requests


def schedule(slots: Sequence[Request | None], budget: int) -> dict[int, int]:
    """How many tokens each live slot brings to the next step: {slot: count}.

    Requests that decode come first, one token each, then prompts, in the order of their arrival.
    Together they bring at most budget tokens, so a long prompt takes several steps.
    """
    live = {slot: request for slot, request in enumerate(slots) if request}
    pending = {slot: len(request.tokens) - request.computed for slot, request in live.items()}
    batch: dict[int, int] = {}
    left = budget
    for slot in sorted(live, key=lambda slot: (pending[slot] > 1, live[slot].arrival)):
        if left:
            batch[slot] = min(pending[slot], left)
            left -= batch[slot]
    return batch


def take_tokens(
    slots: list[Request | None], batch: dict[int, int], tokens: Sequence[int], now: float
) -> None:
    """Give each request of the batch its next token, and free the slots of those that are done.

    tokens: the next token of each slot, which counts only once the whole prompt has been read. now:
    seconds since the server's start.
    """
    cause = "with a prompt" if max(batch.values()) > 1 else "decoding only"
    for slot, count in batch.items():
        request = slots[slot]
        if request is None:
            raise ValueError(f"the batch has tokens of slot {slot}, which is free")
        request.computed += count
        if request.computed == len(request.tokens):  # else a part of its prompt is left
            request.tokens.append(tokens[slot])
            request.times.append(now)
            request.causes.append(cause)
            if len(request.times) == request.limit:
                slots[slot] = None
