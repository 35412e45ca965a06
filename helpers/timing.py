"""measure: host time and step time of several variants, side by side, with their spread."""

import math
import time

import pandas as pd
import torch
from tqdm import tqdm


def synchronize():
    """Wait for the GPU, where there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def measure(variants, rounds=20, burst=10, steps=40, warmup=5, clock=time.perf_counter, wait=synchronize):
    """Time variants, a dict of name -> step (a function without arguments), in interleaved rounds.

    Every round visits each variant once (A B C A B C ...), so that a drift of the machine hits all.
    Host time: a burst of steps issued into an empty launch queue, without waiting for them; keep
    burst x launches per step under 1024, where the queue makes the host wait. Step time: steps in
    a row, then one wait. Returns a DataFrame with a row per round and variant: round, variant,
    host_us and step_us (microseconds per step). clock (seconds) and wait can be replaced for tests.
    Raises ValueError without variants; what a step raises comes through with its variant's name.
    """
    if not variants:
        raise ValueError("measure needs at least one variant, such as {'eager': step}")
    rows = []
    with tqdm(total=(rounds + 1) * len(variants), desc="measuring", delay=2, leave=False) as bar:
        for number in range(-1, rounds):
            for name, step in variants.items():
                try:
                    if number < 0:
                        _time(step, warmup, clock, wait)
                    else:
                        host_us, _ = _time(step, burst, clock, wait)
                        _, step_us = _time(step, steps, clock, wait)
                        rows.append((number, name, host_us, step_us))
                except Exception as error:
                    error.add_note(f"raised by variant {name!r} while it was measured")
                    raise
                bar.update()
    return pd.DataFrame(rows, columns=["round", "variant", "host_us", "step_us"])


def _time(step, count, clock, wait):
    """Microseconds per step until the last one is issued, and until the last one is done."""
    wait()
    start = clock()
    for _ in range(count):
        step()
    issued = clock()
    wait()
    done = clock()
    return (issued - start) / count * 1e6, (done - start) / count * 1e6


def quartiles(rounds, column):
    """Median and quartiles of a column of measure's rounds: columns q1, median, q3, a row per variant."""
    table = rounds.groupby("variant", sort=False)[column].quantile([0.25, 0.5, 0.75]).unstack()
    return table.set_axis(["q1", "median", "q3"], axis=1).rename_axis(index=None)


def ratios(rounds, column):
    """First variant over each variant, taken round by round: columns q1, median, q3."""
    table = rounds.pivot(index="round", columns="variant", values=column)[list(rounds.variant.unique())]
    shares = table.rdiv(table.iloc[:, 0], axis=0)
    return quartiles(shares.melt(var_name="variant", value_name=column), column)


def too_close(rounds, column):
    """Whether a variant's quartile range overlaps the first variant's: a boolean Series."""
    spread = quartiles(rounds, column)
    first = spread.iloc[0]
    return (spread.q1 <= first.q3) & (spread.q3 >= first.q1)


def compare(rounds):
    """Lay the variants side by side, a row each: times and ratios as text, "median [q1, q3]".

    A ratio is how many times less the variant takes than the first one; where the two quartile
    ranges overlap it reads "too close to call".
    """
    columns = {}
    for label, column in (("host", "host_us"), ("step", "step_us")):
        columns[f"{label} time, us"] = [_spread(row) for row in quartiles(rounds, column).itertuples()]
    first = rounds.variant.iloc[0]
    for label, column in (("host", "host_us"), ("step", "step_us")):
        close = too_close(rounds, column)
        cells = [
            "too close to call" if close[row.Index] else _spread(row) for row in ratios(rounds, column).itertuples()
        ]
        columns[f"{first} / variant, {label}"] = ["1", *cells[1:]]
    return pd.DataFrame(columns, index=quartiles(rounds, "host_us").index)


def _spread(row):
    return f"{_short(row.median)} [{_short(row.q1)}, {_short(row.q3)}]"


def _short(value):
    """Three significant digits, or all digits before the point: 1743, 62.1, 5.93."""
    digits = 2 - math.floor(math.log10(value)) if value > 0 else 0
    return f"{value:.{max(0, digits)}f}"
