"""The same measurement on every GPU that a lesson was recorded on, and on this machine's."""

import pandas as pd
from IPython import get_ipython

from course import lesson
from course.machine import gpu_name
from course.recordings.recording import recordings_of
from helpers.timing import compare


def compare_gpus(rounds: str) -> pd.DataFrame:
    """What compare() says of the rounds of that name in the open lesson, for each GPU; this
    machine's first, if live.

    Raises RecordingError if a recording has no value of that name.
    """
    opened, tables = lesson.current(), {}
    if opened.live:
        tables[f"here: {gpu_name()}"] = compare(get_ipython().user_ns[rounds])
    for one in recordings_of(opened.name, lesson.TRACES):
        tables[f"{one.about['gpu']}, torch {one.about['torch']}"] = compare(one.value(rounds))
    return pd.concat(tables)
