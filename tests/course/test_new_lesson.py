"""A lesson begun by the command has the form of a lesson; its checks tell right from wrong."""

import math
import shutil

import nbformat
import pytest

from course.commands import new_lesson
from course.lessons import by_parts, lesson_file
from course.paths import ROOT
from docs.minutes import count_minutes, stated_minutes
from tests.support.processes import run_python

NEITHER = shutil.ignore_patterns(".*", "__pycache__", "my_lessons", "_build", "*.egg-info")
CHECKS = [
    "tests/lessons/test_form.py",
    "tests/exercises/test_capture_exercises.py",
    "tests/lessons/test_rename.py",
]


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A copy of the project."""
    return shutil.copytree(ROOT, tmp_path_factory.mktemp("new") / "project", ignore=NEITHER)


@pytest.mark.weekly  # copies the project and runs pytest in it
def test_a_new_lesson_passes_the_tests_of_form(project):
    said = run_python("-m", "course.commands.new_lesson", "check_things", 29, folder=project)
    assert said.returncode == 0, said.stderr
    assert "belongs to the part 'In practice'" in said.stdout
    file = f"{29}_check_things.ipynb"
    for name in (
        f"notebooks/{file}",
        f"notebooks/solutions/{file}",
        "exercises/scenarios/check_things.py",
        "tests/exercises/answers/check_things.py",
    ):
        assert name in said.stdout and "erb_object" not in (project / name).read_text()
    assert 'make record ARGS="check_things"' in said.stdout
    of_the_lesson = "(check_things and not memory and not minutes)"
    chosen = f"{of_the_lesson} or make_scaler or running_total or clean or up_to_date"
    options = ["-n", "0", "-v", "-p", "no:cacheprovider", "-k", chosen]
    told = run_python("-m", "pytest", *options, *CHECKS, folder=project)
    assert told.returncode == 0, told.stdout[-5000:]
    assert f"keeps_the_form_of_a_lesson[{file[:-6]}] PASSED" in told.stdout
    assert "tells_right_from_wrong[running_total] PASSED" in told.stdout


@pytest.fixture
def root(tmp_path):
    """A project of one lesson."""
    for folder in ("notebooks/solutions", "exercises/scenarios", "tests/exercises/answers"):
        (tmp_path / folder).mkdir(parents=True)
    for path in ("notebooks/00_share_pools.ipynb", "notebooks/solutions/00_share_pools.ipynb"):
        shutil.copy(lesson_file("start_here"), tmp_path / path)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "number", "said"),
    [
        ("share_pools", 1, r"There is a lesson share_pools already: .*/00_share_pools\.ipynb"),
        ("Share_pools", 1, "'Share_pools' is no name of a lesson: a verb and an object"),
        ("05_draw_lines", 1, "give its number after the name"),
        ("../share_pools", 1, "no name of a lesson"),
        ("draw_lines", 0, "0 is the number of 00_share_pools: begin the lesson at a free one"),
        ("draw_lines", 100, "no 100"),
    ],
)
def test_a_name_or_number_that_cannot_be_taken_is_a_sentence(root, name, number, said):
    before = sorted(root.rglob("*"))
    with pytest.raises(ValueError, match=said):
        new_lesson.new_lesson(name, number, root)
    assert sorted(root.rglob("*")) == before


def test_nothing_is_overwritten(root):
    (root / "exercises/scenarios/draw_lines.py").write_text("mine")
    with pytest.raises(ValueError, match=r"draw_lines\.py is there already: move it away first"):
        new_lesson.new_lesson("draw_lines", 1, root)
    assert (root / "exercises/scenarios/draw_lines.py").read_text() == "mine"
    assert len(list(root.rglob("*.ipynb"))) == 2


def test_links_hold_the_numbers_of_this_project(root):
    lesson, solutions, *_ = new_lesson.new_lesson("draw_lines", 1, root)
    assert lesson.name == solutions.name == "01_draw_lines.ipynb"
    assert "# Draw lines" in nbformat.read(lesson, as_version=4).cells[0].source
    assert "(../01_draw_lines.ipynb)" in solutions.read_text()
    assert by_parts(root / "notebooks")["The core course"][-1] == lesson
    assert new_lesson.main(["share", "1"]) == 1


def test_the_template_states_its_minutes():
    path = new_lesson.TEMPLATE / "lesson.ipynb"
    assert stated_minutes(path) == math.ceil(count_minutes(nbformat.read(path, as_version=4)))
