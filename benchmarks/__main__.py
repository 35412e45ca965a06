"""Measure and write benchmarks/results/<gpu>.md:  python -m benchmarks"""

import sys
import time
from collections.abc import Callable
from typing import TypeVar

import torch

from benchmarks import report

Result = TypeVar("Result")


def measure_and_report() -> str:
    """Measure the training steps and return the report, Markdown."""
    from benchmarks import steps  # here, for its helpers are of no use without a GPU

    section = report.steps_section(*steps.tables(*timed("training steps", steps.measure_all)))
    return "\n".join([report.TITLE, report.provenance_section(), section])


def timed(what: str, function: Callable[[], Result]) -> Result:
    """Call function, and say on stderr what it was and how long it took."""
    start = time.perf_counter()
    result = function()
    print(f"{what}: {time.perf_counter() - start:.0f} s", file=sys.stderr)
    return result


def main() -> int:
    """Print the report and keep it; returns 2, after a sentence, without a GPU."""
    if not torch.cuda.is_available():
        print("Benchmarks need a CUDA GPU, and torch sees none here.", file=sys.stderr)
        return 2
    report.publish(measure_and_report())
    return 0


if __name__ == "__main__":
    sys.exit(main())
