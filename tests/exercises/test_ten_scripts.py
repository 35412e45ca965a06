"""Ten broken scripts: refused as published and half repaired, accepted when repaired."""

import re

import pytest
import torch

from course.lesson import LessonSession
from course.lessons import lesson_file
from course.paths import NOTEBOOKS
from exercises.answers import solutions
from exercises.scenarios.repair_ten_scripts import SCRIPTS
from exercises.scripts import repaired, symptoms_of_scripts
from tests.support.answers import GIVEN, RIGHT, answers
from tests.support.machine import needs_gpu

LESSON = "repair_ten_scripts"
SAYS = {  # of the scripts as published
    "guide": "result 2 of 4 .* still holds an earlier step's value",
    "fine_tune": "result 1 of 4 .* does not start as eager does",
    "accumulate": "result 3 of 4 .* weights differ from eager's from step 2 on",
    "train_in_parts": "do not learn: 0.0.weight, 0.0.bias: they get no gradient",
    "train_seeded": "set_current_seed can be called during stream capture only",
    "ensemble": "result 1 of 4 .* overwritten before it was read",
    "train_careful": "not permitted when stream is capturing",
    "generate": "result 2 of .* still holds an earlier step's value",
    "serve": "right, but slow: 4 more steps capture 4 more graphs",
    "train_scheduled": "result 4 of 4 .* weights differ from eager's from step 3 on",
}
each = pytest.mark.parametrize("name", SCRIPTS)


@pytest.fixture(autouse=True)
def opened(monkeypatch):
    lesson = LessonSession(LESSON, live=True)
    monkeypatch.setattr(solutions, "current", lambda: lesson)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


LESSON_FILE = lesson_file(LESSON)
ANSWERS = {name: answers(LESSON_FILE, name, {}) for name in SCRIPTS}
REPAIRED = {name: ANSWERS[name][name] for name in SCRIPTS}


def verdict(name, script, gpu=False):
    outcome = eval(
        "repaired(script, gpu)", {"repaired": repaired, "script": script, "gpu": gpu, name: script}
    )
    assert "\n" not in repr(outcome), "one sentence, no traceback"
    return outcome


def others(name, right):
    """The other answers to a script: those that are right too, or those that are half repaired."""
    known = (name, name + GIVEN)
    every = {key: value for key, value in ANSWERS[name].items() if key not in known}
    return {key: value for key, value in every.items() if (RIGHT in key) == right}


def test_the_lesson_has_these_scripts():
    assert len(SCRIPTS) == 10 and all(name + GIVEN in ANSWERS[name] for name in SCRIPTS)


def test_a_symptom_has_no_line_and_no_number_that_varies():
    said = symptoms_of_scripts(gpu=False)
    assert said.keys() == SCRIPTS.keys() and all(said.values())
    assert not [text for text in said.values() if "at line" in text or re.search(r"\d of \d", text)]


@each
def test_as_published_it_is_refused(name):
    outcome = verdict(name, ANSWERS[name][name + GIVEN])
    assert not outcome and re.search(SAYS[name], repr(outcome)), outcome


@each
def test_repaired_it_is_taken_and_its_lesson_named(name):
    for script in (*others(name, right=True).values(), REPAIRED[name]):
        outcome = verdict(name, script)
        assert outcome, outcome
    assert SCRIPTS[name].lesson.replace("_", " ") in repr(outcome)
    assert list(NOTEBOOKS.glob(f"[0-9]*_{SCRIPTS[name].lesson}.ipynb"))


@each
def test_half_repaired_it_is_refused(name):
    assert len(others(name, right=False)) >= 2
    for kind, script in others(name, right=False).items():
        outcome = verdict(name, script)
        assert not outcome and repr(outcome).startswith(f"✗ {name}"), f"{kind}: {outcome}"


# all of them where there is a GPU
@pytest.mark.parametrize("name", ["accumulate", "generate", "serve"])
def test_eager_is_no_repair(name):
    assert "it runs eagerly" in repr(verdict(name, SCRIPTS[name].eager))


@pytest.mark.parametrize(
    ("script", "says"),
    [
        (lambda model, inputs: [model(**one) for one in inputs], "it runs eagerly"),
        (lambda model, inputs: [0.0], "result 1 of 4 has the shape (), and eager's has (16, 8)"),
        (
            lambda model, inputs: [torch.zeros(16, 8, device="cuda")],
            "result 1 of 4 is the first that is not eager's",
        ),
        (lambda model, inputs: inputs.clear(), "gives None: is a `return` missing"),
        (lambda model, inputs: 1 / 0, "raised ZeroDivisionError"),
    ],
)
def test_what_is_no_repair_is_told_so(script, says):
    with torch.no_grad():
        assert says in repr(verdict("guide", script))


def test_an_empty_script_is_still_to_do():
    def guide(model, calls):
        """An image for each call."""

    assert repr(verdict("guide", guide)).startswith("○")


@needs_gpu
@each
def test_a_gpu_gives_the_same_verdicts(name):
    for kind, script in {"repaired": REPAIRED[name], **others(name, right=True)}.items():
        outcome = verdict(name, script, gpu=True)
        assert outcome, f"{kind}: {outcome}"
    for kind, script in {"eager": SCRIPTS[name].eager, **others(name, right=False)}.items():
        assert not verdict(name, script, gpu=True), f"{kind} is taken for repaired"
    given = ANSWERS[name][name + GIVEN]
    assert not verdict(name, given, gpu=True)  # from which step on, TF32 may hide
