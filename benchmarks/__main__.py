"""Measure and write benchmarks/results/<gpu>.md:  python -m benchmarks"""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch

from benchmarks import report
from benchmarks.reading import measure_reading
from benchmarks.starting import measure_kernels, run_lessons
from course.commands.record import gpu_slug

Result = TypeVar("Result")
RESULTS = Path(__file__).resolve().parent / "results"


def measure_and_report() -> str:
    """Measure everything that this machine can do and return the report, Markdown."""
    parts = []
    if torch.cuda.is_available():
        from benchmarks import steps  # here, for its helpers are of no use without a GPU

        parts.append(
            report.steps_section(*steps.tables(*timed("training steps", steps.measure_all)))
        )
        torch.cuda.empty_cache()
    else:
        parts.append("No CUDA GPU was seen here, so no training steps were measured.\n")
    parts.append(report.reading_section(timed("reading traces", measure_reading)))
    parts.append(
        report.starting_section(
            timed("starting kernels", measure_kernels), timed("lessons", run_lessons)
        )
    )
    return "\n".join([report.TITLE, report.provenance_section(), *parts])


def timed(what: str, function: Callable[[], Result]) -> Result:
    """Call function, and say on stderr what it was and how long it took."""
    start = time.perf_counter()
    result = function()
    print(f"{what}: {time.perf_counter() - start:.0f} s", file=sys.stderr)
    return result


def main(arguments: list[str]) -> None:
    """Print the report and keep it in RESULTS; without a GPU only with --write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--write", action="store_true", help="without a GPU: write results/cpu.md, too"
    )
    options = parser.parse_args(arguments)
    has_gpu = torch.cuda.is_available()
    text = measure_and_report()
    print(text)
    if has_gpu or options.write:
        RESULTS.mkdir(exist_ok=True)
        path = RESULTS / f"{gpu_slug() if has_gpu else 'cpu'}.md"
        path.write_text(text)
        print(f"written to {path}", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
