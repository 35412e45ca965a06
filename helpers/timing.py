"""measure: host time and step time of several variants, side by side, with their spread."""

import math
import time
from collections.abc import Callable

import pandas as pd
import torch
from tqdm import tqdm


def synchronize() -> None:
    """Wait for the GPU, where there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def measure(
    variants: dict[str, Callable[[], object]],
    rounds: int = 20,
    burst: int = 10,
    steps: int = 40,
    warmup: int = 5,
    clock: Callable[[], float] = time.perf_counter,
    wait: Callable[[], object] = synchronize,
) -> pd.DataFrame:
    """Time variants, a dict of name -> step (a function without arguments), in interleaved rounds.

    Every round visits each variant once (A B C A B C ...), so that a drift of the machine hits all. Host
    time: a burst of steps issued into an empty launch queue, without waiting for them; keep burst x launches
    per step under 1024, where the queue makes the host wait. Step time: steps in a row, then one wait.
    Returns a row per round and variant: round, variant, host_us and step_us (microseconds per step). clock
    (seconds) and wait can be replaced for tests. Raises ValueError without variants; what a step raises
    comes through with its variant's name.
    """
    if not variants:
        raise ValueError("measure needs at least one variant, such as {'eager': step}")
    rows = []
    visits = ((number, name, step) for number in range(-1, rounds) for name, step in variants.items())
    with tqdm(visits, "measuring", (rounds + 1) * len(variants), delay=2, leave=False) as bar:
        for number, name, step in bar:
            try:
                if number < 0:
                    _time(step, warmup, clock, wait)
                    continue
                rows.append((number, name, _time(step, burst, clock, wait)[0], _time(step, steps, clock, wait)[1]))
            except Exception as error:
                error.add_note(f"raised by variant {name!r} while it was measured")
                raise
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


def quartiles(rounds: pd.DataFrame, column: str) -> pd.DataFrame:
    """Median and quartiles of a column of measure's rounds: columns q1, median, q3, a row per variant."""
    table = rounds.groupby("variant", sort=False)[column].quantile([0.25, 0.5, 0.75]).unstack()
    return table.set_axis(["q1", "median", "q3"], axis=1).rename_axis(index=None)


def ratios(rounds: pd.DataFrame, column: str) -> pd.DataFrame:
    """First variant over each variant, taken round by round: columns q1, median, q3."""
    table = rounds.pivot(index="round", columns="variant", values=column)[list(rounds.variant.unique())]
    shares = table.rdiv(table.iloc[:, 0], axis=0)
    return quartiles(shares.melt(var_name="variant", value_name=column), column)


def too_close(rounds: pd.DataFrame, column: str) -> pd.Series:
    """Whether a variant's quartile range overlaps the first variant's: a boolean Series."""
    spread = quartiles(rounds, column)
    return (spread.q1 <= spread.q3.iloc[0]) & (spread.q3 >= spread.q1.iloc[0])


def compare(rounds: pd.DataFrame) -> pd.DataFrame:
    """Lay the variants side by side in words, a row each: times, and how they compare with the first.

    Times are in microseconds per step, "median [quartiles]" over the rounds; so are the factors, taken round by
    round. It is too close to call where the times' quartile ranges overlap, or where the factor's holds 1.
    """
    times, beside = {}, {}
    for what, column in (("host", "host_us"), ("step", "step_us")):
        spreads, close = quartiles(rounds, column), too_close(rounds, column)
        times[f"{what} time, us: median [quartiles]"] = [_spread(*row, _short) for row in spreads.to_numpy()]
        cells = [
            "too close to call" if near or low <= 1 <= high else _faster(low, middle, high)
            for near, (low, middle, high) in zip(close, ratios(rounds, column).to_numpy(), strict=True)
        ]
        beside[f"{what} time beside {close.index[0]}: median [quartiles]"] = ["1", *cells[1:]]
    return pd.DataFrame(times | beside, index=spreads.index)


def _faster(low, middle, high):
    """A ratio and its quartiles in words: 2.8 times faster [2.7, 2.9], or 25 times slower [24, 26]."""
    if middle > 1:
        return _spread(low, middle, high, _factor).replace(" ", " times faster ", 1)
    return _spread(1 / high, 1 / middle, 1 / low, _factor).replace(" ", " times slower ", 1)


def _spread(low, middle, high, text):
    return f"{text(middle)} [{text(low)}, {text(high)}]"


def _short(value):
    """Three significant digits, or all digits before the point: 1743, 62.1, 5.93."""
    digits = 2 - math.floor(math.log10(value)) if value > 0 else 0
    return f"{value:.{max(0, digits)}f}"


def _factor(value):
    """Two significant digits, three below 2: 25, 2.8, 1.04."""
    return f"{value:.2f}" if value < 1.995 else f"{value:.1f}" if value < 9.95 else f"{value:.0f}"
