"""What a person meets before the first lesson: README, licences, container, conda, workflows."""

import dataclasses
import json
import re

import nbformat
import pytest
from markdown_it import MarkdownIt
from nbclient import NotebookClient
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version
from PIL import Image

from course.commands import works_on
from course.lessons import by_parts, is_optional, lesson_file
from course.paths import ROOT
from docs import colab, readme
from tests.support.machine import needs_gpu
from tests.support.notebooks import RECORDED, write_notebook
from tests.support.project import PROJECT

yaml = pytest.importorskip("yaml", reason="needs what `make test` installs")

DOCKERFILE = (ROOT / "Dockerfile").read_text()
CONDA = yaml.safe_load((ROOT / "environment.yml").read_text())
WORKFLOWS = {path.name: path for path in (ROOT / ".github/workflows").glob("*.yml")}
JOBS = {name: yaml.safe_load(path.read_text())["jobs"] for name, path in WORKFLOWS.items()}


# README, licences, citation


@pytest.mark.parametrize("page", readme.PAGES, ids=lambda page: page.stem)
def test_the_front_pages_have_the_tables_of_now(page):
    text = page.read_text()
    assert readme.with_tables(page) == text, "run `make readme`"
    if page == readme.LESSONS:
        assert all(f"read/{path.stem}.md)" in text for path in RECORDED)


def test_the_readme_is_short():
    """At most 900 words as a hosting site shows it, code apart."""
    html = MarkdownIt("gfm-like", {"linkify": False}).render(readme.README.read_text())
    assert "<table>" in html
    shown = re.sub(r"<pre>.*?</pre>|<code>.*?</code>|<!--.*?-->|<[^>]*>", " ", html, flags=re.S)
    assert len(re.findall(r"\S*\w\S*", shown)) <= 900


def test_the_repositorys_address_is_written_where_it_is_set(monkeypatch):
    monkeypatch.setenv("REPOSITORY_ADDRESS", "https://github.com/somebody/graphs")
    text = readme.with_tables(readme.README)
    assert "git clone https://github.com/somebody/graphs cuda-graphs-course" in text
    first = lesson_file("start_here").name
    assert f"colab.research.google.com/github/somebody/graphs/blob/colab/notebooks/{first})" in text


def test_the_readme_lays_all_recorded_gpus_side_by_side(monkeypatch):
    recording = readme.recordings_of("start_here")[0]
    about = recording.about | {"gpu": "NVIDIA H100 80GB HBM3"}
    other = dataclasses.replace(recording, about=about)
    monkeypatch.setattr(readme, "recordings_of", lambda name: [recording, other])
    _, _, *rows = readme.quartile_table().splitlines()
    assert [row.partition(",")[0] for row in rows] == ["| NVIDIA H200", "| NVIDIA H100 80GB HBM3"]
    assert f"recorded on H200 and H100, {about['date']}.*" in readme.lesson_list()
    other.about["date"] = "2027-01-01"
    assert "; H100, 2027-01-01.*" in readme.lesson_list()


@pytest.mark.parametrize(
    ("picture", "draw"), [(readme.PICTURE, readme.draw), (readme.REPORT, readme.draw_report)]
)
def test_the_readmes_pictures_show_the_recorded_numbers(picture, draw, tmp_path):
    draw(tmp_path / "again.png")
    again, committed = Image.open(tmp_path / "again.png"), Image.open(picture)
    assert again.text["Description"] == committed.text["Description"], "run `make readme`"
    assert abs(again.width - committed.width) < 0.1 * committed.width


def test_each_path_names_what_it_needs_and_adds_up_all_minutes():
    (row,) = (row for row in readme.path_table().splitlines() if "| have one evening" in row)
    evening = [lesson_file(name) for name in readme.PATHS["have one evening"]]
    reading, exercising = map(sum, zip(*map(readme.minutes_of_lesson, evening), strict=True))
    assert row.endswith(f" |  | {reading} | {reading + exercising} |"), "it needs no other lesson"
    needed = readme.with_prerequisites([lesson_file("speculate_tokens")])
    assert {lesson_file("start_here"), lesson_file("decode_language_model")} < set(needed)
    named = [lesson_file(name) for names in readme.PATHS.values() for name in names]
    on_a_path = set(readme.with_prerequisites(named))
    reference = by_parts()["Reference"]
    apart = {path for path in RECORDED if is_optional(path) or path in reference}
    assert set(RECORDED) == on_a_path | apart, "in a path or optional"


def test_the_commands_that_the_front_door_names_exist():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for name in ("README.md", "CONTRIBUTING.md", "docs/run_the_course.md"):
        text = (ROOT / name).read_text()
        assert set(re.findall(r"(?:^    |`)make ([\w-]+)", text, re.MULTILINE)) <= targets
        modules = re.findall(r"python -m (\w+(?:\.\w+)+)", text)
        assert all((ROOT / f"{module.replace('.', '/')}.py").exists() for module in modules)


def test_the_files_that_contributing_names_exist():
    """In the table of what to touch, and of the tests that remind of it."""
    table = (ROOT / "CONTRIBUTING.md").read_text().partition("## The rooms")[0]
    named = re.findall(r"`([a-z_]+/[\w/]*(?:\.\w+)?)`", table)
    tests = {file for file in named if "/test_" in file}
    assert len(tests) > 15 and all((ROOT / "tests" / file).exists() for file in tests)
    rooms = {file for file in named if file not in tests}
    assert all((ROOT / file).exists() or (ROOT / "tests" / file).exists() for file in rooms)


# versions, container, conda


def test_every_door_brings_a_python_and_a_torch_that_the_project_supports():
    supported = SpecifierSet(PROJECT["requires-python"])
    conda = [Requirement(spec) for spec in CONDA["dependencies"] if isinstance(spec, str)]
    assert [need.name for need in conda] == ["python", "pip"]
    pythons = [Version(f"3.{minor}") for minor in range(8, 20)]
    of_conda = list(conda[0].specifier.filter(pythons))
    matrix = JOBS["test.yml"]["recorded"]["strategy"]["matrix"]
    of_workflow = [Version(python) for python in matrix["python"]]
    of_container = Version(re.search(r"^FROM python:(\S+?)-slim", DOCKERFILE, re.MULTILINE)[1])
    assert of_conda == of_workflow and len(of_workflow) == 3
    assert all(python in supported for python in [*of_conda, of_container])
    assert Version(f"{of_container.major}.{of_container.minor}") in of_conda


def test_the_container_runs_as_a_user_and_keeps_the_servers_token():
    assert re.search(r"^USER [1-9]\d*$", DOCKERFILE, re.MULTILINE)
    started = re.search(r"^ENTRYPOINT (.*)$", DOCKERFILE, re.MULTILINE)[1]
    assert "token" not in started and "allow" not in started and "password" not in started
    port = re.search(r"--port=(\d+)", started)[1]
    page = (ROOT / "docs/run_the_course.md").read_text()
    published = re.findall(r"docker run .*? -p (\S+)", page)
    assert len(published) == 2 and set(published) == {f"127.0.0.1:{port}:{port}"}


# the row of a live run


@pytest.fixture
def notebooks(tmp_path, monkeypatch):
    """A lesson that ran live, one that was played, and one that fails."""
    # a machine without a GPU has no answer of its own
    monkeypatch.setattr(works_on, "ASK", "[live, 3 * 7]")
    monkeypatch.setattr(works_on, "lesson_name", lambda path: path.stem)
    monkeypatch.setattr(works_on.run_lesson, "__defaults__", (tmp_path / "executed",))
    cells = {"first": "live = True", "played": "live = False", "wrong": "assert 1 == 2"}
    return [write_notebook(tmp_path / f"{name}.ipynb", cell) for name, cell in cells.items()]


@pytest.mark.weekly
def test_lessons_may_run_at_once_and_every_failure_is_told(notebooks, tmp_path):
    took, errors = works_on.run_at_once(notebooks, jobs=2)
    assert list(took) == ["first"], "a played lesson counts for nothing"
    assert took["first"]["peak_gpu_mib"] == 21 and took["first"]["seconds"] > 0
    executed = nbformat.read(tmp_path / "executed" / "first.ipynb", as_version=4)
    assert [cell.execution_count for cell in executed.cells] == [1], "the added cell is gone again"
    assert len(errors) == 1 and "assert 1 == 2" in str(errors[0])


@needs_gpu
def test_a_lesson_runs_live_and_its_memory_is_seen(tmp_path):
    took = works_on.run_lesson(lesson_file("start_here"), tmp_path)
    assert 100 < took["peak_gpu_mib"] < 4096


def test_a_machine_keeps_one_row_per_torch(tmp_path):
    rows = tmp_path / "rows.json"
    row = {"gpu": "G", "driver": "1", "torch": "2.11", "python": "3.12", "date": "2026-01-01"}
    lessons = {"a": {"seconds": 1.5, "peak_gpu_mib": 10}, "b": {"seconds": 2.0, "peak_gpu_mib": 30}}
    works_on.save_row(row | {"lessons": {}}, rows)
    works_on.save_row(row | {"torch": "2.13", "lessons": lessons}, rows)
    works_on.save_row(row | {"lessons": lessons}, rows)
    found = [(kept["torch"], len(kept["lessons"])) for kept in json.loads(rows.read_text())]
    assert found == [("2.13", 2), ("2.11", 2)]
    works_on.save_row({**row, "date": "2026-02-02", "lessons": {"b": lessons["a"]}}, rows, add=True)
    added = json.loads(rows.read_text())[-1]
    assert added["date"] == "2026-01-01" and added["lessons"]["b"]["date"] == "2026-02-02"
    found = works_on.rows_as_markdown(rows).splitlines()[2]
    assert found == "| G | 1 | 2.13 | 3.12 | 2 | 4 | 30 MiB | 2026-01-01 |"


# Colab


@pytest.mark.weekly
def test_a_lesson_in_colab_fetches_the_course_and_then_plays(tmp_path, monkeypatch):
    """As in Colab: the notebook alone in an empty folder. The packages are here already."""
    lesson = lesson_file("start_here")
    notebook = colab.for_colab(lesson, ROOT.as_uri())
    codes = [cell for cell in notebook.cells if cell.cell_type == "code"]
    codes[0].source = codes[0].source.replace("%pip install", "# %pip install")
    cells = [*codes[:2], nbformat.v4.new_code_cell("import course; print(course.__file__)")]
    short = nbformat.v4.new_notebook(cells=cells)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    client = NotebookClient(short, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    where = short.cells[-1].outputs[0]["text"].strip()
    assert where == str(tmp_path / "cuda-graphs-course/course/__init__.py")
    assert "H200" in str(short.cells[1].outputs), "the lesson's first cell says what it plays"
    client.execute()  # once more, in the folder that is there now
