"""Every exercise in captures, and what its check says of an answer."""

import pytest

from course.lesson import LessonSession
from course.paths import NOTEBOOKS, lesson_name
from course.recordings.cells import checks_in
from exercises import check_capture
from exercises.answers import runs, solutions
from tests.support.notebooks import code


def capture_checks():
    """(lesson's path, exercise) for every check of a capture, in reading order."""
    for path in sorted(NOTEBOOKS.glob("[0-9]*.ipynb")):
        for source in code(path):
            yield from ((path, name) for kind, name in checks_in(source) if kind == "check_capture")


SEEDS = runs.SEEDS
EXERCISES = list(capture_checks())
PREDICTOR = next(one for one in EXERCISES if one[1] == "make_predictor")
each = pytest.mark.parametrize(("path", "name"), EXERCISES, ids=[name for _, name in EXERCISES])


def verdict(monkeypatch, path, name, answer, gpu=False):
    monkeypatch.setattr(solutions, "SYMPTOM_ALONE", 0)
    lesson = LessonSession(lesson_name(path), live=False)
    monkeypatch.setattr(solutions, "current", lambda: lesson)
    namespace = {"check_capture": check_capture, name: answer, "gpu": gpu}
    outcome = eval(f"check_capture({name}, gpu=gpu)", namespace)
    assert "\n" not in repr(outcome), "one sentence, no traceback"
    return outcome
