"""Measure and write benchmarks/results/<gpu>.md:  python -m benchmarks"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch

from benchmarks import report
from course.commands.record import gpu_slug

Result = TypeVar("Result")
RESULTS = Path(__file__).resolve().parent / "results"


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
    """Print the report and keep it in RESULTS; returns 2, after a sentence, without a GPU."""
    if not torch.cuda.is_available():
        print("Benchmarks need a CUDA GPU, and torch sees none here.", file=sys.stderr)
        return 2
    text = measure_and_report()
    print(text)
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{gpu_slug()}.md"
    path.write_text(text)
    print(f"written to {path}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
