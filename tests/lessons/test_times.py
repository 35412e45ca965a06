"""Times are reported, never asserted: no lesson stops because a machine is faster or slower.

Each lesson is played with every recorded time multiplied by a seeded factor between 0.3 and 3, its
own for each variable, variant and column, so that any order of variants may turn round.
"""

import random
import re

import pandas as pd
import pytest

from course import lesson
from course.paths import lesson_name
from course.player import play_lesson
from course.recordings.recording import find_recording
from helpers.timing import OTHERWISE, check_claim
from tests.support.notebooks import LESSONS, parametrize_paths

SEED = 20261124
TIME = re.compile(r"(^|_|\b)(us|µs|ms|seconds|tokens a second|bandwidth|idle)(_|\b|$)")
OTHER_TIMES = {  # times whose names do not say so, by lesson
    "look_inside_graph": {"costs"},
    "split_decoder": {"products", "all_reduces"},
}
UNTIMED = {"capture_and_replay", "replay_random_numbers", "share_memory_pools"}
UNTIMED |= {"repair_ten_scripts", "failure_gallery"}


def scaled(value, place, times, factor_of):
    """A recorded value with its times multiplied: those whose place has a name that says time."""
    if isinstance(value, dict):
        return {key: scaled(item, (*place, key), times, factor_of) for key, item in value.items()}
    if isinstance(value, list):
        return [scaled(item, place, times, factor_of) for item in value]
    if isinstance(value, pd.DataFrame):
        return _scaled_table(value, place, times, factor_of)
    is_time = any(TIME.search(name) or name in times for name in place)
    if isinstance(value, float) and is_time:
        return value * factor_of(place)
    return value


def _scaled_table(table, place, times, factor_of):
    table = table.copy()
    rows = table["variant"] if "variant" in table else pd.Series(table.index, table.index)
    for column in table.columns:
        names = (*place, str(column))
        is_time = any(TIME.search(name) or name in times for name in names)
        if is_time and pd.api.types.is_float_dtype(table[column]):
            table[column] *= [factor_of((*names, str(row))) for row in rows]
    return table


def factors(seed):
    """The factor of a place: the same for the same seed and place."""
    return lambda place: 3 ** random.Random(f"{seed} {place}").uniform(-1.095, 1)


@parametrize_paths(LESSONS, recorded=True)
def test_no_lesson_stops_on_a_slower_or_faster_machine(path, monkeypatch):
    name = lesson_name(path)
    factor_of = factors(SEED)
    decode = lesson.decode

    def on_another_machine(variable, value):
        return scaled(decode(variable, value), (variable,), OTHER_TIMES.get(name, set()), factor_of)

    values = [pair for cell in find_recording(name).cells for pair in cell.values.items()]
    timed = any(repr(on_another_machine(*pair)) != repr(decode(*pair)) for pair in values)
    assert timed != (name in UNTIMED), "the gate scales what is timed, and nothing else"
    if timed:  # else it would be played as test_solutions.py plays it
        monkeypatch.setattr(lesson, "decode", on_another_machine)
        play_lesson(path)


def test_a_claim_that_holds_shows_nothing_and_one_that_does_not_says_both_figures(capsys):
    check_claim("a replay takes less time than the eager step", 353.2, "<", 1593)
    assert capsys.readouterr().out == ""
    check_claim("a replay takes less time than the eager step", 1593, "<", 353.2)
    said = capsys.readouterr().out
    assert said.startswith(OTHERWISE) and said.count("\n") == 1
    assert "(1593 is not < 353.2)" in said
    check_claim("a replay takes less time than the eager step", float("nan"), "<", 1)
    assert capsys.readouterr().out.startswith(OTHERWISE)
    with pytest.raises(ValueError, match="compares by"):
        check_claim("both take as long", 1, "==", 1)
