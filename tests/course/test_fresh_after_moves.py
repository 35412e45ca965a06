"""Recordings compare definitions by their text: a move makes none stale, a changed line exactly
those that reach it.
"""

import functools
import json
import re
import shutil
from pathlib import Path

import nbformat
import pytest

from course.lessons import lesson_file
from course.paths import ROOT
from course.recordings import reached_code, recording
from course.recordings.cells import code_cells
from course.recordings.reached_code import redefined
from course.recordings.recording import RecordedCell, Recording, RecordingError, stale

# which reach helpers; capturable; helpers.trace_file; exercises and cpu_graph
REACHING = "start_here", "make_code_capturable", "let_torch_compile_capture", "repair_ten_scripts"
LESSONS = {name: nbformat.read(lesson_file(name), as_version=4) for name in REACHING}


def as_if_recorded_now(name, notebook):
    cells = code_cells(notebook)
    measured = [{} for cell in cells if cell.kind == "gpu"]
    content = json.loads(recording.written({}, cells, measured))
    made = [RecordedCell(**cell) for cell in content.pop("cells")]
    return Recording(Path(f"{name}.json"), content, content["statements"], made)


@functools.cache
def recordings():
    return [as_if_recorded_now(name, notebook) for name, notebook in LESSONS.items()]


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A copy of the rooms that lessons reach, to change at will, which recordings are compared
    with.
    """
    recordings()  # of the rooms as they are
    for room in reached_code.ROOMS:
        for file in (ROOT / room).rglob("*"):
            if file.suffix in (".py", ".txt"):
                copied = tmp_path / file.relative_to(ROOT)
                copied.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, copied)
    hashes, on_disk = reached_code.hashes, reached_code.redefined_on_disk
    monkeypatch.setattr(recording, "hashes", lambda nodes: hashes(nodes, tmp_path))
    monkeypatch.setattr(recording, "redefined_on_disk", lambda then: on_disk(then, tmp_path))
    return tmp_path


def changes():
    """What has changed for each lesson whose recording is not fresh: lesson -> sentences."""
    found = {one.path.stem: stale(LESSONS[one.path.stem], one) for one in recordings()}
    return {lesson: sentences for lesson, sentences in found.items() if sentences}


def reaching(name):
    """The lessons whose recordings say that they reach this definition."""
    return {one.path.stem for one in recordings() if name in one.about["definitions"]}


def replace_everywhere(tree, pattern, new):
    count = 0
    for file in tree.rglob("*.py"):
        text, found = re.subn(pattern, new, file.read_text())
        file.write_text(text)
        count += found
    assert count


def imported_by_cells(module):
    cells = [cell.source for notebook in LESSONS.values() for cell in code_cells(notebook)]
    return any(module in source for source in cells)


def test_a_renamed_module_makes_no_recording_stale(tree):
    assert reaching("helpers.trace_file.read_tables") and not imported_by_cells(
        "helpers.trace_file"
    )
    (tree / "helpers" / "trace_file.py").rename(tree / "helpers" / "kineto.py")
    replace_everywhere(tree, r"helpers\.trace_file", "helpers.kineto")
    assert changes() == {}


def moved(tree, function, old, new):
    """Move a function that uses no global to a new module, which the old one imports it from."""
    file = tree / f"{old}.py"
    text = file.read_text()
    body = re.search(rf"^def {function}\(.*?(?=^\S)", text, re.MULTILINE | re.DOTALL)[0]
    (tree / f"{new}.py").write_text(body)
    imported = f"from {new.replace('/', '.')} import {function}\nimport pandas"
    file.write_text(text.replace(body, "").replace("import pandas", imported))


def test_a_function_moved_to_another_module_makes_no_recording_stale(tree):
    assert reaching("helpers.timing._time")
    moved(tree, "_time", "helpers/timing", "helpers/stopwatch")
    assert changes() == {}


@pytest.mark.parametrize("first_moved", [False, True], ids=["where it was", "moved"])
def test_a_changed_line_makes_those_stale_that_reach_it(tree, first_moved):
    where = "helpers/stopwatch" if first_moved else "helpers/timing"
    if first_moved:
        moved(tree, "_time", "helpers/timing", where)
    file = tree / f"{where}.py"
    file.write_text(file.read_text().replace("issued = clock()", "issued = clock() + 1"))
    found = changes()
    assert found.keys() == reaching("helpers.timing._time")
    assert 0 < len(found) < len(LESSONS)
    assert all(any("_time has changed" in one for one in sentences) for sentences in found.values())


def test_definitions_of_one_text():
    """Two names of one statement, and two functions of one text in two modules."""
    assert redefined({"m.A": "1", "m.B": "1"}, {"n.A": "1", "n.B": "1"}) == []
    assert redefined({"m.A": "2", "m.B": "2"}, {"m.A": "1", "m.B": "1"}) == [
        "m.A",
        "m.B",
    ]
    assert redefined({"m.f": "2", "n.f": "1"}, {"m.f": "1", "n.f": "1"}) == ["m.f"]
    assert redefined({"m.f": "1", "n.f": "2"}, {"m.f": "2", "n.f": "1"}) == [], "they only moved"
    assert redefined({"n.f": "2"}, {"m.f": "1"}) == ["m.f", "n.f"]
    assert redefined({}, {"m.f": "1"}) == ["m.f"]


def test_a_helper_edited_on_disk_is_refused_when_the_lesson_opens(tree):
    (one,) = [one for one in recordings() if one.path.stem == "start_here"]
    one.check_code()
    file = tree / "helpers/timing.py"
    file.write_text(file.read_text().replace("issued = clock()", "issued = clock() + 1"))
    with pytest.raises(RecordingError, match="_time in helpers/timing.py is not the code that"):
        one.check_code()
