"""Lessons get new numbers by a command, and every link follows; nothing else knows a number."""

import re
import shutil

import nbformat
import pytest

from course.commands import rename
from course.lessons import FORMER_NAMES, by_parts, former_names, lesson_file, unnumbered
from course.paths import ROOT
from tests.support.notebooks import code

LESSONS = sorted(ROOT.glob("notebooks/[0-9]*.ipynb"))
NAMES = [unnumbered(path.stem) for path in LESSONS]
NUMBERED = re.compile(rf"\b\d+_(?:{'|'.join(NAMES)})\b")
CODE = [path for path in ROOT.rglob("*.py") if path.relative_to(ROOT).parts[0][0] != "."]


@pytest.fixture
def project(tmp_path):
    """A copy of everything that names lessons."""
    patterns = (*rename.LINKS, "notebooks/**/*.ipynb")
    for path in {path for pattern in patterns for path in ROOT.glob(pattern)}:
        copy = tmp_path / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    return tmp_path


def code_of_all(folder):
    """The code of every notebook in the folder, by its name without the number."""
    paths = folder.rglob("*.ipynb")
    return {f"{path.parent.name}/{unnumbered(path.name)}": code(path) for path in paths}


def dead_links(project):
    """Files of lessons that some text or notebook names, and that are not there."""
    files = [path for path in project.rglob("*") if path.is_file() and path.name != FORMER_NAMES]
    text = "\n".join(file.read_text(encoding="utf-8") for file in files)
    present = {path.stem for path in project.glob("notebooks/*.ipynb")}
    return set(NUMBERED.findall(text)) - present - former_names().keys()


def test_links_are_up_to_date(project):
    assert rename.update_links(project) == [], "run `make links`"
    assert dead_links(project) == set()


def test_code_knows_lessons_by_name_alone():
    texts = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in CODE}
    texts |= {name: "\n".join(cells) for name, cells in code_of_all(ROOT / "notebooks").items()}
    known = {name: found for name, text in texts.items() if (found := NUMBERED.findall(text))}
    assert known == {}, "ask course.lessons.lesson_file for the file"


def test_a_renamed_lesson_takes_along_whatever_names_it(project):
    notebooks, before = project / "notebooks", code_of_all(project / "notebooks")
    for name in ("exercises/scenarios/change_weights.py", "traces/h200/change_weights.json"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("change_weights()  # 'change_weights'")
    (project / "docs/search.toml").write_text('change_weights = ["swap"]\nrechange_weights = 1')
    old = lesson_file("change_weights", notebooks).stem
    assert rename.rename_lesson("change_weights", "29_swap_weights", project)
    assert (project / "docs/search.toml").read_text().startswith("swap_weights = ")
    assert "rechange_weights" in (project / "docs/search.toml").read_text()
    scenarios = (project / "exercises/scenarios/swap_weights.py").read_text()
    assert scenarios == "change_weights()  # 'swap_weights'", "a function keeps its name"
    assert (project / "traces/h200/swap_weights.json").exists()
    cells = code_of_all(notebooks)
    assert any('lesson("swap_weights")' in cell for cell in cells["notebooks/swap_weights.ipynb"])
    assert dead_links(project) == set() and rename.update_links(project) == []
    assert (notebooks / "solutions/29_swap_weights.ipynb").exists()
    assert former_names(notebooks)[old] == "swap_weights"
    rename.rename_lesson("swap_weights", old, project)
    assert old not in former_names(notebooks), "a file that is there has no other name"
    assert former_names(notebooks)["29_swap_weights"] == "change_weights"
    assert code_of_all(notebooks) == before, "code cells are compared with recordings"


@pytest.mark.parametrize(
    ("lesson", "part", "said"),
    [
        ("choose_api", None, "choose_api.ipynb names no part of the course: write"),
        ("choose_api", "In theory", "with one of The core course, In practice"),
        ("choose_api", "The core course", "its number follows those of 'In practice'"),
    ],
)
def test_a_lesson_without_its_part_is_a_sentence(project, lesson, part, said):
    path = lesson_file(lesson, project / "notebooks")
    notebook = nbformat.read(path, as_version=4)
    notebook.metadata["course"] = {"part": part} if part else {}
    nbformat.write(notebook, path)
    with pytest.raises(LookupError, match=said):
        by_parts(project / "notebooks")


@pytest.mark.parametrize(
    ("name", "to", "said"),
    [
        ("nothing", "draw_lines", "There is no lesson nothing in .*notebooks"),
        ("choose_api", "choose", "'choose' is no name of a lesson"),
        ("choose_api", "reach_floor", "There is a lesson reach_floor"),
        ("choose_api", f"{0:02}_choose_api", "00 is the number of .*start_here"),
    ],
)
def test_a_mistake_is_a_sentence_and_changes_nothing(project, name, to, said):
    before = sorted(project.rglob("*"))
    with pytest.raises((LookupError, ValueError), match=said):
        rename.rename_lesson(name, to, project)
    assert sorted(project.rglob("*")) == before


def test_the_command_says_what_it_did(capsys, monkeypatch):
    monkeypatch.setattr(rename, "update_links", list)
    assert rename.main([]) == 0 and capsys.readouterr().out == "Changed: nothing.\n"
    assert rename.main(["choose_api", "nothing"]) == 1
    assert capsys.readouterr().err.startswith("'nothing' is no name of a lesson")


DEFINITION = "def old(): ...\n"


@pytest.mark.parametrize(
    ("user", "to", "said"),
    [
        ("", "new", ""),
        ("from helpers.a import old\n", "class", "'class' is no name that Python takes"),
        ("new = 1\n", "new", "new is taken: .*b.py uses it"),
        ("print(old=1)\n", "new", "old is also an attribute or an argument in .*b.py"),
    ],
)
def test_a_function_is_renamed_where_its_name_means_nothing_else(tmp_path, user, to, said):
    (tmp_path / "helpers").mkdir()
    files = {tmp_path / "helpers/a.py": DEFINITION, tmp_path / "helpers/b.py": user}
    for file, text in files.items():
        file.write_text(text)
    if said:
        with pytest.raises(ValueError, match=said):
            rename.rename_definition("old", to, tmp_path)
        assert all(file.read_text() == text for file, text in files.items())
    else:
        assert rename.rename_definition("old", to, tmp_path) == [tmp_path / "helpers/a.py"]
        assert (tmp_path / "helpers/a.py").read_text() == "def new(): ...\n"


def test_a_word_of_the_prose_is_left_to_the_author(tmp_path):
    (tmp_path / "helpers").mkdir()
    (tmp_path / "helpers/a.py").write_text(DEFINITION)
    readme = tmp_path / "README.md"
    readme.write_text("An old friend of `old`.\n")
    with pytest.raises(ValueError, match="old is also a word of .*README.md: rename it by hand"):
        rename.rename_definition("old", "new", tmp_path)
    readme.write_text("A friend of `old`.\n")
    lesson = tmp_path / "notebooks/00_meet_friends.ipynb"
    lesson.parent.mkdir()
    prose = nbformat.v4.new_markdown_cell("An old friend.")
    nbformat.write(nbformat.v4.new_notebook(cells=[prose]), lesson)
    with pytest.raises(ValueError, match="old is also a word of .*ipynb: rename it by hand"):
        rename.rename_definition("old", "new", tmp_path)
    lesson.unlink()
    rename.rename_definition("old", "new", tmp_path)
    assert readme.read_text() == "A friend of `new`.\n"
