"""One step of several traces on one time axis, in a notebook; trace_report.timeline draws it."""

from IPython.display import HTML

from helpers.trace import Trace
from trace_report.timeline import timeline

NO_SCRIPT = (
    "Where scripts run, here is a timeline to hover over and to zoom into. In JupyterLab: run this "
    "cell, or choose Trust Notebook in the command palette (Ctrl+Shift+C). The chart next to it "
    "shows the same step."
)


def explore(traces: dict[str, Trace], step: int = 0) -> HTML:
    """Show one step of several traces, a dict of name -> Trace, as a timeline to touch.

    Time counts from the step's start on the host. Raises IndexError if a trace has no such step.
    """
    return HTML(timeline(traces, step, NO_SCRIPT))
