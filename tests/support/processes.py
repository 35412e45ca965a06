"""Programs that are run in processes of their own."""

import os
import shutil
import subprocess
import sys
import zipfile

import pytest

from course.paths import ROOT

BUILD = "from setuptools import build_meta; print(build_meta.build_wheel('.'))"


def run_python(*arguments, folder=ROOT, **variables):
    """Run Python in a folder, with these environment variables besides this process's."""
    command = [sys.executable, *map(str, arguments)]
    environment = os.environ | variables
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def unpacked_wheel(folder, package, *beside):
    """Where the wheel of a package was unpacked, built in a copy of it and of those beside it."""
    pytest.importorskip("setuptools", minversion="77")
    built = shutil.ignore_patterns("__pycache__", "build", "*.egg-info")
    for room in (package, *beside):
        shutil.copytree(ROOT / room, folder / "copy" / room, ignore=built)
    done = run_python("-c", BUILD, folder=folder / "copy" / package)
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(folder / "copy" / package / done.stdout.split()[-1]) as wheel:
        wheel.extractall(folder / "there")
    return folder / "there"
