"""How notebooks show numbers, charts and errors."""

from html import escape
from traceback import walk_tb
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from IPython.core.pylabtools import print_figure
from matplotlib.figure import Figure

from course.recordings.kernel_history import RUN_ABOVE

RUN_FIRST = (
    "If a cell above defines it, run that cell first; after a restart of the kernel, all of them. "
    + RUN_ABOVE
)
INTERRUPTED = "Interrupted: what this cell makes is missing or old, so run it again."


def round_numbers(shell: Any) -> None:
    """Let an IPython shell show floats, and pandas those in tables, to five digits; the values stay
    what they are.
    """
    pd.options.display.float_format = five_digits
    plain = shell.display_formatter.formatters["text/plain"]

    def show(value: float, printer: Any, _: bool) -> None:
        printer.text(repr(value) if is_short_integer(value) else five_digits(value))

    plain.for_type(float, show)


def describe_charts(shell: Any) -> None:
    """Let an IPython shell give charts a text for screen readers: their title."""
    plt.switch_backend(plt.get_backend())  # now: as it starts, it drops what shows figures
    html = shell.display_formatter.formatters["text/html"]
    html.for_type(Figure, chart_html)


def chart_html(figure: Figure) -> str:
    """A figure as an HTML image whose text is what its titles say."""
    png = print_figure(figure, fmt="png", base64=True)
    said = escape(title_text(figure) or "Chart without a title")
    return f'<img class="chart" alt="{said}" src="data:image/png;base64,{png}">'


def title_text(figure: Figure) -> str:
    """What the titles of a figure and its axes say; "" if it has none."""
    found = [figure.get_suptitle(), *(axes.get_title() for axes in figure.axes)]
    return " ".join(" ".join(found).split())


def five_digits(value: float) -> str:
    """A number to five digits: 0.36374, 35.815, 3908.2, 345184, 8.2885e-08."""
    return f"{value:.0f}" if is_short_integer(value) or 1e5 <= abs(value) < 1e9 else f"{value:.5g}"


def is_short_integer(value: float) -> bool:
    """Whether it is a whole number, short enough to be written out."""
    return abs(value) < 1e9 and float(value).is_integer()


def show_error(
    shell: Any, kind: type, error: BaseException, traceback: Any, tb_offset: int | None = None
) -> None:
    """What a cell shows when the learner interrupts it, or when it reads a name that no cell has
    bound: a sentence, the interruption's own if it has one; after a traceback, if the name is not
    the cell's own.
    """
    if not isinstance(error, NameError):
        said = [str(error) or INTERRUPTED]
    elif len(list(walk_tb(traceback))) > 2 or isinstance(error, UnboundLocalError):
        said = shell.InteractiveTB.structured_traceback(kind, error, traceback, tb_offset)
        said = said if isinstance(error, UnboundLocalError) else [*said, RUN_FIRST]
    else:
        said = [f"NameError: {error}. {RUN_FIRST}"]
    shell._showtraceback(kind, error, said)
