"""python -m trace_report eager.json graph.json --chart report.png --html report.html

Compares profiler traces: what limits each of them, GPU or CPU, and what a CUDA graph could save.
FILE is a trace of torch.profiler, .json or .json.gz; NAME=FILE gives it another name. Exit status:
0; 1 if a GPU idles for more than --fail-if-idle; 2 if a trace cannot be read or, with that option,
gives no verdict.
"""

import argparse
import json
import os
import sys
from pathlib import Path

import numpy as np

from trace_report.compare import bound, read_named, summaries
from trace_report.trace import Trace
from trace_report.trace_file import TraceError


def main(arguments: list[str] | None = None) -> int:
    """Write what is asked for, print the verdicts, and return the exit status."""
    options = _parser().parse_args(arguments)
    try:
        traces = read_named(options.files)
        _write(traces, options)
    except TraceError as error:
        print(f"trace_report: {str(error)[:500]}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"trace_report: {error.filename}: {error.strerror}.", file=sys.stderr)
        return 2
    verdicts = {name: trace.verdict() for name, trace in traces.items()}
    try:
        if options.json:
            print(json.dumps(_as_json(traces, verdicts), indent=2))
        else:
            print(*(f"{name}: {verdict}" for name, verdict in verdicts.items()), sep="\n")
        sys.stdout.flush()
    except OSError:  # nobody reads on, or the disk is full
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 2
    return _status(traces, verdicts, options.fail_if_idle)


def _parser():
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        "python -m trace_report", description=__doc__, formatter_class=form
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="a trace, or NAME=FILE")
    parser.add_argument("--chart", type=_picture, metavar="PNG", help="draw the report")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write it as one page to send")
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    parser.add_argument(
        "--fail-if-idle", type=_share, metavar="SHARE", help="such as 20%%, of a step: for CI"
    )
    return parser


def _picture(text):
    if not text.endswith(".png"):
        raise argparse.ArgumentTypeError(f"the chart is a PNG: {text!r} does not end with .png")
    return Path(text)


def _share(text):
    """20% or 0.2 as 0.2."""
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no share such as 20% or 0.2")
    return share


def _write(traces, options):
    if options.chart:
        import matplotlib  # only here: it takes its time

        matplotlib.use("agg")  # needs no screen
        from trace_report.chart import draw

        draw(traces, options.chart)
    if options.html:
        from trace_report.page import page

        options.html.write_text(page(traces), encoding="utf-8")


def _as_json(traces: dict[str, Trace], verdicts: dict[str, str]) -> dict:
    table = summaries(traces)
    return {
        name: {
            "file": str(trace.path),
            "bound": bound(verdicts[name]),
            "verdict": verdicts[name],
            "summary": {
                key: None if np.isnan(value) else value for key, value in table[name].items()
            },
        }
        for name, trace in traces.items()
    }


def _status(traces, verdicts, limit):
    """The exit status, after a sentence for each trace that fails."""
    if limit is None:
        return 0
    undecided = [name for name, verdict in verdicts.items() if bound(verdict) is None]
    for name in undecided:
        print(f"trace_report: {name} gives no verdict.", file=sys.stderr)
    shares = {name: trace.summary().idle_share for name, trace in traces.items()}
    over = [name for name in traces if name not in undecided and shares[name] > limit]
    for name in over:
        print(
            f"trace_report: {name}: the GPU is idle for {shares[name]:.1%} of "
            f"a step, more than {limit:.0%}.",
            file=sys.stderr,
        )
    return 2 if undecided else 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
