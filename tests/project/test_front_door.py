"""What a person meets before the first lesson: README, licences, container, conda, workflows."""

import dataclasses
import json
import os
import re
import shlex
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import nbformat
import pytest
from markdown_it import MarkdownIt
from nbclient import NotebookClient
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version
from PIL import Image

from course.commands import works_on
from course.lessons import by_parts, lesson_file, lessons, optional
from course.paths import NOTEBOOKS, ROOT
from docs import colab, readme
from tests.support.machine import needs_gpu
from tests.support.notebooks import RECORDED, prose, write_notebook
from tests.support.project import PROJECT

yaml = pytest.importorskip("yaml", reason="needs what `make test` installs")

DOCKERFILE = (ROOT / "Dockerfile").read_text()
CONDA = yaml.safe_load((ROOT / "environment.yml").read_text())
WORKFLOWS = {path.name: path for path in (ROOT / ".github/workflows").glob("*.yml")}
JOBS = {name: yaml.safe_load(path.read_text())["jobs"] for name, path in WORKFLOWS.items()}


def run(*command, **options):
    """Run a program, one of this environment's if it has one of that name."""
    program = Path(sys.executable).parent / command[0]
    command = [program if program.exists() else command[0], *command[1:]]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, **options)


# README, licences, citation


@pytest.mark.parametrize("page", readme.PAGES, ids=lambda page: page.stem)
def test_the_front_pages_have_the_tables_of_now(page):
    text = page.read_text()
    assert readme.with_tables(page) == text, "run `make readme`"
    if page == readme.LESSONS:
        assert all(f"read/{path.stem}.md)" in text for path in RECORDED)


@pytest.mark.parametrize("page", readme.PAGES, ids=lambda page: page.stem)
def test_the_repositorys_address_is_written_where_it_is_set(page, monkeypatch):
    monkeypatch.setenv("REPOSITORY_ADDRESS", "https://github.com/somebody/graphs")
    text = readme.with_tables(page)
    if page == readme.README:
        assert "git clone https://github.com/somebody/graphs cuda-graphs-course" in text
        first = lesson_file("start_here").name
        assert (
            f"(https://colab.research.google.com/github/somebody/graphs/blob/colab/notebooks/{first})"
            in text
        )
        assert "(https://codespaces.new/somebody/graphs)" in text
        assert "(https://mybinder.org/v2/gh/somebody/graphs/main" in text


def test_the_readme_lays_all_recorded_gpus_side_by_side(monkeypatch):
    (recording,) = [
        one for one in readme.recordings("start_here") if one.about["gpu"] == "NVIDIA H200"
    ]
    other = dataclasses.replace(
        recording, about=recording.about | {"gpu": "Other GPU", "date": "2027-01-01"}
    )
    monkeypatch.setattr(readme, "recordings", lambda name: [recording, other])
    said, (_, _, *rows) = readme.headline(), readme.spreads().splitlines()
    of_step, of_host = (
        r"\*\*(\d+) to (\d+) µs\*\* and",
        r"\*\*(\d+) to (\d+) µs\*\*\. \*\*10 of 10 losses\*\*",
    )
    step, host = (re.search(pattern, said).groups() for pattern in (of_step, of_host))
    assert int(step[0]) > int(step[1]) and int(host[0]) > int(host[1])
    assert [row.partition(",")[0] for row in rows] == ["| NVIDIA H200", "| Other GPU"]
    assert {row.count("|") for row in rows} == {7}
    assert "; Other GPU, 2027-01-01.*" in readme.lesson_list()
    other.about |= {"gpu": "NVIDIA H100 80GB HBM3", "date": recording.about["date"]}
    assert f"recorded on H200 and H100, {recording.about['date']}.*" in readme.lesson_list()


def test_the_readmes_picture_shows_the_recorded_numbers(tmp_path):
    now = readme.shown(*readme.first_chart())
    assert Image.open(readme.PICTURE).text["Description"] == now, "run `make readme`"
    assert json.loads(now)["host_us"].keys() == {"eager", "whole-step graph"}
    readme.draw(tmp_path / "again.png")
    again, committed = Image.open(tmp_path / "again.png"), Image.open(readme.PICTURE)
    assert again.text["Description"] == now
    assert abs(again.width - committed.width) < 0.1 * committed.width


def test_the_picture_of_the_report_shows_the_recorded_traces(tmp_path):
    readme.draw_report(tmp_path / "again.png")
    again, committed = Image.open(tmp_path / "again.png"), Image.open(readme.REPORT)
    assert again.text["Description"] == committed.text["Description"], "run `make readme`"
    assert again.size == committed.size


def test_the_readme_is_short():
    """At most 900 words as a hosting site shows it, code apart."""
    html = MarkdownIt("gfm-like", {"linkify": False}).render(readme.README.read_text())
    assert "<table>" in html
    shown = re.sub(r"<pre>.*?</pre>|<code>.*?</code>|<!--.*?-->|<[^>]*>", " ", html, flags=re.S)
    assert len(re.findall(r"\S*\w\S*", shown)) <= 900


def numbers_needed(path):
    """Numbers of the lessons that a lesson needs, and that these need: its own reckoning."""
    row = prose(path).partition("| you need |")[2].splitlines()[2].split("|")[1].partition(";")[0]
    direct = {int(number) for number in re.findall(r"\((\d\d)_\w+\.ipynb", row)}
    there = {int(one.name[:2]): one for one in lessons()}
    if "all lessons from" in row:
        direct = {number for number in there if min(direct) <= number <= max(direct)}
    return direct.union(*(numbers_needed(there[number]) for number in direct))


def test_each_path_names_what_it_needs_and_adds_up_all_minutes():
    there = {int(path.name[:2]): path for path in lessons()}
    _, _, *rows = readme.path_table().splitlines()
    assert len(rows) == len(readme.PATHS) and f"\n{rows[-1]}\n" in readme.README.read_text()
    on_a_path = set()
    for row in rows:
        _, who, own, before, reading, all_in_all, _ = (cell.strip() for cell in row.split("|"))
        own = {int(number) for number in re.findall(r"(\d+) \[", own)}
        needed = set().union(*(numbers_needed(there[number]) for number in own)) - own
        assert before == ", ".join(map(str, sorted(needed))), who
        first = [prose(there[number]) for number in own | needed]
        takes = [re.search(r"\| (\d+) minutes \+ (\d+) minutes of", text) for text in first]
        assert int(reading) == sum(int(one[1]) for one in takes), who
        assert int(all_in_all) == sum(int(one[1]) + int(one[2]) for one in takes), who
        on_a_path |= own | needed
    listed = {number for number, path in there.items() if path in RECORDED}
    apart = {number for number in listed if optional(there[number])}
    (reference,) = by_parts()["Reference"]
    assert listed == on_a_path | apart | {int(reference.name[:2])}, "in a path or optional"


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
    of_workflow = [
        Version(python) for python in JOBS["test.yml"]["recorded"]["strategy"]["matrix"]["python"]
    ]
    of_container = Version(re.search(r"^FROM python:(\S+?)-slim", DOCKERFILE, re.MULTILINE)[1])
    assert of_conda == of_workflow and len(of_workflow) == 3
    assert all(python in supported for python in [*of_conda, of_container])
    assert Version(f"{of_container.major}.{of_container.minor}") in of_conda


def test_the_container_runs_as_a_user_and_keeps_the_servers_token():
    assert re.search(r"^USER [1-9]\d*$", DOCKERFILE, re.MULTILINE)
    started = re.search(r"^ENTRYPOINT (.*)$", DOCKERFILE, re.MULTILINE)[1]
    assert "token" not in started and "allow" not in started and "password" not in started
    port = re.search(r"--port=(\d+)", started)[1]
    published = re.findall(
        r"docker run .*? -p (\S+)", (ROOT / "docs/run_the_course.md").read_text()
    )
    assert len(published) == 2 and set(published) == {f"127.0.0.1:{port}:{port}"}


# workflows


def test_no_job_can_pass_without_notebooks():
    """The notebooks that ran are counted after they ran, and no failure is passed over."""
    for workflow, job, runs in (
        ("test.yml", "recorded", "make notebooks"),
        ("gpu.yml", "live", "make works-on"),
    ):
        steps = [step.get("run", "") for step in JOBS[workflow][job]["steps"]]
        (ran,) = [number for number, step in enumerate(steps) if runs in step]
        (counted,) = [number for number, step in enumerate(steps) if "notebooks_ran.py" in step]
        assert ran < counted
    weekly = JOBS["weekly.yml"]
    assert weekly["recorded"]["uses"] == "./.github/workflows/test.yml"
    assert weekly["tools"]["uses"] == "./.github/workflows/tools.yml"
    assert weekly["report"]["needs"] == ["recorded", "tools"]
    assert not any("continue-on-error" in path.read_text() for path in WORKFLOWS.values())


def report(*cases):
    rows = "".join(
        f'<testcase classname="{name}" name="n">{inner}</testcase>' for name, inner in cases
    )
    return f"<testsuites><testsuite>{rows}</testsuite></testsuites>"


def test_the_count_of_a_test_run_wants_every_notebook(tmp_path):
    names = [".".join(path.relative_to(ROOT).parts) for path in NOTEBOOKS.rglob("*.ipynb")]
    for inner, status in (("", 0), ("<skipped/>", 1), ("<failure/>", 1)):
        (tmp_path / "r.xml").write_text(
            report(*[(name, "") for name in names[1:]], (names[0], inner))
        )
        assert (
            run(sys.executable, ".github/notebooks_ran.py", tmp_path / "r.xml").returncode == status
        )
    (tmp_path / "r.xml").write_text(report(("notebooks.other.ipynb", "")))
    answer = run(sys.executable, ".github/notebooks_ran.py", tmp_path / "r.xml")
    assert answer.returncode == 1 and lesson_file("start_here").name in answer.stdout


@pytest.fixture
def weekly_report(tmp_path):
    """Run report.sh with a gh that answers from here; return its status and the calls that change
    something.
    """

    def answer(result, green, issue=""):
        gh = tmp_path / "gh"
        gh.write_text(
            f"""#!/bin/sh
case "$1 $2" in
  "run list") echo "{green}";;
  "issue list") echo "{issue}";;
  *) echo "$*" >> {shlex.quote(str(tmp_path))}/calls;;
esac
"""
        )
        gh.chmod(0o755)
        (tmp_path / "calls").write_text("")
        environment = {
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "RESULT": result,
            "BRANCH": "main",
            "RUN": "the run",
        }
        status = run(ROOT / ".github/report.sh", env=environment).returncode
        return status, (tmp_path / "calls").read_text()

    return answer


def days_ago(days):
    return (datetime.now(UTC) - timedelta(days=days)).strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.mark.parametrize(
    ("result", "green", "issue", "does", "words"),
    [
        ("success", 7.9, "", "", ""),
        ("failure", 1, "", "create --title", "did not run as recorded: failure"),
        ("skipped", 1, "17", "comment 17 --body", "did not run as recorded: skipped"),
        ("success", 8.1, "", "create --title", "older than 8 days"),
        ("success", None, "", "create --title", "No GPU run has been green yet"),
    ],
)
def test_a_bad_week_opens_an_issue_or_adds_to_it(weekly_report, result, green, issue, does, words):
    status, calls = weekly_report(result, days_ago(green) if green else "", issue)
    assert status == bool(does) and words in calls
    assert calls.startswith(f"issue {does}") if does else not calls


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
    works_on.keep(row | {"lessons": {}}, rows)
    works_on.keep(row | {"torch": "2.13", "lessons": lessons}, rows)
    works_on.keep(row | {"lessons": lessons}, rows)
    found = [(kept["torch"], len(kept["lessons"])) for kept in json.loads(rows.read_text())]
    assert found == [("2.13", 2), ("2.11", 2)]
    works_on.keep({**row, "date": "2026-02-02", "lessons": {"b": lessons["a"]}}, rows, add=True)
    added = json.loads(rows.read_text())[-1]
    assert added["date"] == "2026-01-01" and added["lessons"]["b"]["date"] == "2026-02-02"
    found = works_on.table(rows).splitlines()[2]
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


# Binder
