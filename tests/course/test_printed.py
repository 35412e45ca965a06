"""Reports of commands, whatever they are written to."""

import subprocess
import sys
from pathlib import Path

from course.lessons import lessons
from course.paths import ROOT
from tests.support.processes import run_python


def test_a_full_disk_is_one_sentence():
    with Path("/dev/full").open("w") as full:
        run = subprocess.run(
            [sys.executable, "-m", "course.progress"],
            cwd=ROOT,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    last = run.stderr.strip().splitlines()[-1]
    assert run.returncode == 1
    assert last == "The lines could not be written: No space left on device."
    assert "Traceback" not in run.stderr


def test_a_terminal_without_the_marks_gets_question_marks():
    run = run_python("-m", "course.progress", PYTHONIOENCODING="ascii")
    assert run.returncode == 0 and run.stdout.startswith("Start here: ") and "?" in run.stdout
    assert len(run.stdout.splitlines()) == len(lessons())
