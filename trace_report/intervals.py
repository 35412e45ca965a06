"""When does at least one of several activities run? Tables with start_us and end_us."""

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike


def clip_overlaps(activities: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """The activities by start, each with the dur_us that no earlier one of its group covers."""
    rows = activities.sort_values("start_us")
    rows["end_us"] = rows.groupby(keys).end_us.cummax()
    covered_us = rows.groupby(keys).end_us.shift(fill_value=-np.inf)
    rows["start_us"] = rows.start_us.clip(lower=covered_us)
    return rows.assign(dur_us=rows.end_us - rows.start_us)


def busy_time_until(activities: pd.DataFrame, times: ArrayLike) -> np.ndarray:
    """For how many microseconds before each time did at least one of the activities run?"""
    order = np.argsort(activities.start_us.to_numpy(), kind="stable")
    start_us = activities.start_us.to_numpy()[order]
    end_us = np.maximum.accumulate(activities.end_us.to_numpy()[order])
    start_us = np.maximum(start_us, np.append(-np.inf, end_us)[: len(order)])
    done_us = np.cumsum(end_us - start_us)
    edges = np.ravel([start_us, end_us], "F")
    busy_us = np.ravel([done_us - (end_us - start_us), done_us], "F")
    times = np.asarray(times, dtype=float)
    return np.interp(times, edges, busy_us) if len(edges) else np.zeros(times.shape)


def busy_time(activities: pd.DataFrame) -> float:
    """For how many microseconds did at least one of the activities run?"""
    return float(busy_time_until(activities, np.inf))
