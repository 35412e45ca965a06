"""Recordings carried over to code that is the same program; others are refused, and stay."""

import json
import re
import shutil
import subprocess

import pytest

from course.commands.carry_over import main
from course.paths import ROOT
from course.recordings.counts import ROOMS
from tests.support.processes import run_python

MEASURES = "traces/nvidia-h200/start_here.json"
COUNTS = "traces/nvidia-h200/capture_and_replay.json"  # reads no clock
HASHES = {"cells", "definitions", "digest", "readings", "statements"}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The project with these two recordings, under git; at its second commit the clock differs."""
    root = tmp_path_factory.mktemp("carry_over")
    for room in (*ROOMS, "notebooks"):
        shutil.copytree(ROOT / room, root / room, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", root)
    for recording in (MEASURES, COUNTS):
        (root / recording).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / recording, root / recording)
        traces = (ROOT / recording).with_suffix("")
        if traces.exists():
            shutil.copytree(traces, (root / recording).with_suffix(""))
    git(root, "init", "--quiet")
    commit(root)
    timing = root / "helpers/timing.py"
    timing.write_text(timing.read_text().replace("= time.perf_counter", "= time.monotonic"))
    commit(root)
    return root


@pytest.fixture
def project(made, tmp_path):
    """A copy of it."""
    return shutil.copytree(made, tmp_path / "project")


def git(root, *words):
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", *who, *words], cwd=root, check=True, capture_output=True)


def commit(root):
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "a change")


def carry_over(root, *words):
    return run_python("-m", "course.commands.carry_over", *words, folder=root)


def measured(text):
    """What of a recording was measured, as text."""
    content = json.loads(text)
    about = {key: part for key, part in content.items() if key not in HASHES}
    cells = [(cell.get("values"), cell.get("outputs")) for cell in content["cells"]]
    return json.dumps([about, cells])


def test_a_recording_of_another_program_is_refused_and_stays(project):
    before = (project / MEASURES).read_bytes()
    done = carry_over(project, "HEAD~1")
    assert done.returncode == 1
    assert (
        "Refused: start_here has changed since: helpers.timing.measure has changed." in done.stderr
    )
    assert "capture_and_replay" not in done.stderr
    assert (project / MEASURES).read_bytes() == before


def test_a_new_name_is_carried_over_but_no_recording_that_was_stale(project):
    before = [(project / recording).read_text() for recording in (MEASURES, COUNTS)]
    for file in [*project.rglob("*.py"), *project.rglob("*.ipynb")]:
        text = file.read_text()
        if "EDGE_TYPES" in text:
            file.write_text(re.sub(r"\bEDGE_TYPES\b", "KINDS_OF_EDGES", text))
    (lesson,) = project.glob("notebooks/*_capture_and_replay.ipynb")
    line = 'counter = torch.zeros(1, device=\\"cuda\\")'  # by which the recording names a cell
    assert line in before[1] and line in lesson.read_text()
    lesson.write_text(lesson.read_text().replace(line, f"{line}  # mine"))
    commit(project)
    done = carry_over(project, "HEAD~1", "EDGE_TYPES", "KINDS_OF_EDGES")
    assert done.returncode == 1 and "got new hashes: capture_and_replay." in done.stdout
    assert "Refused: start_here was not fresh there: helpers.timing.measure" in done.stderr
    after = [(project / recording).read_text() for recording in (MEASURES, COUNTS)]
    assert after[0] == before[0] and after[1] != before[1]
    assert "graph_nodes.KINDS_OF_EDGES" in after[1] and "EDGE_TYPES" not in after[1]
    assert measured(after[1]) == measured(before[1])
    cells = [json.loads(text)["cells"] for text in (before[1], after[1])]
    assert [cell["begins"] for cell in cells[0]] == [cell["begins"] for cell in cells[1]]


@pytest.mark.parametrize("words", [[], ["HEAD", "one"], ["no_such_commit"]])
def test_other_arguments_change_nothing_and_are_told(words, capsys):
    assert main(words) == 2 and capsys.readouterr().err.strip()
