"""Set the course up in .venv, once; the Makefile calls it:  python course/set_up.py [extra]

Needs the standard library alone. One set-up runs at a time in a folder. The lock is on pyproject.toml and
ends with its process, so that none is ever left over.
"""

from __future__ import annotations

import fcntl
import platform
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHON, READY, SOURCES = ".venv/bin/python", ROOT / ".venv/ready", ("pyproject.toml", "constraints.txt")

# downloads as measured with torch 2.13.0: 2.74 GB and 0.20 GB of them are torch and what it brings
SIZE = (
    "about 2.8 GB, nearly all of it torch for CUDA. The build for the CPU makes it 0.3 GB: give pip its index "
    "(pytorch.org, Get Started, CPU) in PIP_EXTRA_INDEX_URL"
    if platform.system() == "Linux"
    else "about 0.3 GB"
)


def set_up(extra: str = "") -> None:
    """Make .venv with the course and its packages, and with those of an extra, unless that is done.

    A stamp, .venv/ready or .venv/<extra>, is written last: what failed or was interrupted starts again from
    nothing. Raises CalledProcessError for what venv or pip could not do; they have said why.
    """
    with alone():
        if not ready():
            if sys.version_info < (3, 11):  # noqa: UP036 this file alone may meet an older one
                sys.exit("The course needs Python 3.11 or newer: make PYTHON=...")
            print(f"Setting up the course in .venv, once. pip downloads what is not there yet: {SIZE}", flush=True)
            run(sys.executable, "-m", "venv", "--clear", ".venv")
            install(".")
            READY.write_text(f"{ROOT}\n")
        if extra and not READY.with_name(extra).exists():
            print(f"Adding the packages of [{extra}], once.", flush=True)
            install(f".[{extra}]")
            READY.with_name(extra).touch()


def ready() -> bool:
    """Whether .venv was set up for this very folder, after its sources' last change, and its Python still runs."""
    try:
        changed = max((ROOT / source).stat().st_mtime for source in SOURCES)
        here = READY.read_text() == f"{ROOT}\n" and READY.stat().st_mtime >= changed
        return here and subprocess.run([PYTHON, "-c", "pass"], cwd=ROOT).returncode == 0
    except OSError:
        return False


@contextmanager
def alone() -> Iterator[None]:
    """Hold the folder's lock; where another set-up holds it, say so and wait."""
    with (ROOT / SOURCES[0]).open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("Another set-up of this folder is under way: waiting for it.", flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def install(what: str) -> None:
    """Install the course itself, editable, at the versions that were tested together; pip shows its progress."""
    options = ["--disable-pip-version-check", "--constraint=constraints.txt"]
    run(PYTHON, "-m", "pip", "install", *options, "--editable", what)


def run(*command: str) -> None:
    """Run a command in the project's folder. Raises CalledProcessError if it fails."""
    subprocess.run(command, cwd=ROOT, check=True)


if __name__ == "__main__":
    try:
        set_up(*sys.argv[1:])
    except (subprocess.CalledProcessError, KeyboardInterrupt):
        sys.exit("The set-up did not finish; the same command starts it again.")
