"""Lessons get new numbers by a command, and every link follows; nothing else knows a number."""

import re
import shutil

import nbformat
import pytest

from course.commands import rename_lesson, renumber
from course.lessons import FORMER_NAMES, by_parts, former_names, lesson_file, unnumbered
from course.paths import ROOT

LESSONS = sorted(ROOT.glob("notebooks/[0-9]*.ipynb"))
NAMES = [unnumbered(path.stem) for path in LESSONS]
NUMBERED = re.compile(rf"\b\d+_(?:{'|'.join(NAMES)})\b")
CODE = [path for path in ROOT.rglob("*.py") if path.relative_to(ROOT).parts[0][0] != "."]


@pytest.fixture
def project(tmp_path):
    """A copy of everything that names lessons."""
    paths = {
        path for pattern in (*renumber.TEXTS, "notebooks/**/*.ipynb") for path in ROOT.glob(pattern)
    }
    for path in paths:
        copy = tmp_path / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    return tmp_path


def code(folder):
    """The code of every notebook in the folder, by its name without the number."""
    return {
        f"{path.parent.name}/{unnumbered(path.name)}": [
            cell.source
            for cell in nbformat.read(path, as_version=4).cells
            if cell.cell_type == "code"
        ]
        for path in folder.rglob("*.ipynb")
    }


def dead_links(project):
    """Files of lessons that some text or notebook names, and that are not there."""
    texts = [path for path in project.rglob("*") if path.is_file() and path.name != FORMER_NAMES]
    present = {path.stem for path in project.glob("notebooks/*.ipynb")}
    named = {
        found for path in texts for found in NUMBERED.findall(path.read_text(encoding="utf-8"))
    }
    return named - present - former_names().keys()


def test_links_are_up_to_date(project):
    assert renumber.update_links(project) == [], "run `make links`"
    assert dead_links(project) == set()


def test_code_knows_lessons_by_name_alone():
    named = {
        str(path.relative_to(ROOT)): NUMBERED.findall(path.read_text(encoding="utf-8"))
        for path in CODE
    }
    cells = {
        name: NUMBERED.findall("\n".join(cells)) for name, cells in code(ROOT / "notebooks").items()
    }
    known = {name: found for name, found in (named | cells).items() if found}
    assert known == {}, "ask course.lessons.lesson_file for the file"


def test_lessons_move_and_links_follow(project):
    """The one that has the number moves up, and so on up to a gap."""
    notebooks, before = project / "notebooks", code(project / "notebooks")
    renumber.renumber("choose_api", 3, project)
    assert dead_links(project), "links are stale now"
    assert renumber.update_links(project)
    assert dead_links(project) == set() and renumber.update_links(project) == []
    order = [path.stem for path in sorted(notebooks.glob("*.ipynb"))]
    assert order == [path.stem for path in sorted(notebooks.glob("solutions/*.ipynb"))]
    assert [int(stem[:2]) for stem in order[2:6]] == [2, 3, 4, 5]
    assert [unnumbered(stem) for stem in order[2:5]] == [NAMES[2], "choose_api", NAMES[3]]
    assert len(order) == len(NAMES)
    assert code(notebooks) == before, "code cells are compared with recordings"


def test_former_names_lead_to_the_present_ones(project):
    notebooks = project / "notebooks"
    renumber.renumber("choose_api", 11, project)
    assert former_names(notebooks) == {f"{16}_choose_api": "choose_api"}
    rename_lesson.rename("choose_api", "choose_way", project)
    former = {f"{number:02}_choose_api": "choose_way" for number in (11, 16)}
    assert former_names(notebooks) == former
    rename_lesson.rename("choose_way", "choose_api", project)
    renumber.renumber("choose_api", 16, project)
    former = {f"{11:02}_{name}": "choose_api" for name in ("choose_api", "choose_way")}
    assert former_names(notebooks) == former, "a file that is there has no other name"


def test_a_renamed_lesson_takes_along_whatever_names_it(project):
    for name in ("exercises/scenarios/change_weights.py", "traces/h200/change_weights.json"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("change_weights()  # 'change_weights'")
    (project / "docs/search.toml").write_text('change_weights = ["swap"]\nrechange_weights = 1')
    rename_lesson.rename("change_weights", "swap_weights", project)
    renumber.update_links(project)
    assert (project / "docs/search.toml").read_text().startswith("swap_weights = ")
    assert "rechange_weights" in (project / "docs/search.toml").read_text()
    scenarios = (project / "exercises/scenarios/swap_weights.py").read_text()
    assert scenarios == "change_weights()  # 'swap_weights'", "a function keeps its name"
    assert (project / "traces/h200/swap_weights.json").exists()
    opening = {cell for cells in code(project / "notebooks").values() for cell in cells}
    assert any('lesson("swap_weights")' in cell for cell in opening)
    assert not any('"change_weights"' in cell for cell in opening)
    assert dead_links(project) == set()


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
    ("command", "name", "to", "said"),
    [
        (rename_lesson.rename, "nothing", "draw_lines", "There is no lesson nothing"),
        (rename_lesson.rename, "choose_api", "choose", "'choose' is no name of a lesson"),
        (rename_lesson.rename, "choose_api", "reach_floor", "There is a lesson reach_floor"),
        (renumber.renumber, "nothing", 3, "There is no lesson nothing in .*notebooks"),
        (renumber.renumber, "choose_api", 100, "numbered from 0 to 99: there is no 100"),
        (renumber.renumber, "choose_api", -1, "there is no -1"),
    ],
)
def test_a_mistake_is_a_sentence_and_changes_nothing(project, command, name, to, said):
    before = sorted(project.rglob("*"))
    with pytest.raises((LookupError, ValueError), match=said):
        command(name, to, project)
    assert sorted(project.rglob("*")) == before


def test_the_command_says_what_it_did(capsys, monkeypatch):
    monkeypatch.setattr(renumber, "update_links", list)
    assert renumber.main([]) == 0 and capsys.readouterr().out == "All links are up to date.\n"
    assert renumber.main(["nothing", "3"]) == 1
    assert capsys.readouterr().err.startswith("There is no lesson nothing")
    with pytest.raises(SystemExit):
        renumber.main(["choose_api"])
    assert "which number shall choose_api get?" in capsys.readouterr().err
