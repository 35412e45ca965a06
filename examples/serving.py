"""Traffic for a small server: requests that arrive, and which tokens the next step reads.

    slots = [None] * 32  # one row of the key-value cache each
    slots[0] = make_requests(1)[0]
    batch = schedule(slots, budget=512)  # {0: 94}: slot 0 brings its prompt of 94 tokens
    tokens, rows = pack(slots, batch, max_len=1024, budget=512)  # what the step reads
    awaited = advance(slots, batch)  # {0: request}: its first token is on the way
    deliver(awaited, next_tokens, now)
    figures(requests)  # tokens per second, and how long users waited

The scheduling is that of vLLM in its simplest form: continuous batching, with prompts in
chunks. `advance` needs no token, so the next step can be scheduled before this one is read. Nothing
here needs a GPU.
"""

import random
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import quantiles

import torch
from torch import Tensor


@dataclass
class Request:
    """A prompt, and later the answer to it."""

    tokens: list[int]  # the prompt, then the answer
    limit: int  # how many tokens to generate
    arrival: float  # in seconds
    computed: int = 0  # tokens whose keys and values are in the cache
    scheduled: int = 0  # tokens of the answer that a step computes or has computed
    times: list[float] = field(default_factory=list)  # when each token of the answer was known


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


def pack(
    slots: Sequence[Request | None], batch: dict[int, int], max_len: int, budget: int
) -> tuple[Tensor, Tensor]:
    """What a step reads: (3, budget), int64, and (2, slots + 1), int32.

    The first has a column for each token: its id, its position, its place in the cache, where slot
    s owns the places from s * max_len on. Padding goes to places behind those of all slots. The
    second says where each slot's tokens begin in the batch (and, last, where all end), and how many
    of its tokens are in the cache after the step.
    """
    ids: list[int] = []
    positions: list[int] = []
    starts, lengths = [0], []
    for slot, request in enumerate(slots):
        begin = request.computed if request else 0
        end = begin + batch.get(slot, 0)
        if request:
            ids += request.tokens[begin:end]
            positions += range(begin, end)
        starts.append(len(ids))
        lengths.append(end)
    tokens = torch.zeros(3, budget, dtype=torch.long)
    tokens[:2, : len(ids)] = torch.tensor([ids, positions])
    owners = torch.arange(len(slots)).repeat_interleave(torch.tensor(starts).diff())
    tokens[2] = len(slots) * max_len + torch.arange(budget)
    tokens[2, : len(ids)] = owners * max_len + tokens[1, : len(ids)]
    return tokens, torch.tensor([starts, [*lengths, 0]], dtype=torch.int32)


def advance(slots: list[Request | None], batch: dict[int, int]) -> dict[int, Request]:
    """Count the batch as computed; return the requests that get a token from it: {slot: request}.

    Nobody needs to know that token yet: -1 - slot stands for it until it is delivered. A request
    whose last token is on the way leaves its slot. Raises ValueError for tokens of a free slot.
    """
    awaited = {}
    for slot, count in batch.items():
        request = slots[slot]
        if request is None:
            raise ValueError(f"the batch has tokens of slot {slot}, which is free")
        request.computed += count
        if request.computed == len(request.tokens):  # else a part of its prompt is left
            request.tokens.append(-1 - slot)
            request.scheduled += 1
            awaited[slot] = request
            if request.scheduled == request.limit:
                slots[slot] = None
    return awaited


def deliver(awaited: dict[int, Request], tokens: Sequence[int], now: float) -> None:
    """Give each awaited request its token, in the order of the steps.

    tokens: the next token of each slot. now: seconds since the server's start.
    """
    for slot, request in awaited.items():
        oldest = len(request.times) - request.scheduled  # the first that is not known, from the end
        request.tokens[oldest] = tokens[slot]
        request.times.append(now)


def fit(sizes: Sequence[int], number: int) -> int:
    """The smallest of the sizes (rising) that holds the number. Raises ValueError without one."""
    if number > sizes[-1]:
        raise ValueError(f"{number} is more than the largest size, {sizes[-1]}: split the batch.")
    return sizes[bisect_left(sizes, number)]


def figures(requests: Iterable[Request]) -> dict[str, float]:
    """Tokens per second, and the median and p99 of the waits for a token, in ms.

    A first token is waited for since the request's arrival, every next one since the one before.
    """
    requests = list(requests)
    first = [request.times[0] - request.arrival for request in requests]
    gaps = [now - before for request in requests for before, now in pairwise(request.times)]
    seconds = max(request.times[-1] for request in requests)
    table = {"tokens per s": sum(len(request.times) for request in requests) / seconds}
    for name, waits in {"first": first, "next": gaps}.items():
        percentiles = quantiles(waits, n=100, method="inclusive")
        table[f"{name} p50 ms"] = 1e3 * percentiles[49]
        table[f"{name} p99 ms"] = 1e3 * percentiles[98]
    return table
