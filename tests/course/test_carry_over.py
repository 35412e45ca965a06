"""Recordings carried over to code that is the same program; others are refused, and stay."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from course.commands.carry_over import main
from course.paths import ROOT
from course.recordings.counts import ROOMS
from tests.support.processes import IGNORED, run_python

MEASURES = "traces/nvidia-h200/start_here.json"
COUNTS = "traces/nvidia-h200/capture_and_replay.json"  # reads no clock
STALE = "traces/nvidia-h200/share_memory_pools.json"
HASHES = {"cells", "definitions", "digest", "readings", "statements"}


@pytest.fixture
def project(tmp_path):
    """The project with these recordings, under git; the last one was stale before it was there."""
    for room in (*ROOMS, "notebooks"):
        shutil.copytree(ROOT / room, tmp_path / room, ignore=IGNORED)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for recording in (MEASURES, COUNTS, STALE):
        (tmp_path / recording).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / recording, tmp_path / recording)
        traces = (ROOT / recording).with_suffix("")
        if traces.exists():
            shutil.copytree(traces, (tmp_path / recording).with_suffix(""))
    edit(lesson_of(tmp_path, STALE), "%%gpu", "%%gpu mine")
    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    return tmp_path


def lesson_of(root, recording):
    return next(root.glob(f"notebooks/*_{Path(recording).stem}.ipynb"))


def edit(file, old, new):
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def git(root, *words):
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", *who, *words], cwd=root, check=True, capture_output=True)


def commit(root):
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "a change")


def measured(text):
    """What of a recording was measured, as text."""
    content = json.loads(text)
    about = {key: part for key, part in content.items() if key not in HASHES}
    cells = [(cell.get("values"), cell.get("outputs")) for cell in content["cells"]]
    return json.dumps([about, cells])


def test_a_new_name_is_carried_over_and_what_changed_or_was_stale_is_refused(project):
    recordings = (MEASURES, STALE, COUNTS)
    before = [(project / recording).read_text() for recording in recordings]
    edit(project / "helpers/timing.py", "= time.perf_counter", "= time.monotonic")
    for file in [*project.rglob("*.py"), *project.rglob("*.ipynb")]:
        if "EDGE_TYPES" in (text := file.read_text()):
            file.write_text(re.sub(r"\bEDGE_TYPES\b", "KINDS_OF_EDGES", text))
    line = 'counter = torch.zeros(1, device=\\"cuda\\")'  # by which the recording names a cell
    assert line in before[2]
    edit(lesson_of(project, COUNTS), line, f"{line}  # mine")
    commit(project)
    words = ["course.commands.carry_over", "HEAD~1", "EDGE_TYPES", "KINDS_OF_EDGES"]
    done = run_python("-m", *words, folder=project)
    assert done.returncode == 1 and "got new hashes: capture_and_replay." in done.stdout
    assert "start_here has changed since: helpers.timing.measure has changed." in done.stderr
    assert "share_memory_pools was not fresh there: code cell" in done.stderr
    after = [(project / recording).read_text() for recording in recordings]
    assert after[:2] == before[:2] and after[2] != before[2]
    assert "graph_nodes.KINDS_OF_EDGES" in after[2] and "EDGE_TYPES" not in after[2]
    assert measured(after[2]) == measured(before[2])
    cells = [json.loads(text)["cells"] for text in (before[2], after[2])]
    assert [cell["begins"] for cell in cells[0]] == [cell["begins"] for cell in cells[1]]


@pytest.mark.parametrize("words", [[], ["HEAD", "one"], ["no_such_commit"]])
def test_other_arguments_change_nothing_and_are_told(words, capsys):
    assert main(words) == 2 and capsys.readouterr().err.strip()
