"""How lessons show values: a number that is no whole one to five digits, by itself, in lists and in tables.

And what they show of an interruption.
"""

from typing import Any

import pandas as pd


def round_numbers(shell: Any) -> None:
    """Let an IPython shell show floats, and pandas those in tables, to five digits; the values stay what they are."""
    pd.options.display.float_format = five_digits
    plain = shell.display_formatter.formatters["text/plain"]
    plain.for_type(float, lambda value, printer, _: printer.text(repr(value) if whole(value) else five_digits(value)))


def five_digits(value: float) -> str:
    """A number to five digits: 0.36374, 35.815, 3908.2, 345184, 8.2885e-08."""
    return f"{value:.0f}" if whole(value) or 1e5 <= abs(value) < 1e9 else f"{value:.5g}"


def whole(value: float) -> bool:
    """Whether it is a whole number, short enough to be written out."""
    return abs(value) < 1e9 and float(value).is_integer()


def interrupted(shell: Any, kind: type, error: BaseException, traceback: Any, tb_offset: int | None = None) -> None:
    """What a cell shows when the learner interrupts it: a sentence instead of a traceback."""
    shell._showtraceback(kind, error, ["Interrupted: what this cell makes is missing or old, so run it again."])
