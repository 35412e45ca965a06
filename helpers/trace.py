"""Profiler traces as lessons read them; trace_report holds the code.

On the command line:  python -m helpers.trace FILE
"""

import sys

from trace_report.__main__ import main as report
from trace_report.intervals import busy_time, busy_time_until
from trace_report.trace import Trace, read_trace
from trace_report.trace_file import TraceError, outermost
from trace_report.verdict import CPU_BOUND, LOADER_BOUND

__all__ = ["CPU_BOUND", "LOADER_BOUND"]
__all__ += ["Trace", "TraceError", "busy_time", "busy_time_until", "outermost", "read_trace"]


if __name__ == "__main__":  # the numbers of a trace, and the verdict
    sys.exit(report(["--numbers", *sys.argv[1:]]))
