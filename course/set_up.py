"""Set the course up, once; the Makefile calls it:

    python -m course.set_up [EXTRA] [--cpu] [--torch VERSION]

It needs the standard library alone: pip puts uv into the environment, and uv does the rest. One
set-up runs at a time in a folder. The lock is on pyproject.toml and ends with its process, so
that none is ever left over.
"""

from __future__ import annotations

import argparse
import fcntl
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("pyproject.toml", "constraints.txt")
DRIVER = ("/proc/driver/nvidia/version", "/sys/module/nvidia/version")  # not under Windows

NO_ROOT = "CUDA_GRAPHS_REFUSE_ROOT"  # set, the course does nothing as root
REFUSED = f"You are root, which {NO_ROOT} forbids here: unset it, or become another user."
PROXY = (
    "a proxy goes into HTTPS_PROXY, an index of your own into UV_DEFAULT_INDEX (for pip, "
    "PIP_INDEX_URL), and UV_SYSTEM_CERTS=1 lets uv trust the certificates that your system trusts"
)

FULL = 2**26  # bytes: if a step failed with fewer left on the disk, this is why
# downloads as measured with torch 2.15.0 (CUDA) and 2.13.0 (CPU)
CPU, CUDA = "torch for the CPU, about 0.4 GB in all", "torch for CUDA, about 3.2 GB in all"


class Failed(Exception):
    """A step of the set-up that a program could not do; its reason, in a sentence."""


def set_up(extra: str = "", version: str = "", cpu: bool = False) -> None:
    """Make the environment with the course, its packages and an extra's, unless that is done.

    version: another torch than the pinned one, which gets an environment of its own. cpu: take
    torch's CPU build even where there is an NVIDIA driver. A stamp (ready, or the extra's name) is
    written last: what failed or was interrupted starts again from nothing. Raises Failed for what
    venv, pip or uv could not do.
    """
    venv = ROOT / (f".venv-{version}" if version else ".venv")
    with hold_lock():
        start = time.monotonic()
        if not is_set_up(venv):
            print(f"Setting up the course in {venv.name}, once.", flush=True)
            run("make an environment", sys.executable, "-m", "venv", "--clear", str(venv))
            pin = next(line for line in tested_versions(version) if line.startswith("uv=="))
            quiet = ["--quiet", "--disable-pip-version-check"]
            run("install uv with pip", python(venv), "-m", "pip", "install", *quiet, pin)
            pins = "".join(f"{pin}\n" for pin in tested_versions(version))
            (venv / "constraints.txt").write_text(pins)
            (venv / "torch-backend").write_text(torch_backend(cpu))
        if not is_set_up(venv) or (extra and not (venv / extra).exists()):
            install(venv, extra)
            (venv / "ready").write_text(f"{ROOT}\n")
            (venv / (extra or "ready")).touch()
            print(f"Set up in {time.monotonic() - start:.0f} s.", flush=True)


def python(venv: Path) -> str:
    """The environment's Python."""
    return str(venv / "bin/python")


def is_set_up(venv: Path) -> bool:
    """Whether it was set up here, after its sources' last change, and its Python still runs."""
    stamp = venv / "ready"
    try:
        changed = max((ROOT / source).stat().st_mtime for source in SOURCES)
        here = stamp.read_text() == f"{ROOT}\n" and stamp.stat().st_mtime >= changed
        return here and subprocess.run([python(venv), "-c", "pass"], cwd=ROOT).returncode == 0
    except OSError:
        return False


@contextmanager
def hold_lock() -> Iterator[None]:
    """Hold the folder's lock; where another set-up holds it, say so and wait."""
    with (ROOT / SOURCES[0]).open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("Another set-up of this folder is under way: waiting for it.", flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def tested_versions(version: str) -> list[str]:
    """The tested versions; with another torch, the one of torchvision is left to uv."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    if version:
        others = [line for line in lines if not line.startswith(("torch==", "torchvision=="))]
        lines = [*others, f"torch=={version}"]
    return [line for line in lines if not line.startswith("#")]


def torch_backend(cpu: bool) -> str:
    """Which of torch's builds uv should take from PyTorch's own index; "" for the default index's.

    Without an NVIDIA driver that is the CPU build. uv's own choice, auto, is left to machines with
    a driver: elsewhere it may be the build for an Intel or AMD GPU.
    """
    if "UV_TORCH_BACKEND" in os.environ or platform.system() != "Linux":
        return ""
    driver = shutil.which("nvidia-smi") or any(Path(file).exists() for file in DRIVER)
    return "auto" if driver and not cpu else "cpu"


def install(venv: Path, extra: str) -> None:
    """Install the course, editable, at the tested versions.

    torch comes from PyTorch's own index, or from the default one where that does not help. An
    extra that is added later must come from where torch came from.
    """
    what = f".[{extra}]" if extra else "."
    command = [python(venv), "-m", "uv", "pip", "install", "--python", python(venv)]
    command += ["--constraint", str(venv / "constraints.txt"), "--editable", what]
    backend = (venv / "torch-backend").read_text()
    build = f": {CPU if backend == 'cpu' else CUDA}" if backend else ""
    print(f"uv downloads what is not in its cache yet{build}.", flush=True)
    done = run_uv([*command, f"--torch-backend={backend}"] if backend else command)
    if not done and backend and not (venv / "ready").exists():
        (venv / "torch-backend").write_text("")
        print(
            f"PyTorch's own index did not help: taking {CUDA}, from the default index.", flush=True
        )
        done = run_uv(command)
    if not done:
        raise Failed(f"uv could not install the packages and has said why; {PROXY}")


def run_uv(command: list[str]) -> bool:
    """Run uv, which says itself how far it is; returns whether it succeeded."""
    return subprocess.run(command, cwd=ROOT).returncode == 0


def run(what: str, *command: str) -> None:
    """Run a command silently. Raises Failed if it fails: with what the network did to pip, whose
    last words then blame a version, else with the last error that it reported.
    """
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        said = (done.stderr + done.stdout).strip().splitlines()
        if broken := [line for line in said if "connection broken by" in line]:
            error = re.split(r"['\"]\)+'", broken[-1])[0]
            why = re.split(r": |\] |['\"]", error)[-1].rstrip(".")
            raise Failed(f"the network failed as Python tried to {what} ({why}); {PROXY}")
        errors = [line for line in said if "error" in line.lower()]
        why = (errors or said or [f"status {done.returncode}"])[-1].strip().rstrip(".")
        raise Failed(f"Python could not {what} ({why})")


def main(arguments: list[str]) -> None:
    """Find what is in the way, then set up; exits with one sentence where either fails."""
    if os.geteuid() == 0 and os.environ.get(NO_ROOT):
        sys.exit(REFUSED)
    if sys.version_info < (3, 11):  # noqa: UP036 this file alone may meet an older one
        this = platform.python_version()
        sys.exit(f"The course needs Python 3.11 or newer, and this is {this}: make PYTHON=...")
    if importlib.util.find_spec("ensurepip") is None:
        install_it = "install it (on Debian and Ubuntu, apt install python3-venv)"
        sys.exit(f"This Python has no ensurepip: {install_it}.")
    if not os.access(ROOT, os.W_OK):
        sys.exit(f"{ROOT} cannot be written: copy the course to a folder where you may write.")
    parser = argparse.ArgumentParser(prog="python -m course.set_up")
    parser.add_argument("extra", nargs="?", default="")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--torch", metavar="VERSION", default="")
    asked = parser.parse_args(arguments)
    try:
        set_up(asked.extra, asked.torch, asked.cpu)
    except KeyboardInterrupt:
        sys.exit("The set-up was interrupted; the same command starts it again.")
    except Failed as failure:
        if shutil.disk_usage(ROOT).free < FULL:
            sys.exit(f"The disk of {ROOT} is full: make room, then the same command goes on.")
        sys.exit(f"The set-up did not finish: {failure}. The same command starts it again.")


if __name__ == "__main__":
    main(sys.argv[1:])
