"""The learner's own copy of the lessons, and the progress in it."""

import errno
import os
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_markdown_cell, new_output

from course import progress
from course.commands import lab
from course.files import SavingError
from course.lessons import lesson_file
from course.set_up import NO_ROOT
from tests.support.notebooks import write_notebook


@pytest.fixture
def course(tmp_path):
    """A course of two lessons and a solution, and its
    copy: update(course, copy) brings it up to date.
    """
    (tmp_path / "course" / "solutions").mkdir(parents=True)
    for name in ("00_one.ipynb", "01_two.ipynb", "solutions/00_one.ipynb"):
        write_notebook(tmp_path / "course" / name, "1")
    assert lab.update(tmp_path / "course", tmp_path / "copy") == []
    return tmp_path / "course", tmp_path / "copy"


def full(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def source(path):
    return nbformat.read(path, as_version=4).cells[0].source


def there_is_a_new(lesson, mine):
    return f"There is a new {lesson}, but {mine} is yours: rename it to get both."


def files(copy):
    return sorted(str(path.relative_to(copy)) for path in copy.rglob("*") if path.is_file())


def test_an_untouched_lesson_follows_the_course(course):
    folder, copy = course
    notebook = nbformat.read(copy / "00_one.ipynb", as_version=4)
    # as JupyterLab does when it opens a notebook
    notebook.metadata["language_info"] = {"name": "python"}
    nbformat.write(notebook, copy / "00_one.ipynb")
    write_notebook(folder / "00_one.ipynb", "2")
    assert lab.update(folder, copy) == [] and source(copy / "00_one.ipynb") == "2"


IMAGE = {"mine.png": {"image/png": "bWluZQ=="}}
TOUCHES = {  # what a learner does to a notebook
    "edited": lambda notebook: notebook.cells[0].update(source="mine"),
    "run": lambda notebook: notebook.cells[0].outputs.append(new_output("stream", text="mine")),
    "tagged": lambda notebook: notebook.cells[0].metadata.update(tags=["mine"]),
    "described": lambda notebook: notebook.metadata.update(authors=[{"name": "mine"}]),
    "pasted": lambda notebook: notebook.cells.append(new_markdown_cell("", attachments=IMAGE)),
    "damaged": lambda notebook: None,
}


@pytest.mark.parametrize("touch", TOUCHES)
def test_a_touched_lesson_stays_and_is_told(course, touch):
    folder, copy = course
    mine = copy / "00_one.ipynb"
    notebook = nbformat.read(mine, as_version=4)
    TOUCHES[touch](notebook)
    nbformat.write(notebook, mine)
    if touch == "damaged":
        mine.write_text("mine")
    kept = mine.read_bytes()
    assert lab.update(folder, copy) == [], "nothing to tell while the course's has not changed"
    write_notebook(folder / "00_one.ipynb", "2")
    for _ in range(2):
        assert lab.update(folder, copy) == [there_is_a_new(folder / "00_one.ipynb", mine)]
        assert mine.read_bytes() == kept
    mine.rename(copy / "mine.ipynb")
    assert lab.update(folder, copy) == []
    assert source(mine) == "2" and (copy / "mine.ipynb").read_bytes() == kept


@pytest.mark.parametrize("damage", ["", "[3]"])
def test_without_its_origins_no_lesson_is_replaced(course, damage):
    folder, copy = course
    (copy / ".origins.json").write_text(damage)
    write_notebook(folder / "00_one.ipynb", "2")
    assert len(lab.update(folder, copy)) == 1 and source(copy / "00_one.ipynb") == "1"
    write_notebook(folder / "01_two.ipynb", "2")
    assert len(lab.update(folder, copy)) == 1 and source(copy / "01_two.ipynb") == "2"


def test_what_is_no_file_stays_and_is_told(course):
    folder, copy = course
    (copy / "00_one.ipynb").unlink()
    (copy / "00_one.ipynb").mkdir()
    said = f"{copy / '00_one.ipynb'} is no file: rename it to get the lesson."
    assert lab.update(folder, copy) == [said]
    (copy / "00_one.ipynb").rename(copy / "elsewhere")
    assert lab.update(folder, copy) == [] and source(copy / "00_one.ipynb") == "1"


def test_a_file_in_the_copys_place_is_one_sentence(tmp_path):
    write_notebook(tmp_path / "00_one.ipynb", "1")
    (tmp_path / "copy").write_text("mine")
    with pytest.raises(SavingError, match="in the way and run this again"):
        lab.update(tmp_path, tmp_path / "copy")
    assert (tmp_path / "copy").read_text() == "mine"


def renumber(folder, **names):
    for old, new in names.items():
        (folder / f"{old.strip('_')}.ipynb").rename(folder / f"{new}.ipynb")


@pytest.mark.parametrize("changed", [False, True])
def test_copies_follow_a_lesson_that_is_renumbered(course, changed):
    folder, copy = course
    write_notebook(copy / "01_two.ipynb", "mine")
    renumber(folder, _01_two="02_two", _00_one="01_one")
    (folder / "solutions/00_one.ipynb").rename(folder / "solutions/01_one.ipynb")
    write_notebook(folder / "00_new.ipynb", "new")
    if changed:
        write_notebook(folder / "02_two.ipynb", "2")
    said = lab.update(folder, copy)
    assert files(copy) == [".origins.json", *files(folder)]
    assert source(copy / "02_two.ipynb") == "mine" and source(copy / "00_new.ipynb") == "new"
    there = there_is_a_new(folder / "02_two.ipynb", copy / "02_two.ipynb")
    mine = f"{copy / '01_two.ipynb'} is yours: it is now {copy / '02_two.ipynb'}. {there}"
    assert said == [lab.FOLLOWED, *[mine] * changed]
    assert lab.update(folder, copy) == [there] * changed


def test_a_lesson_that_the_course_has_no_more_goes_unless_it_is_the_learners(course):
    folder, copy = course
    write_notebook(copy / "01_two.ipynb", "mine")
    (folder / "01_two.ipynb").unlink()
    (folder / "00_one.ipynb").unlink()
    said = f"The course has no 01_two.ipynb any more: {copy / '01_two.ipynb'} is yours and stays."
    assert lab.update(folder, copy) == [said]
    assert files(copy) == [".origins.json", "01_two.ipynb", "solutions/00_one.ipynb"]
    assert lab.update(folder, copy) == []


@pytest.fixture
def copy_open(tmp_path, monkeypatch):
    """The working directory is the learner's copy, as for a notebook opened there."""
    monkeypatch.setattr(progress, "MY_LESSONS", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_progress_is_noted_and_shown(copy_open):
    assert "Start here: 0 of 3 (" in progress.lesson_ending("start_here")
    for _ in range(2):
        assert progress.mark("start_here", "time_step") == ""
    said = progress.lesson_ending("start_here")
    assert "Start here: 1 of 3 (time_step ✓, make_replay ○" in said
    following = lesson_file("profile_eager_training").name
    assert f"Next lesson: [Profile eager training]({following}). " in said
    last = progress.lesson_ending("failure_gallery")
    assert "Next" not in last and last.endswith(f"[Your progress]({progress.PAGE}).")


def test_outside_the_copy_nothing_is_noted_or_shown(copy_open, monkeypatch):
    (copy_open / "solutions").mkdir()
    monkeypatch.chdir(copy_open / "solutions")
    assert progress.mark("start_here", "time_step") == progress.lesson_ending("start_here") == ""
    assert list(copy_open.iterdir()) == [copy_open / "solutions"]


def test_progress_that_cannot_be_noted_is_told(copy_open, monkeypatch):
    monkeypatch.setattr(Path, "touch", full)
    said = progress.mark("start_here", "time_step")
    assert said == " It could not be noted in your progress: No space left on device."


@pytest.fixture
def machine(monkeypatch):
    """Be that user, with that environment alone; what JupyterLab would be started with."""

    def machine(user, options, **environment):
        started = []
        monkeypatch.setattr(os, "geteuid", lambda: user)
        monkeypatch.setattr(os, "environ", environment)
        monkeypatch.setattr(lab, "update", list)
        monkeypatch.setattr(lab, "write_page", lambda: None)
        monkeypatch.setattr(os, "execve", lambda _, command, __: started.extend(command))
        lab.main(options)
        return [word for word in started if "ServerApp." not in word][3:]

    return machine


ROOT_ONLY = ["--allow-root", "--ip=localhost"]
GIVEN = ["--allow-root", "--ip=0.0.0.0", "--no-browser"]


@pytest.mark.parametrize(
    ("user", "display", "options", "started"),
    [
        (1000, {"DISPLAY": ":0"}, [], []),
        (1000, {"WAYLAND_DISPLAY": "wayland-0"}, [], []),
        (1000, {"BROWSER": "code"}, [], []),
        (1000, {}, [], ["--no-browser"]),
        (0, {"DISPLAY": ":0"}, [], ROOT_ONLY),
        (0, {}, ["--port=0"], [*ROOT_ONLY, "--no-browser", "--port=0"]),
        (0, {}, GIVEN, GIVEN),
    ],
)
def test_root_stays_on_this_machine_and_a_browser_needs_a_display(
    machine, monkeypatch, user, display, options, started
):
    monkeypatch.setattr(lab.sys, "platform", "linux")
    assert machine(user, options, **display) == started


def test_root_can_be_refused(machine):
    with pytest.raises(SystemExit, match=f"You are root, which {NO_ROOT} forbids here"):
        machine(0, [], **{NO_ROOT: "1"})
