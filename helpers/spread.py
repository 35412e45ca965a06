"""Median and quartiles of measured times; without torch, so that charts need none."""

import pandas as pd


def quartiles(rounds: pd.DataFrame, column: str) -> pd.DataFrame:
    """Median and quartiles of a column of measure's rounds: q1, median, q3, a row per variant."""
    table = rounds.groupby("variant", sort=False)[column].quantile([0.25, 0.5, 0.75]).unstack()
    return table.set_axis(["q1", "median", "q3"], axis=1).rename_axis(index=None)
