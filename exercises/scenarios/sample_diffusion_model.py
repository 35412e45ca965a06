"""Scenarios: a sampler, a scheduler on the CPU, a seed per picture."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from exercises.answers.graph_use import AnswerCalls, call_answer, raise_symptom
from exercises.answers.tensors import are_close, are_equal
from exercises.answers.wrong import Wrong
from exercises.scenarios.common import draw_int
from exercises.scenarios.rules import call_with_one_graph, unmodified

FROZEN_SIZE = (
    "The noise levels are right, and the size of the steps is not.",
    "How far a step goes depends on the call: it must not be a number of the capture.",
)
FROZEN_STEP = (
    FROZEN_SIZE[0],
    "The scheduler reads its table at capture only: leave its step outside.",
)
NEXT_LEVEL = (
    "The model sees the noise level of the next step.",
    "The scheduler moves on in its step: read the level before that.",
)
SAME_NOISE = (
    "Every call begins with the noise that was there at the capture.",
    "Copy the caller's noise into the tensor that the graph changes.",
)
GOES_ON = ("Every call goes on with the pictures of the call before.", SAME_NOISE[1])
ONE_LEVEL = (
    "The model sees the same noise level in every step.",
    "Write the level of each step into the very tensor that the graph reads.",
)


class Denoiser:
    """The velocity of pictures, (batch, size); it notes what is frozen in a capture."""

    def __init__(self, size: int) -> None:
        self.weight = 0.5 * torch.randn(size, size, device="cuda")
        self.shift = torch.randn(size, device="cuda")
        self.frozen = ""

    def __call__(self, x: Tensor, sigma: Any, guidance: Any = 1.0) -> Tensor:
        """The velocity; notes in a capture what is frozen."""
        if torch.cuda.is_current_stream_capturing():
            given = {"noise level": sigma, "guidance scale": guidance}
            frozen = [name for name, value in given.items() if not getattr(value, "is_cuda", False)]
            self.frozen = frozen[0] if frozen else ""
        return self.velocity(x, sigma, guidance)

    def velocity(self, x: Tensor, sigma: Any, guidance: Any = 1.0) -> Tensor:
        """The same, without a note."""
        return x + guidance * (x @ self.weight + 3 * sigma * self.shift).tanh()

    def require_nothing_frozen(self, guided: bool = True) -> None:
        """Raises Wrong if what the model was captured with is frozen; guided: guidance, too."""
        if self.frozen == "noise level" or (self.frozen and guided):
            raise Wrong(
                f"The {self.frozen} that the model sees in a replay is always that of the capture.",
                "It was a number on the CPU, and so it is frozen: keep it in a CUDA tensor, and "
                "write there.",
            )


def _levels(num_steps):
    return [1 - step / num_steps for step in range(num_steps + 1)]


def _euler(model, x, levels, guidance=1.0, seen=lambda sigma, _: sigma, size=None):
    """The pictures after eager steps through the noise levels.

    seen: which level the model sees, of a step's own and the next one. size: of every step, by
    default the distance of the two.
    """
    for sigma, next_sigma in pairwise(levels):
        velocity = model.velocity(x, seen(sigma, next_sigma), guidance)
        x = x + (size or next_sigma - sigma) * velocity
    return x


def _require_replay_per_step(used: AnswerCalls, steps: int) -> None:
    """Raises Wrong unless each step was one replay, with little beside it."""
    used.require_only_replays()
    if (found := used.counts["graphs"]) != steps:
        raise Wrong(
            f"It launches {found} graphs for {steps} steps.",
            "Capture one step, and replay it once for each step of a call.",
        )
    used.require_launches(graphs=steps, operators=8 * (steps + len(used.given)))


def judge_graph_sampler(answer: Callable) -> None:
    """Four calls, with other noise, guidance scales and numbers of steps."""
    size = draw_int(3, 6)
    model = Denoiser(size)
    noises = list(torch.randn(5, draw_int(), size, device="cuda"))
    calls = [(1.5, 4), (3.0, 4), (3.0, 6), (0.5, 2)]
    requests = [(noise, *call) for noise, call in zip(noises[1:], calls, strict=True)]

    def expected_from(starts):
        return [
            _euler(model, start, _levels(num_steps), guidance)
            for start, (guidance, num_steps) in zip(starts, calls, strict=True)
        ]

    expected = expected_from(noises[1:])
    with unmodified("noise", *noises):
        used = call_answer(call_with_one_graph(answer, model, noises[0]), requests)
    steps = sum(num_steps for _, num_steps in calls)
    if used.counts["graphs"] and not are_close(used.given, expected):
        model.require_nothing_frozen()
        _raise_sampler_symptom(used, model, noises, calls, expected_from)
    _require_replay_per_step(used, steps)
    used.require_results(expected)


def _raise_sampler_symptom(used, model, noises, calls, expected_from):
    """Raises Wrong with what the results of a sampler show."""
    raise_symptom(used.given, [(SAME_NOISE, expected_from([noises[0]] * len(calls)))])
    for start in noises[:2]:
        chained = []
        for guidance, num_steps in calls:
            start = _euler(model, start, _levels(num_steps), guidance)
            chained.append(start)
        raise_symptom(used.given[1:], [(GOES_ON, chained[1:])])
    requests = [(x, _levels(steps), one) for x, (one, steps) in zip(noises[1:], calls, strict=True)]
    _raise_euler_symptom(
        used,
        model,
        requests,
        [(FROZEN_SIZE, {"size": -1 / steps}) for steps in (1, 2, 4, 6, 10, 20, 50)],
    )


def _raise_euler_symptom(used, model, requests, symptoms):
    """Raises Wrong with the first symptom that shows; symptoms: with the arguments of _euler."""
    one_level = [(ONE_LEVEL, {"seen": lambda *_, level=level: level}) for level in (0.0, 1.0)]
    for message, change in (*one_level, *symptoms):
        results = [_euler(model, *request, **change) for request in requests]
        raise_symptom(used.given, [(message, results)])


class Scheduler:
    """A scheduler as in diffusers: its table is on the CPU, and Python counts its steps."""

    def __init__(self, shift: float) -> None:
        self.shift = shift
        self.set_timesteps(50)

    def set_timesteps(self, num_steps: int) -> None:
        """Begin anew, with so many steps."""
        levels = torch.linspace(1, 0, num_steps + 1)
        self.sigmas = self.shift * levels / (1 + (self.shift - 1) * levels)
        self.step_index = 0

    def step(self, velocity: Tensor, x: Tensor) -> Tensor:
        """The pictures after the next step."""
        sigma = self.sigmas[self.step_index]
        next_sigma = self.sigmas[self.step_index + 1]
        self.step_index += 1
        return x + (next_sigma - sigma) * velocity


def judge_graph_pipeline(answer: Callable) -> None:
    """Three calls with 4, 4 and 3 steps, and a scheduler with a random shift."""
    size = draw_int(3, 6)
    shift = 1.0 + draw_int(1, 5)
    model = Denoiser(size)
    noises = list(torch.randn(4, draw_int(), size, device="cuda"))
    counts = [4, 4, 3]
    expected = [
        _euler(model, noise, _shifted(num_steps, shift))
        for noise, num_steps in zip(noises[1:], counts, strict=True)
    ]

    scheduler = Scheduler(shift)
    with unmodified("noise", *noises):
        pipeline = call_with_one_graph(answer, model, scheduler, noises[0])
        used = call_answer(pipeline, list(zip(noises[1:], counts, strict=True)))
    if used.counts["graphs"] and not are_close(used.given, expected):
        model.require_nothing_frozen(guided=False)
        if len(scheduler.sigmas) != counts[-1] + 1:
            raise Wrong(
                f"The scheduler has a table of {len(scheduler.sigmas)} noise levels in a call of "
                f"{counts[-1]} steps.",
                "Call set_timesteps in each call.",
            )
        _raise_pipeline_symptom(used, model, noises, counts, shift)
    _require_replay_per_step(used, sum(counts))
    used.require_results(expected)


def _raise_pipeline_symptom(used, model, noises, counts, shift):
    """Raises Wrong with what the results of a pipeline show."""
    requests = [(x, _shifted(count, shift)) for x, count in zip(noises[1:], counts, strict=True)]
    captured = pairwise(_shifted(50, shift)[:6])  # noise levels of a step in a capture
    symptoms = [(FROZEN_STEP, {"size": next_sigma - sigma}) for sigma, next_sigma in captured]
    symptoms.append((NEXT_LEVEL, {"seen": lambda _, next_sigma: next_sigma}))
    _raise_euler_symptom(used, model, requests, symptoms)


def _shifted(num_steps, shift):
    scheduler = Scheduler(shift)
    scheduler.set_timesteps(num_steps)
    return scheduler.sigmas.tolist()


def judge_graph_seeded_sampler(answer: Callable) -> None:
    """Five calls of two or three seeds, with two seeds again at another place."""
    num_images = draw_int(2, 4)
    size = draw_int(3, 6)
    num_steps = draw_int(2, 4)
    weight = 0.5 * torch.randn(size, size, device="cuda")

    def denoise(x, noise):
        return (x @ weight).tanh() + 0.5 * noise

    def picture_of(seed, again=False):
        """The picture of a seed; again: with the same noise in each step."""
        generator = torch.Generator("cuda").manual_seed(seed)
        x = torch.randn(size, device="cuda", generator=generator)
        noise = torch.randn(size, device="cuda", generator=generator)
        for step in range(num_steps):
            if step and not again:
                noise = torch.randn(size, device="cuda", generator=generator)
            x = denoise(x[None], noise)[0]
        return x

    first = list(range(11, 11 + num_images))
    others = [seed + 40 for seed in first]
    mixed = [first[1], others[0], first[0]][:num_images]
    calls = [first, others, mixed, first, first]
    expected = [torch.stack([picture_of(seed) for seed in seeds]) for seeds in calls]
    repeated = [torch.stack([picture_of(seed, True) for seed in seeds]) for seeds in calls]

    sample = call_with_one_graph(answer, denoise, num_images, size, num_steps)
    used = call_answer(sample, [(list(seeds),) for seeds in calls])
    if used.counts["graphs"] and not are_close(used.given, expected):
        _raise_seed_symptom(used, repeated)
    per_call = 4 * num_images * (num_steps + 1) + 8
    used.require_launches(graphs=len(calls), operators=len(calls) * per_call)
    used.require_results(expected)


def _raise_seed_symptom(used, repeated):
    """Raises Wrong with what the pictures of first, others, mixed, first, first show."""
    if are_close(used.given, repeated):
        raise Wrong("Every step adds the same noise.", "Draw new numbers for each step.")
    if are_equal(used.given, used.given[:1] * len(used.given)):
        used.require_results(used.given, {})
        raise Wrong(
            "The pictures do not depend on the seeds.",
            "Seed the generators in each call, before the replay.",
        )
    if not are_close(used.given[3], used.given[4]) or not are_close(used.given[0], used.given[3]):
        raise Wrong(
            "Two calls with the same seeds return different pictures.",
            "The graph draws from the generators of the capture: seed these, not others.",
        )
    if not are_close(used.given[2][0], used.given[0][1]):
        raise Wrong(
            "The picture of a seed depends on the other seeds of its batch.",
            "Each picture needs a generator of its own.",
        )
