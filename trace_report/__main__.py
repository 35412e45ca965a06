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

from trace_report.names import read_named, split_name
from trace_report.table import summaries, summary_rows
from trace_report.trace import Trace
from trace_report.trace_file import LIMIT_MIB, TraceError
from trace_report.verdict import bound_of_verdict

MOST_DRAWN = 20  # traces
BEGINS = {".png": b"\x89PNG", ".html": b"<!doctype html"}  # what is written may replace


def main(arguments: list[str] | None = None) -> int:
    """Write what is asked for, print the verdicts, and return the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    for path in filter(None, (options.chart, options.html)):
        if refused := _output_refusal_reason(path, options.files):
            parser.error(refused)
    try:
        traces = read_named(options.files, options.limit_mib)
        _write(traces, options)
    except TraceError as error:
        print(f"trace_report: {str(error)[:500]}", file=sys.stderr)
        return 2
    verdicts = {name: trace.verdict() for name, trace in traces.items()}
    try:
        _print(traces, verdicts, options)
        print(end="", flush=True)
    except OSError:  # nobody reads on, or the disk is full
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 2
    return _status(traces, verdicts, options.fail_if_idle)


def _parser():
    form = argparse.RawDescriptionHelpFormatter
    named = "python -m trace_report"
    parser = argparse.ArgumentParser(named, description=__doc__, formatter_class=form)
    parser.add_argument("files", nargs="+", metavar="FILE", help="a trace, or NAME=FILE")
    parser.add_argument("--chart", type=Path, metavar="PNG", help="draw the report")
    parser.add_argument("--html", type=Path, metavar="HTML", help="write it as one page to send")
    parser.add_argument("--numbers", action="store_true", help="print the numbers as a table")
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    share = "such as 20%%, of a step: for CI"
    parser.add_argument("--fail-if-idle", type=_parse_share, metavar="SHARE", help=share)
    limit = f"how many MiB a gzip may unpack to (default: {LIMIT_MIB}, less for small files)"
    parser.add_argument("--limit-mib", type=int, metavar="MIB", help=limit)
    return parser


def _output_refusal_reason(path, files):
    """Why nothing is written to this path: it is a trace, or no picture and no page, or there are
    too many traces to draw.
    """
    name = str(path)[-200:]
    suffix = ".png" if path.suffix == ".png" else ".html"
    if path.suffix not in BEGINS:
        return f"{name!r} ends with neither .png nor .html, as what is written there would be"
    if len(files) > MOST_DRAWN:
        return f"{len(files)} traces are too many to draw: give at most {MOST_DRAWN}, or no {name}"
    try:
        if any(path.exists() and path.samefile(split_name(file)[1]) for file in files):
            return f"{name!r} is one of the traces, and would be overwritten"
        if path.is_file():
            with path.open("rb") as file:
                begin = file.read(20).lower()
            if begin and not begin.startswith(BEGINS[suffix].lower()):
                return f"{name!r} is another kind of file, and would be overwritten"
    except OSError:  # what cannot be read is named where it is read
        pass
    return ""


def _parse_share(text):
    """20% or 0.2 as 0.2."""
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no share such as 20% or 0.2")
    return share


def _write(traces, options):
    """Write the picture and the page. Raises TraceError where the disk refuses."""
    path = options.chart
    try:
        if options.chart:
            import matplotlib  # only here: it takes its time

            matplotlib.use("agg")  # needs no screen
            from trace_report.chart import draw_trace_report

            draw_trace_report(traces, options.chart)
        path = options.html
        if options.html:
            from trace_report.page import page

            options.html.write_text(page(traces), encoding="utf-8")
    except OSError as error:
        raise TraceError(f"{str(path)[-200:]}: {error.strerror}.") from None


def _print(traces, verdicts, options):
    if options.json:
        print(json.dumps(_as_dict(traces, verdicts), indent=2))
        return
    if options.numbers:
        print(summary_rows(summaries(traces)).to_string())
    print(*(f"{name}: {verdict}" for name, verdict in verdicts.items()), sep="\n")


def _as_dict(traces: dict[str, Trace], verdicts: dict[str, str]) -> dict:
    table = summaries(traces)
    return {
        name: {
            "file": str(trace.path),
            "bound": bound_of_verdict(verdicts[name]),
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
    undecided = [name for name, verdict in verdicts.items() if bound_of_verdict(verdict) is None]
    for name in undecided:
        print(f"trace_report: {name} gives no verdict.", file=sys.stderr)
    shares = {name: trace.summary().idle_share for name, trace in traces.items()}
    over = [name for name in traces if name not in undecided and shares[name] > limit]
    for name in over:
        idle = f"idle for {shares[name]:.1%} of a step, more than {limit:.0%}"
        print(f"trace_report: {name}: the GPU is {idle}.", file=sys.stderr)
    return 2 if undecided else 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
