"""The training loops, originals and course, in one interleaved measurement."""

import tempfile
from pathlib import Path

import pandas as pd
import torch

from benchmarks.ladder import RUNGS, STEPS_PER_CALL, Batches, Step
from benchmarks.originals import ORIGINALS, WHOLE_STEP
from helpers.model import make_batches, make_model
from helpers.profiling import record_trace
from helpers.timing import compare, measure
from helpers.trace import read_trace

COUNTS = {"gpu_busy_us": "GPU busy, µs", "launches": "launches", "kernels": "kernels"}


def build_all(batches: Batches) -> tuple[dict[str, Step], dict[str, int]]:
    """A step by name for every loop, and how many training steps one call of it is (1 if not
    named).
    """
    original = {
        f"original: {name}": build(batches, make_model()) for name, build in ORIGINALS.items()
    }
    course = {f"course: {name}": build(batches) for name, build in RUNGS.items()}  # type: ignore[operator]
    return original | course, {f"course: {name}": count for name, count in STEPS_PER_CALL.items()}


def measure_all() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Time and trace every loop; return measure's rounds and the traces' means, both per training
    step.
    """
    torch.set_float32_matmul_precision("high")  # matrix products in TF32, as in the originals
    # it would warn of graphs that are made so on purpose
    torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False)
    steps, per_call = build_all(make_batches())
    rounds = per_training_step(measure(steps), per_call)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json.gz"
        traced = {
            name: read_trace(record_trace(step, path)).summary() for name, step in steps.items()
        }
    return rounds, pd.DataFrame(
        {name: row / per_call.get(name, 1) for name, row in traced.items()}
    ).T


def per_training_step(rounds: pd.DataFrame, per_call: dict[str, int]) -> pd.DataFrame:
    """The rounds with the times of one call divided by the training steps in it."""
    steps = rounds.variant.map(per_call).fillna(1)
    return rounds.assign(host_us=rounds.host_us / steps, step_us=rounds.step_us / steps)


def tables(rounds: pd.DataFrame, traced: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Two tables for the report, beside the originals' eager loop and beside their whole-step
    graph.

    The first tells all, the second only the ratios.
    """
    counts = traced[list(COUNTS)].astype(float).round(1).rename(columns=COUNTS)
    whole = f"original: {WHOLE_STEP}"
    beside_whole = compare(
        pd.concat([rounds[rounds.variant == whole], rounds[rounds.variant != whole]])
    )
    return compare(rounds).join(counts), beside_whole.filter(like="vs.")
