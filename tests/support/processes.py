"""Programs that are run in processes of their own."""

import os
import shutil
import subprocess
import sys

import pytest

from course.paths import ROOT

IGNORED = shutil.ignore_patterns("__pycache__")


def run_python(*arguments, folder=ROOT, **variables):
    """Run Python in a folder, with these environment variables besides this process's."""
    command = [sys.executable, *map(str, arguments)]
    environment = os.environ | variables
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def build_archive(kind, folder):
    """The archive that the folder's build makes, of this kind; the folder stays as it was."""
    pytest.importorskip("setuptools", minversion="77")
    before = sorted(folder.iterdir())
    code = f"from setuptools import build_meta; print(build_meta.build_{kind}('..'))"
    done = run_python("-c", code, folder=folder)
    assert done.returncode == 0 and sorted(folder.iterdir()) == before, done.stderr
    return folder.parent / done.stdout.split()[-1]


def unpacked_wheel(folder, package, *beside):
    """Where the wheel of a package was unpacked, built in a copy of it and of those beside it."""
    for room in (package, *beside):
        shutil.copytree(ROOT / room, folder / "copy" / room, ignore=IGNORED)
    wheel = build_archive("wheel", folder / "copy" / package)
    shutil.unpack_archive(wheel, folder / "there", "zip")
    return folder / "there"
