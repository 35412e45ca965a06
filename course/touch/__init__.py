"""Pictures that one can touch, in notebooks and on the site: cpu_graph.svg has their shapes, each
has a module, a script and a style, and trace_report.touch has their frame.

timeline: a step, hovered over and zoomed into, as trace_report draws it; capture: eager, capture
    and replay as time passes.

On GitHub, or in a notebook that is not trusted, scripts do not run: one sees what stands still.
"""

from pathlib import Path
from typing import Any

from IPython.display import HTML

from trace_report import touch

HERE = Path(__file__).parent


def touchable(kind: str, still: str, data: Any) -> HTML:
    """A picture: still (HTML) stands where no script runs; elsewhere kind.js draws the data in its
    place.
    """
    return HTML(touch.touchable(kind, still, data, HERE))
