"""Whether a broken script is repaired: the lesson's own check, on the stand-in and, where there is one, on a GPU."""

import gc
import sys
from collections import ChainMap, Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from course.capture_exercises import first_problem
from course.exercise import Outcome
from course.lesson import current
from course.progress import mark
from course.script_symptoms import symptom
from course.scripts import SCRIPTS, Script
from course.solutions import empty, name_of, unfit
from course.symptoms import Wrong, watch
from cpu_graph.judge import launches

READS = {"item", "tolist", "cpu", "numpy", "__bool__", "__float__", "__int__", "__index__"}


def repaired(script: Callable, gpu: bool | None = None) -> Outcome:
    """Run a script of the lesson with fresh inputs and compare it with an eager one.

    A long run and a short one, with several seeds, on the stand-in and on a GPU if there is one. Results,
    weights, gradients and random numbers must be eager's; each further step must replay a graph, capture
    none, and launch and read little beside it. Says what is wrong by its symptom; when nothing is, which
    lesson teaches the fault. gpu says where alone. Raises nothing but KeyboardInterrupt, and LookupError if
    there is no such script.
    """
    caller = sys._getframe(1)
    name = name_of(script, ChainMap(caller.f_locals, caller.f_globals))
    if problem := unfit(name, script):
        return Outcome(False, problem)
    if empty(script):
        return Outcome(False, f"○ {name} is empty: fetch the script from the lesson again.")
    known = SCRIPTS[name]
    on_gpu, problem = first_problem(script, partial(judge, known), gpu)
    if problem:
        return Outcome(False, f"✗ {name} on {'the GPU' if on_gpu else 'the stand-in'}: {problem}")
    lesson = known.lesson.replace("_", " ")
    done = mark(current().name, name)
    return Outcome(True, f"✓ {name} is repaired. The fault: {known.fault}. It is taught in: {lesson}.{done}")


def judge(known: Script, script: Callable) -> None:
    """Run eager and the script, and the script half as long, each from the same seed. Raises Wrong."""
    with torch.cuda.graph(torch.cuda.CUDAGraph()):  # a failed capture can confuse the generator up to the next good one
        torch.zeros(1, device="cuda")
    seed, runs = torch.initial_seed(), []
    for function, times in ((known.eager, 2), (script, 1), (script, 2)):
        gc.collect()  # a graph of the run before, freed in a capture, would break it
        torch.manual_seed(seed)
        runs.append(run(function, known.make(times * known.steps)))
    if problem := symptom(*runs, known.beside):
        raise Wrong(problem)


def run(function: Callable, arguments: tuple) -> dict:
    """What function(*arguments) gives, what it has made of weights and buffers, and counts."""
    models = [leaf for leaf in tree_leaves(arguments) if isinstance(leaf, nn.Module)]
    weights = {name: weight for model in models for name, weight in held(model)}
    before = {name: weight.detach().clone() for name, weight in weights.items()}
    with counted() as counts:
        results = [torch.as_tensor(one) for one in function(*arguments)]
    addresses = [one.data_ptr() for one in results if one.is_cuda]
    gradients = {name: weight.grad for name, weight in weights.items()}
    return {
        "results": [one.cpu() for one in results],
        "one memory": len(addresses) > 1 and len({*addresses}) == 1,
        "before": before,
        "after": weights,
        "gradients": {name: one for name, one in gradients.items() if one is not None and one.any()},  # not cleared
        "random": torch.rand(4, device="cuda"),
        "counts": counts,
    }


def held(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """A model's weights and buffers, by name; a decoder's cache is its own business."""
    yield from model.named_parameters()
    yield from ((name, buffer) for name, buffer in model.named_buffers() if name != "cache")


@contextmanager
def counted() -> Iterator[Counter]:
    """Count launches, captures, and reads of values by the host."""
    total = Counter()
    with launches() as launched, Reads(total), watch() as seen:
        yield total
    total.update(launched + Counter(captures=len(seen.captured)))


class Reads(TorchFunctionMode):
    """Counts the methods that make the host wait for a CUDA tensor's value."""

    def __init__(self, counts: Counter):
        super().__init__()
        self.counts = counts

    def __torch_function__(self, function, types, args=(), kwargs=None):
        name = getattr(function, "__name__", "")
        read = name in READS or (name == "to" and "cpu" in map(str, args[1:]))
        self.counts["reads"] += read and isinstance(args[0], torch.Tensor) and args[0].is_cuda
        return function(*args, **(kwargs or {}))
