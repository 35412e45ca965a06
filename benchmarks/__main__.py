"""Measure and write benchmarks/results/<gpu>.md:  python -m benchmarks"""

import sys

import torch

from benchmarks import report, steps


def main() -> int:
    """Print the report and keep it; returns 2, after a sentence, without a GPU."""
    if not torch.cuda.is_available():
        print("Benchmarks need a CUDA GPU, and torch sees none here.", file=sys.stderr)
        return 2
    section = report.steps_section(*steps.tables(*steps.measure_all()))
    report.publish("\n".join([report.TITLE, report.provenance_section(), section]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
