"""Scenarios: random numbers in graphs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np
import torch
from torch.nn.functional import dropout
from torch.utils._python_dispatch import TorchDispatchMode

from cpu_graph.errors import NotModelled
from exercises.answers.graph_use import call_answer
from exercises.answers.tensors import are_close, copy_tensors
from exercises.answers.wrong import EVERY_TIME_THE_FIRST, Wrong
from exercises.scenarios.common import NO_WARM_UP, draw_int, unpack
from exercises.scenarios.rules import unmodified
from helpers.capture import capture_step


class Operators(TorchDispatchMode):
    """Which operators the block ran before its first capture, and which it captured."""

    def __init__(self) -> None:
        super().__init__()
        self.before: set = set()
        self.captured: set = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if torch.cuda.is_current_stream_capturing():
            self.captured.add(func)
        elif not self.captured:
            self.before.add(func)
        return func(*args, **(kwargs or {}))

    def refuse_cold(self) -> None:
        """Raises Wrong if nothing that was captured had run before."""
        if self.captured and not self.captured & self.before:
            raise Wrong(NO_WARM_UP)


def judge_flip_graph(answer: Callable) -> None:
    """Five batches of 32 images; each image should be mirrored in half of the calls."""
    calls = 5
    batches = torch.rand(calls, 32, 2, draw_int(), 6, device="cuda")
    mirrored = batches.flip(-1)
    sample = batches[0].clone()
    with unmodified("images", sample, batches):
        with Operators() as operators:
            replay = answer(sample)
        used = call_answer(replay, list(batches))
    used.require_launches(graphs=calls, operators=4 * calls)

    first_again = [_mirrored_images(given, batches[0], mirrored[0]) for given in used.given]
    if all(flips is not None for flips in first_again):
        raise Wrong(EVERY_TIME_THE_FIRST)
    flips = []
    for given, images, mirror in zip(used.given, batches, mirrored, strict=True):
        found = _mirrored_images(given, images, mirror)
        if found is None:
            raise Wrong(
                f"Result {len(flips) + 1} holds an image that is neither the "
                "one given nor its mirror image."
            )
        flips.append(found)
    used.require_results(used.given)  # nothing was overwritten

    if all(torch.equal(flips[0], others) for others in flips):
        raise Wrong(
            "Every replay mirrors the same images: the choice was made once, at capture. Draw it "
            "with torch on the GPU, inside the capture."
        )
    if all(one.all() or not one.any() for one in flips):
        raise Wrong("A call mirrors all of its images or none: draw one number for each image.")
    share = torch.stack(flips).float().mean().item()
    if not 0.3 < share < 0.7:
        raise Wrong(f"{share:.0%} of the images are mirrored, where about half should be.")
    if _works_without_replays(replay, *batches[:2]):
        raise Wrong("The images are mirrored outside the graph: capture that too.")
    operators.refuse_cold()


def _mirrored_images(given, images, mirrored):
    """Which images of a result are mirrored, or None if it holds anything else."""
    if given.shape != images.shape:
        return None
    kept = (given == images).flatten(1).all(1)
    flipped = (given == mirrored).flatten(1).all(1)
    return flipped if (kept | flipped).all() else None


def judge_mixup_graph(answer: Callable) -> None:
    """Five batches, mixed in the shares that NumPy draws next."""
    calls, seed = 5, draw_int(1, 1000)
    batches = torch.rand(calls, 2 * draw_int(), 3, device="cuda")
    with _numpy_seeded(seed):
        lams = [np.random.beta(1.0, 1.0) for _ in range(calls + 10)]

    def mixed(shares):
        pairs = zip(batches, shares, strict=True)
        return [lam * images + (1 - lam) * images.flip(0) for images, lam in pairs]

    sample = batches[0].clone()
    with _numpy_seeded(seed), unmodified("images", sample, batches):
        with Operators() as operators:
            replay = answer(sample)
        used = call_answer(replay, list(batches))
    used.require_launches(graphs=calls, operators=6 * calls)

    if are_close(used.given[1:], mixed([lams[0], *lams[: calls - 1]])[1:]) and not are_close(
        used.given[0], mixed(lams[:calls])[0]
    ):
        raise Wrong("Each replay uses the lam of the call before: copy lam first, then replay.")
    symptoms = {}
    for number, lam in enumerate(lams, 1):
        symptoms[
            f"Every replay uses the same lam (number {number} of NumPy's): it was drawn once and "
            "frozen. Draw it in each call, and copy it into a static tensor before the replay."
        ] = mixed([lam] * calls)
    for late in range(1, 11):
        symptoms[
            f"The first lam is number {late + 1} of NumPy's: the warm-up or the capture drew as "
            "well. Warm up with a constant in the static tensor."
        ] = mixed(lams[late : late + calls])
    found = _infer_lambda(used.given[0], batches[0])
    symptoms[
        f"Result 1 is mixed with lam = {found:.3f}, but NumPy drew {lams[0]:.3f}: draw lam with "
        "np.random.beta(1.0, 1.0) in each call, and write it into the tensor that the graph reads."
    ] = [
        mixed([_infer_lambda(given, images)] * calls)[number]
        for number, (given, images) in enumerate(zip(used.given, batches, strict=True))
    ]
    used.require_results(mixed(lams[:calls]), symptoms)

    with _numpy_seeded(seed):
        if _works_without_replays(replay, *batches[:2]):
            raise Wrong(
                "The images are mixed outside the graph: capture that, and let it read lam."
            )
    operators.refuse_cold()


def _works_without_replays(replay, first, second):
    """Whether results still follow the input where replays do nothing."""
    with patch.object(torch.cuda.CUDAGraph, "replay", lambda graph: None):
        results = [copy_tensors(replay(batch)) for batch in (first, second)]
    return not torch.equal(*results)


def _infer_lambda(result, images):
    """The lam with which a batch was mixed, found from its first image."""
    first, last = images[0], images[-1]
    return ((result[0] - last) / (first - last)).mean().item()


@contextmanager
def _numpy_seeded(seed: int) -> Iterator[None]:
    """NumPy's random numbers from a seed; its state before the block is restored."""
    state = np.random.get_state()
    np.random.seed(seed)
    try:
        yield
    finally:
        np.random.set_state(state)


def judge_paired(answer: Callable) -> None:
    """A graph of dropout, and pairs of inputs that should get the same mask."""
    rows, pairs = draw_int(), 4
    inputs = 1 + torch.rand(pairs, 2, rows, 8, device="cuda")
    static = torch.ones(rows, 8, device="cuda")
    replay = capture_step(dropout, static)
    start = torch.cuda.get_rng_state()
    masks = [dropout(torch.ones_like(static), 0.5) for _ in range(2 * pairs)]
    torch.cuda.set_rng_state(start)
    try:
        used = call_answer(
            lambda *pair: unpack(answer(replay, *pair), "first", "second"),
            [tuple(pair) for pair in inputs],
            what="It",
        )
    except NotModelled as error:
        if "graphsafe" not in str(error):
            raise
        raise Wrong(
            "The two masks would differ: graphsafe_get_state returns the state itself and not a "
            "copy of it, and a replay advances that."
        ) from None
    expected = [[mask * new for new in pair] for mask, pair in zip(masks, inputs, strict=False)]
    drawn = [(a != 0, b != 0) for a, b in used.given]
    if are_close([first for first, _ in used.given], [second for _, second in used.given]):
        raise Wrong("Both results are the second one: clone the first before the second replay.")
    if not all(torch.equal(*pair) for pair in drawn):
        raise Wrong(
            "The two masks differ: restore the random state of the GPU before the second replay."
        )
    if all(torch.equal(first, drawn[0][0]) for first, _ in drawn):
        raise Wrong(
            "Every call has the same mask: rewind to where this call began, and do not seed."
        )
    for number, (mask, (first, _)) in enumerate(zip(masks, drawn, strict=False), 1):
        if not torch.equal(first, mask != 0):
            raise Wrong(
                f"Call {number} has one mask for both, but not the one that the generator draws "
                "next: does anything seed it or set it back?"
            )
    used.require_results(expected)
    used.require_launches(graphs=2 * pairs, operators=10 * pairs)
