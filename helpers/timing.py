"""measure: host time and step time of several variants, side by side, with their spread.

claim: what a lesson says of such times, reported and never asserted.
"""

import math
import time
from collections.abc import Callable

import pandas as pd
import torch

from helpers.spread import quartiles

BURST_US = 5000  # the least time of a burst; it is less than twice as long
FEWEST_STEPS = 4
OTHERWISE = "On this machine it is not so"  # begins the sentence on a claim that does not hold


def synchronize() -> None:
    """Wait for the GPU, where there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def measure(
    variants: dict[str, Callable[[], object]],
    rounds: int = 20,
    burst: int | None = None,
    steps: int | None = None,
    warmup: int = 5,
    clock: Callable[[], float] = time.perf_counter,
    wait: Callable[[], object] = synchronize,
) -> pd.DataFrame:
    """Time variants, a dict of name -> step (a function without arguments), in interleaved rounds.

    Every round visits each variant once (A B C A B C ...), so that a drift of the machine hits all.
    A visit starts with an idle GPU, issues `steps` steps in a row, then waits for the GPU once.
      step time: the whole visit, wait included, per step
      host time: until the first `burst` of these steps are issued, per step

    By default a burst takes 5 to 10 ms, too short to fill the launch queue (about 1,000 launches),
    which would make the host wait. A visit is one burst, but at least 4 steps: host time exceeds
    step time only where the first of few long steps are slow. Ranks that communicate pass `burst`
    or `steps`: by time, each would choose its own number.

    Returns a row per round and variant: round, variant, host_us and step_us (µs per step). Raises
    ValueError without variants; what a step raises comes through with its variant's name.
    """
    if not variants:
        raise ValueError("measure needs at least one variant, such as {'eager': step}")
    counts: dict[str, tuple[int, int]] = {}  # steps of a burst, of a visit
    rows = []
    try:
        for name, step in variants.items():
            for _ in range(warmup):
                step()
            counts[name] = _step_counts(step, burst, steps, clock, wait)
        for number in range(rounds):
            for name, step in variants.items():
                burst_size, step_count = counts[name]
                host_us, step_us = _time(step, burst_size, step_count, clock, wait)
                rows.append((number, name, host_us, step_us))
    except Exception as error:
        error.add_note(f"raised by variant {name!r} while it was measured")
        raise
    return pd.DataFrame(rows, columns=["round", "variant", "host_us", "step_us"])


def _time(step, burst, steps, clock, wait):
    """µs per step until the first `burst` steps are issued, and until all `steps` are done."""
    wait()
    start = clock()
    for number in range(1, steps + 1):
        step()
        if number == burst:
            issued = clock()
    wait()
    done = clock()
    return (issued - start) / burst * 1e6, (done - start) / steps * 1e6


def _step_counts(step, burst, steps, clock, wait):
    """How many steps a burst and a visit have: as given, else by time."""
    if burst is None and steps is None:
        burst = 1
        while burst < 2**16:
            shortest_us = min(_time(step, burst, burst, clock, wait)[1] for _ in range(2))
            if burst * shortest_us >= BURST_US:
                break
            burst *= 2
    steps = steps or max(burst, FEWEST_STEPS)
    return min(burst or steps, steps), steps


def ratios(rounds: pd.DataFrame, column: str) -> pd.DataFrame:
    """First variant over each variant, taken round by round: columns q1, median, q3."""
    table = rounds.pivot(index="round", columns="variant", values=column)
    table = table[list(rounds.variant.unique())]
    shares = table.rdiv(table.iloc[:, 0], axis=0)
    return quartiles(shares.melt(var_name="variant", value_name=column), column)


def too_close(rounds: pd.DataFrame, column: str) -> pd.Series:
    """Whether a variant's quartile range overlaps the first variant's: a boolean Series."""
    spread = quartiles(rounds, column)
    return (spread.q1 <= spread.q3.iloc[0]) & (spread.q3 >= spread.q1.iloc[0])


def compare(rounds: pd.DataFrame) -> pd.DataFrame:
    """Compare the variants in words, a row each: their times, and how they relate to the first.

    Times are in µs per step, "median [quartiles]" over the rounds; so are the factors, taken round
    by round. Brackets describe this run, not other machines. A pair is too close to call where the
    quartile ranges of its times overlap, or where that of its factor holds 1.
    """
    times, factors = {}, {}
    for what, column in (("host", "host_us"), ("step", "step_us")):
        spreads, close = quartiles(rounds, column), too_close(rounds, column)
        times[f"{what} time, µs: median [quartiles]"] = [
            _spread(low, middle, high, _short) for low, middle, high in spreads.to_numpy()
        ]
        cells = [
            "too close to call" if near or low <= 1 <= high else _faster(low, middle, high)
            for near, (low, middle, high) in zip(
                close, ratios(rounds, column).to_numpy(), strict=True
            )
        ]
        factors[f"{what} time vs. {close.index[0]}: median [quartiles]"] = ["1", *cells[1:]]
    return pd.DataFrame(times | factors, index=spreads.index)


def _faster(low, middle, high):
    """A ratio and its quartiles in words: 2.8 times faster [2.7, 2.9], 25 times slower [24, 26]."""
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


def check_claim(words: str, left: float, relation: str, right: float) -> None:
    """Check what a lesson says of times: left "<" right, or left ">" right, in the same unit.

    Where it holds, nothing is shown. Where it does not, one sentence gives both figures, and the
    lesson goes on: times depend on the machine, so they are never asserted. Raises ValueError for
    another relation.
    """
    if relation not in ("<", ">"):
        raise ValueError(f'A claim compares by "<" or ">", not by {relation!r}.')
    holds = left < right if relation == "<" else left > right
    if not holds:
        print(f"{OTHERWISE}: {words} ({left:.4g} is not {relation} {right:.4g}).")
