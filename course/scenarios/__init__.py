"""One scenario per exercise that asks for a capture: it uses the answer as a reader would, and raises Wrong.

first_graphs: capture and replay, pools
random_numbers: generators, masks
training: whole steps, gradients
many_steps: several steps in one graph, optimizers with a schedule
partial_graphs: make_graphed_callables, a part of a model
serving: break-even, branches, shapes, early stops
compiled: compiled code in a graph
several_gpus: a step under DDP
scales: layers that keep scales between calls
iterations: several microbatches, validation
language_model: a training of a language model
decoding: the next tokens of a language model
buckets: a server of a language model
inside: branches of a graph
loops: turns that know their end, steps that may be skipped
"""

from collections.abc import Callable
from importlib import import_module

MODULES = (
    *("first_graphs", "random_numbers", "training", "many_steps", "partial_graphs", "serving"),
    *("compiled", "several_gpus", "scales", "iterations"),
    *("language_model", "decoding", "buckets", "inside", "loops"),
)


def named(name: str) -> Callable:
    """The scenario of the exercise of that name. Raises LookupError if there is none."""
    for module in MODULES:
        found = getattr(import_module(f"{__name__}.{module}"), name, None)
        if found:
            return found
    raise LookupError(f"There is no scenario for {name}.")
