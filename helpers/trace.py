"""Profiler traces as lessons read them; trace_report holds the code.

On the command line:  python -m helpers.trace FILE
"""

import argparse
import os
import sys

from trace_report.intervals import busy_time, busy_until
from trace_report.trace import Trace, read_trace
from trace_report.trace_file import LIMIT_MIB, TraceError, outermost
from trace_report.verdict import CPU_BOUND, LOADER_BOUND

__all__ = ["CPU_BOUND", "LOADER_BOUND"]
__all__ += ["Trace", "TraceError", "busy_time", "busy_until", "outermost", "read_trace"]


def main(arguments: list[str] | None = None) -> int:
    """Print the summary and the verdict of one trace; returns the exit status."""
    parser = argparse.ArgumentParser(
        "python -m helpers.trace", description="Sum up a profiler trace."
    )
    parser.add_argument("file", help="a trace of torch.profiler, .json or .json.gz")
    limit = f"how many MiB a gzip may unpack to (default: {LIMIT_MIB}, less for small files)"
    parser.add_argument("mib", nargs="?", type=int, help=limit)
    try:
        try:
            options = parser.parse_args(arguments)
        finally:
            print(end="", flush=True)  # the help
        trace = read_trace(options.file, options.mib)
        print(trace.summary().to_string(float_format="{:.2f}".format), trace.verdict(), sep="\n")
        print(end="", flush=True)
    except TraceError as error:
        print(str(error)[:500], file=sys.stderr)
        return 2
    except OSError:  # nobody reads on, or the disk is full
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
