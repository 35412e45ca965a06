"""`make test` always ends, and `make quick` says what it leaves out."""

import cProfile
import json
import re
import shlex
import subprocess
from types import SimpleNamespace

import pytest

from course.lessons import lesson_file
from course.paths import ROOT
from tests import quick
from tests.support.processes import run_python
from tests.support.project import clean_environment

LESSON = lesson_file("replay_random_numbers").relative_to(ROOT)
KILLS = "import os, signal\ndef test_dies(): os.kill(os.getpid(), signal.SIGSEGV)\n"
DEAF = """import signal, time
def test_sleeps(): signal.signal(signal.SIGALRM, signal.SIG_IGN); time.sleep(3600)
"""


@pytest.mark.parametrize(
    ("source", "test", "why"),
    [(KILLS, "test_dies", "crashed"), (DEAF, "test_sleeps", "")],
    ids=["killed", "deaf to signals"],
)
def test_no_run_can_hang(source, test, why, tmp_path):
    """`make test` ends, fails and names the test; here it waits for 1 s in place of minutes."""
    (tmp_path / "test_bad.py").write_text(f"{source}def test_good(): pass\n")
    asks = ["make", "--dry-run", "--no-print-directory", "test"]
    printed = subprocess.check_output(asks, text=True, cwd=ROOT, env=clean_environment())
    words = shlex.split(printed.replace("\\\n", " ").splitlines()[-1])[1:]
    assert words[:2] == ["-m", "pytest"]
    patience = ["--timeout=1", "--override-ini=faulthandler_timeout=2", "--numprocesses=1"]
    assert [word.partition("=")[0] for word in words].count("--timeout") == 1
    plugins = ["-pno:cacheprovider", "-pxdist", "-ppytest_timeout"]
    alone = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # the others take seconds
    ran = run_python(*words, *patience, *plugins, "test_bad.py", folder=tmp_path, **alone)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert re.search(rf"FAILED test_bad.py::{test}.*{why}", ran.stdout), ran.stdout


def test_a_quick_run_takes_what_imports_or_names_the_change():
    timing = quick.units(["helpers/timing.py"])
    assert timing["tests/helpers/test_timing.py"] == 1 and timing[quick.SMOKE] == 0
    assert "tests/capturable/test_preflight.py" in quick.units(["capturable/rules.toml"])
    assert "tests/trace_report/test_command.py" in quick.units(["trace_report/__main__.py"])
    scenario = quick.units(["exercises/scenarios/choose_api.py"])
    assert scenario["tests/exercises/test_capture_exercises.py[choose_api]"] <= 1 + quick.LATER
    (name,) = {row.partition("[")[2] for row in quick.units([str(LESSON)]) if "[" in row}
    assert name == "replay_random_numbers]"
    assert all((ROOT / row.partition("[")[0]).exists() for row in timing)


def test_a_quick_run_takes_the_nearest_and_names_what_does_not_fit(monkeypatch, tmp_path):
    table = tmp_path / "seconds.json"
    table.write_text(json.dumps({"near": quick.SECONDS - 1, "long": 2, "far": 1}))
    monkeypatch.setattr(quick, "TABLE", table)
    assert quick.selected({"far": 3, "long": 2, "near": 1}) == (["near", "far"], ["long"])
    rows = ["tests/lessons/test_form.py[a]", "tests/lessons/test_form.py[b]", "tests/x.py"]
    assert quick.by_file(rows) == ["tests/lessons/test_form.py (2 lessons)", "tests/x.py"]


def test_a_quick_run_ends_with_its_time_and_starts_no_browser():
    only = quick.Only([])
    paths = [ROOT / "notebooks/05_a.ipynb", ROOT / "traces/gpu/b.json", ROOT / "read/05_c.md", None]
    items = [
        SimpleNamespace(
            path=ROOT / "tests/x.py",
            fixturenames=fixtures,
            callspec=SimpleNamespace(params={"path": path}),
        )
        for path, fixtures in zip(paths, [[], [], [], ["site"]], strict=True)
    ]
    assert list(map(quick.row_of_test, items)) == [
        *(f"tests/x.py[{lesson}]" for lesson in "abc"),
        "tests/x.py",
    ]
    only.rows = ["tests/x.py[b]", "tests/x.py"]
    hook = SimpleNamespace(pytest_deselected=lambda items: None)
    chosen = list(items)
    only.pytest_collection_modifyitems(SimpleNamespace(hook=hook), chosen)
    assert chosen == [items[1]] and only.left == ["tests/x.py"]
    only.pytest_collection_finish()
    assert only.pytest_runtest_protocol(items[1]) is None
    only.end -= quick.SECONDS
    assert only.pytest_runtest_protocol(items[1]) and only.left[1:] == ["tests/x.py[b]"]


def test_a_quick_run_names_the_changed_functions_that_nothing_calls(monkeypatch):
    calls = cProfile.Profile(builtins=False)
    calls.runcall(quick.by_file, [])
    committed = subprocess.CompletedProcess([], 0, stdout=b"")  # all of the file is new
    monkeypatch.setattr(quick.subprocess, "run", lambda *_, **__: committed)
    template = "course/commands/lesson_template/answers.py"  # which nobody imports
    missed = quick.uncalled(["tests/quick.py", template, "README.md"], calls)
    assert "main in tests/quick.py" in missed and template in missed
    assert "by_file in tests/quick.py" not in missed and len(missed) > 5
