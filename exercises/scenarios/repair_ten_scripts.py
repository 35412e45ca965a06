"""The ten broken scripts of a lesson: what each is given, what it should give, and what a repair
may still do wrong.
"""

import gc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import nn
from torch.nn.functional import mse_loss
from torch.nn.utils import clip_grad_norm_
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from exercises.answers.graph_use import watch_graphs
from exercises.answers.launches import count_launches
from exercises.answers.tensors import are_close
from exercises.answers.wrong import Wrong
from exercises.scenarios.script_inputs import (
    decode_greedily,
    decoder_and_tokens,
    denoiser_and_calls,
    ensemble_and_inputs,
    scorer_and_requests,
    training,
    training_in_parts,
)

READS = {"item", "tolist", "cpu", "numpy", "__bool__", "__float__", "__int__", "__index__"}


class Script(NamedTuple):
    """make(steps): arguments, of torch's random state; eager(*arguments): what the script should
    give.

    lesson: where its fault is taught. steps: of a short run, a long one has twice as many. beside:
    operators that each step may launch outside of its graphs. one_pool: whether all of its graphs
    are to share a memory pool.
    """

    lesson: str
    fault: str
    make: Callable[[int], tuple]
    eager: Callable
    steps: int = 2
    beside: int = 6
    one_pool: bool = False


# what scripts should give


def _train(model, optimizer, batches, seed=lambda step: None, after=1, ready=lambda: True):
    """The losses; the optimizer steps after so many batches, if ready."""
    losses = []
    for number, (x, y) in enumerate(batches):
        seed(number + 1)
        if number % after == 0:
            optimizer.zero_grad()
        loss = mse_loss(model(x), y)
        loss.backward()
        if number % after == after - 1 and ready():
            optimizer.step()
        losses.append(loss.detach())
    return losses


def _scheduled(model, batches):
    rate = torch.tensor(0.05, device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), rate, capturable=True)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    optimizer.register_step_post_hook(lambda *_: scheduler.step())
    return _train(model, optimizer, batches)


def _train_skipping_spikes(model, optimizer, batches, limit):
    return _train(
        model, optimizer, batches, ready=lambda: clip_grad_norm_(model.parameters(), 1.0) <= limit
    )


def _model_outputs(model, inputs):
    """What a model gives for each input: a dict is keywords, a tensor of many lengths comes with
    its count.
    """
    with torch.no_grad():
        if isinstance(model, list):
            return [torch.stack([one(x) for one in model]).mean(0) for x in inputs]
        if isinstance(inputs[0], dict):
            return [model(**call) for call in inputs]
        return [model(x, torch.tensor(len(x), device="cuda")) for x in inputs]


SCRIPTS = {
    "guide": Script(
        "capture_and_replay",
        "tensors inside a dict were never copied into the static input",
        denoiser_and_calls,
        _model_outputs,
    ),
    "fine_tune": Script(
        "capture_training_step",
        "the warm-up trained: weights, batch statistics, momentum and random numbers",
        lambda steps: training(steps, nn.BatchNorm1d(16), nn.Dropout(0.2)),
        _train,
    ),
    "accumulate": Script(
        "make_graphed_callables",
        "the second backward pass wrote over gradients that lay in the graph's memory",
        lambda steps: training(
            steps, nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16), rate=0.5
        ),
        partial(_train, after=2),
        beside=24,
    ),
    "train_in_parts": Script(
        "graph_part_of_model",
        "the sample required no gradient, so none went back through the graph",
        training_in_parts,
        _train,
        beside=20,
    ),
    "train_seeded": Script(
        "replay_random_numbers",
        "a seed is set by the CPU, so it cannot be set inside a capture",
        lambda steps: training(steps, nn.Dropout(0.5)),
        partial(_train, seed=torch.cuda.manual_seed),
    ),
    "ensemble": Script(
        "share_memory_pools",
        "the graphs of a pool were replayed in another order than captured, and read too late",
        ensemble_and_inputs,
        _model_outputs,
        beside=8,
        one_pool=True,
    ),
    "train_careful": Script(
        "make_code_capturable",
        "a branch on a tensor's value makes the CPU wait, which a capture refuses",
        lambda steps: (*training(steps, rate=0.5, momentum=0, spikes=True), 20.0),
        _train_skipping_spikes,
        steps=3,
    ),
    "generate": Script(
        "graph_many_shapes",
        "the position was a number, frozen at the capture, and each token was waited for",
        decoder_and_tokens,
        decode_greedily,
        steps=6,
    ),
    "serve": Script(
        "graph_many_shapes",
        "every new length captured a graph of its own",
        scorer_and_requests,
        _model_outputs,
        steps=4,
    ),
    "train_scheduled": Script(
        "capture_optimizers",
        "the learning rate was a number, frozen at the capture",
        lambda steps: training(steps)[::2],
        _scheduled,
        beside=12,
    ),
}


# two runs of a script, compared with an eager one


@dataclass
class Run:
    """What a run of a script gave, and what it left behind; names are those of weights and buffers.

    shares_memory: whether all results are in the same memory. keeps_inputs: whether the tensors
    that it was given still hold what they held. random: what the generator draws afterwards.
    counts: "graphs", "operators" outside of them, "captures", "pools" of those, and values that
    the host "reads".
    """

    results: list[torch.Tensor]
    shares_memory: bool
    keeps_inputs: bool
    before: dict[str, torch.Tensor]
    after: dict[str, torch.Tensor]
    gradients: dict[str, torch.Tensor]
    random: torch.Tensor
    counts: Counter

    def changed_tensor_names(self) -> list[str]:
        """The names of the weights and buffers that the run has changed by more than rounding.

        The bias in front of a batch normalisation has no gradient but rounding errors.
        """
        return [
            name
            for name, value in self.after.items()
            if not torch.allclose(value, self.before[name], rtol=0, atol=1e-6)
        ]


def judge(known: Script, script: Callable) -> None:
    """Run eager and the script, and the script half as long, each from the same seed.
    Raises Wrong.
    """
    # a failed capture can confuse the generator up to the next good one
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        torch.zeros(1, device="cuda")
    seed = torch.initial_seed()

    def seeded(function: Callable, times: int) -> Run:
        gc.collect()  # a graph of the run before, freed in a capture, would break it
        torch.manual_seed(seed)
        return run(function, known.make(times * known.steps))

    eager = seeded(known.eager, 2)
    short = seeded(script, 1)
    long = seeded(script, 2)
    if problem := symptom(eager, short, long, known.beside, known.one_pool):
        raise Wrong(problem)


def run(function: Callable, arguments: tuple) -> Run:
    """Call function(*arguments), and note what it gives and what it makes of weights and
    buffers.
    """
    inputs = [leaf for leaf in tree_leaves(arguments) if isinstance(leaf, torch.Tensor)]
    given = [one.clone() for one in inputs]
    models = [leaf for leaf in tree_leaves(arguments) if isinstance(leaf, nn.Module)]
    weights = {
        name: weight for model in models for name, weight in named_weights_and_buffers(model)
    }
    before = {name: weight.detach().clone() for name, weight in weights.items()}
    with count_activity() as counts:
        results = [torch.as_tensor(one) for one in function(*arguments)]
    addresses = [one.untyped_storage().data_ptr() for one in results if one.is_cuda]
    gradients = {name: weight.grad for name, weight in weights.items()}
    return Run(
        results=[one.cpu() for one in results],
        shares_memory=len(addresses) > 1 and len({*addresses}) == 1,
        keeps_inputs=all(map(torch.equal, inputs, given)),
        before=before,
        after=weights,
        # those that were not cleared
        gradients={name: one for name, one in gradients.items() if one is not None and one.any()},
        random=torch.rand(4, device="cuda"),
        counts=counts,
    )


def named_weights_and_buffers(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """A model's weights and buffers, by name; a decoder's cache is its own business."""
    yield from model.named_parameters()
    yield from ((name, buffer) for name, buffer in model.named_buffers() if name != "cache")


@contextmanager
def count_activity() -> Iterator[Counter]:
    """Count launches, captures, memory pools, and reads of values by the host."""
    total = Counter()
    with count_launches() as launched, HostReads(total), watch_graphs() as seen:
        yield total
    total.update(launched + Counter(captures=len(seen.captured), pools=len(seen.pools)))


class HostReads(TorchFunctionMode):
    """Counts the methods that make the host wait for a CUDA tensor's value."""

    def __init__(self, counts: Counter):
        super().__init__()
        self.counts = counts

    def __torch_function__(self, function, types, args=(), kwargs=None):
        name = getattr(function, "__name__", "")
        read = name in READS or (name == "to" and "cpu" in map(str, args[1:]))
        self.counts["reads"] += read and isinstance(args[0], torch.Tensor) and args[0].is_cuda
        return function(*args, **(kwargs or {}))


# what is wrong with the runs


def symptom(
    eager: Run, short: Run, long: Run, beside: int, one_pool: bool = False
) -> str | tuple[str, str]:
    """The first thing that is wrong with a script's two runs, as Wrong takes it; "" if there is
    none.

    The long run has eager's arguments. beside: operators that a step may launch outside of graphs.
    one_pool: whether its graphs are to share one.
    """
    return (
        _symptom_of_untrained(eager, long)
        or _symptom_of_results(eager, long)
        or _symptom_of_writes(long)
        or _symptom_of_leftovers(eager, long)
        or _symptom_of_speed(short, long, beside)
        or (_symptom_of_pools(long) if one_pool else "")
    )


def _symptom_of_pools(yours: Run) -> str | tuple[str, str]:
    """Whether graphs that are to share a memory pool do."""
    pools = yours.counts["pools"]
    if pools <= 1:
        return ""
    return (
        f"right, but its graphs use {pools} memory pools, which need "
        "the memory of all models at once.",
        "Let them share one, and repair it there.",
    )


def _symptom_of_writes(yours: Run) -> str | tuple[str, str]:
    """Whether the caller's tensors were overwritten."""
    if yours.keeps_inputs:
        return ""
    return (
        "its results are eager's, but it overwrites tensors of its caller.",
        "Copy new values into static tensors of its own.",
    )


def _symptom_of_speed(short: Run, long: Run, beside: int) -> str:
    """What a script with the right results does too often."""
    steps = max(1, len(long.results) - len(short.results))
    more = long.counts - short.counts
    if not long.counts["graphs"]:
        return "right, but no graph is replayed: it runs eagerly."
    if more["captures"] > steps / 3:
        return f"right, but slow: {steps} more steps capture {more['captures']} more graphs."
    if more["reads"] > (steps + 1) // 2:  # two steps in a graph read once
        return (
            f"right, but slow: {steps} more steps read {more['reads']} more values, and the CPU "
            "waits for each."
        )
    if more["operators"] > beside * steps:
        return (
            "right, but slow: each step launches "
            f"{more['operators'] // steps} operators outside its graphs."
        )
    return ""


def _symptom_of_results(eager: Run, yours: Run) -> str:
    """The first wrong result, and what tells of its cause."""
    expected, found = eager.results, yours.results
    right = [_alike(*pair) for pair in zip(found, expected, strict=False)]
    if all(right):
        return (
            ""
            if len(found) == len(expected)
            else f"it returns {len(found)} results, and eager {len(expected)}."
        )
    if yours.shares_memory:
        return "all its results share the same memory, so each holds the last one."
    wrong = right.index(False) + 1
    shape, asked = (tuple(each[wrong - 1].shape) for each in (found, expected))
    if shape != asked:
        return f"result {wrong} of {len(expected)} has the shape {shape}, and eager's has {asked}."
    if found[wrong - 1].is_floating_point() and not found[wrong - 1].isfinite().all():
        return (
            f"result {wrong} is not finite: it was read before anything computed it, or after it "
            "was overwritten."
        )
    if len(found) > 2 and all(_alike(one, found[0]) for one in found):
        return "every result is the first one again: nothing new reaches the graph."
    cause = _cause_of_wrong_result(eager, wrong)
    return f"result {wrong} of {len(expected)} is the first that is not eager's: {cause}"


def _cause_of_wrong_result(eager: Run, wrong: int) -> str:
    """What makes the result of this number the first wrong one."""
    if eager.changed_tensor_names():
        return (
            f"its weights differ from eager's from step {wrong - 1} on."
            if wrong > 1
            else "it does not start as eager does."
        )
    if wrong == 1:
        return "an input did not reach the graph, or memory was overwritten before it was read."
    return "one of its inputs still holds an earlier step's value."


def _symptom_of_untrained(eager: Run, yours: Run) -> str:
    """Weights that eager training moves, and this one does not."""
    still = [
        name for name in eager.changed_tensor_names() if name not in yours.changed_tensor_names()
    ]
    if not still:
        return ""
    lost = eager.gradients.keys() - yours.gradients.keys()
    why = ": they get no gradient" if lost.intersection(still) else ""
    return f"these do not learn: {', '.join(still)}{why}."


def _symptom_of_leftovers(eager: Run, yours: Run) -> str | tuple[str, str]:
    """What a script leaves behind: weights and buffers, and the state of the random numbers."""
    different = [
        name for name, weight in eager.after.items() if not _alike(yours.after[name], weight)
    ]
    lost = [
        name
        for name in different
        if yours.after[name].isnan().any() and not eager.after[name].isnan().any()
    ]
    if lost:
        return (
            f"its results are eager's, but afterwards {', '.join(lost)} hold NaN.",
            "A gradient was infinite in the last step, and infinity times 0 "
            "is NaN: select, do not multiply.",
        )
    if different:
        return f"its results are eager's, but afterwards {', '.join(different)} differ."
    both = eager.gradients.keys() & yours.gradients.keys()
    wrong = sorted(
        name for name in both if not _alike(yours.gradients[name], eager.gradients[name])
    )
    if wrong:
        return f"its results are eager's, but the gradients of {', '.join(wrong)} differ."
    if not torch.equal(eager.random, yours.random):
        return "its results are eager's, but its random numbers are not."
    return ""


def _alike(one, other):
    """Whether two tensors hold the same, but for rounding; a NaN is like a NaN."""
    nowhere = torch.zeros((), dtype=one.dtype, device=one.device)
    return (
        one.shape == other.shape
        and torch.equal(one.isnan(), other.isnan())
        and are_close(
            torch.where(one.isnan(), nowhere, one), torch.where(one.isnan(), nowhere, other)
        )
    )
