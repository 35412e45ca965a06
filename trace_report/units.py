"""One way to write numbers, in verdicts, tables and charts."""

import math


def format_number(value: float) -> str:
    """Three significant digits, or all before the point: 12345, 62.1, 5.93, 7; – for nan."""
    if math.isnan(value):
        return "–"
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def unit(us: float) -> tuple[str, float]:
    """The unit in which a time is written, and its µs: ms from 10,000 µs on, s from 10 s."""
    for name, size in {"s": 1e6, "ms": 1e3}.items():
        if us >= 10 * size:
            return name, size
    return "µs", 1.0


def in_words(us: float) -> str:
    """A time with its unit: 2113 µs, 615 ms, 43.4 s; "" for nan."""
    if math.isnan(us):
        return ""
    name, size = unit(us)
    return f"{format_number(us / size)} {name}"


def percent(share: float) -> str:
    """A share in percent; – for nan."""
    return "–" if math.isnan(share) else f"{share:.0%}"
