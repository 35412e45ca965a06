"""Runs of an answer, on the stand-in and then on the GPU if there is one, and in words what is
wrong with them.
"""

import gc
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from capturable.explain import explain
from cpu_graph import NotModelled
from exercises.answers.errors import error_summary, notebook_line
from exercises.answers.launches import run_scenario
from exercises.answers.leftovers import undo_side_effects
from exercises.answers.limits import AnswerStopped, limit_time_and_memory, out_of_memory_message
from exercises.answers.outcome import Problem
from exercises.answers.wrong import Wrong

SEEDS = (0, 1, 2)


def first_problem(answer: Callable, scenario: Callable, gpu: bool | None = None) -> Problem:
    """What is wrong with the answer; the problem is false if nothing is.

    It is tried on the stand-in, then on a GPU if there is one. gpu says where alone.
    """
    if gpu is not None:
        places = [gpu]
    elif torch.cuda.is_available():
        places = [False, True]
    else:
        places = [False]
    for on_gpu in places:
        try:
            problem = _problem(answer, scenario, on_gpu)
        except AnswerStopped as stopped:  # by what it leaves behind
            problem = Problem(str(stopped))
        if problem:
            return replace(problem, on_gpu=on_gpu)
    return Problem()


def _problem(answer, scenario, gpu):
    """What is wrong with the answer, in the first run that shows it."""

    def returned(*arguments, **options):
        given = answer(*arguments, **options)
        if given is None or given is ...:
            raise Wrong("It gives None: is a `return` missing?")
        return given

    notebook = getattr(answer, "__globals__", {})
    with undo_side_effects(), _isolate_rng_and_warnings(gpu) as warned:
        try:
            with limit_time_and_memory():
                for seed in SEEDS:
                    error = run_scenario(lambda: scenario(returned), seed, gpu)
                    if error is not None:
                        return _error_to_problem(error, notebook, warned)
        except KeyboardInterrupt:
            raise
        except AnswerStopped as stopped:
            return Problem(str(stopped))
        except BaseException as raised:  # SystemExit too
            return Problem(f"it raised {error_summary(raised)}{notebook_line(raised, notebook)}")
    return Problem()


@contextmanager
def _isolate_rng_and_warnings(gpu: bool) -> Iterator[list]:
    """Random states stay, warnings are kept back, and captures need not search the notebook for
    garbage.
    """
    # a capture that failed leaves the generator in it (torch 2.11); one that ends well sets it
    # right
    if gpu:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            torch.zeros(1, device="cuda")
    gc.freeze()
    try:
        with (
            torch.random.fork_rng([0] if gpu else []),
            warnings.catch_warnings(record=True) as warned,
        ):
            warnings.simplefilter("always")
            yield warned
    finally:
        gc.unfreeze()


def _error_to_problem(raised: BaseException, notebook: Any, warned: list) -> Problem:
    """What a trial raised, in words: the one that came first, for a lost capture raises others."""
    error = raised
    while error.__context__ is not None and not isinstance(error, Wrong):
        error = error.__context__
    if isinstance(error, Wrong):
        is_empty = any("CUDA Graph is empty" in str(warning.message) for warning in warned)
        empty = " A graph is empty: its work is not inside of the capture." if is_empty else ""
        return Problem(error.symptom, error.repair + empty)
    if said := out_of_memory_message(error):
        return Problem(said)
    line = notebook_line(error, notebook) or notebook_line(raised, notebook)
    if isinstance(error, NotModelled):
        return Problem(f"the stand-in cannot judge this. {error}{line}")
    if isinstance(error, NotImplementedError) and not error.args:
        return Problem("not implemented yet: yours to write.")
    causes = (entry.cause for entry in explain(str(error)) if entry.cause)
    cause = next((one for one in causes if "copied into" not in one or _raised_in_copy(error)), "")
    first = cause.partition(". ")[0].rstrip(".")
    if not cause:
        return Problem(f"it raised {error_summary(error)}{line}")
    return Problem(f"it raised {error_summary(error)}{line}.", f"{first}.")


def _raised_in_copy(error: BaseException) -> bool:
    """Whether the line that raised the error copies into a tensor."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return "copy_" in (frame.line or "")
