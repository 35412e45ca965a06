"""The set-up: versions that agree, no addresses, and a Makefile that heals."""

import os
import re
import shutil
import subprocess
import sys
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import helpers
from course import doctor
from course.recording import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PINS = dict(
    line.split("==")
    for line in (ROOT / "constraints.txt").read_text().splitlines()
    if line and not line.startswith("#")
)


def test_the_tested_versions_are_what_the_course_asks_for():
    extras = PROJECT["optional-dependencies"]
    assert extras.keys() == {"test", "site", "bench"} and len(extras["bench"]) == 1
    wanted = [Requirement(text) for text in sum(extras.values(), PROJECT["dependencies"])]
    pins = {canonicalize_name(name): version for name, version in PINS.items()}
    for requirement in wanted:
        if requirement.name == PROJECT["name"]:
            continue  # an extra that brings another one
        assert pins[canonicalize_name(requirement.name)] in requirement.specifier
    assert pins["torch"] == "2.13.0"


def test_constraints_are_names_and_versions_only():
    assert all(re.fullmatch(r"[\w.-]+", name) and re.fullmatch(r"[\w.]+", version) for name, version in PINS.items())


@pytest.fixture
def checkout(tmp_path):
    """The Makefile in a folder of its own, with a python that only pretends to install."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    python = tmp_path / "python"
    python.write_text(
        f"""#!/bin/sh
echo "$*" >> {tmp_path}/calls
case "$*" in
  "-m venv"*) rm -rf .venv; mkdir -p .venv/bin; cp "$0" .venv/bin/python;;
  "-m pip"*) test ! -e {tmp_path}/offline;;
esac
"""
    )
    python.chmod(0o755)

    def make(target):
        environment = os.environ | {"PYTHON": str(python), "ARGS": "--no-browser --port 9999", "MAKEFLAGS": ""}
        run = subprocess.run(["make", target], cwd=tmp_path, env=environment, capture_output=True, text=True)
        calls = (tmp_path / "calls").read_text().splitlines()
        (tmp_path / "calls").write_text("")
        return run.returncode, [call for call in calls if call != "-c pass" and not call.startswith("-c import sys")]

    return tmp_path, make


def test_make_sets_up_once(checkout):
    _, make = checkout
    status, calls = make("test")
    assert status == 0 and [call.split()[1] for call in calls] == ["venv", "pip", "pip", "pytest"]
    assert calls[1].endswith("--editable .") and calls[2].endswith("--editable .[test]")
    assert make("test") == (0, ["-m pytest --no-browser --port 9999"])


def test_a_failed_set_up_heals_on_the_next_call(checkout):
    folder, make = checkout
    (folder / "offline").touch()
    assert make("lab")[0] != 0
    (folder / "offline").unlink()
    status, calls = make("lab")
    assert status == 0 and [call.split()[1] for call in calls] == ["venv", "pip", "course.lab"]
    assert calls[-1].endswith("--no-browser --port 9999")


@pytest.mark.parametrize("damage", ["python gone", "folder moved", "constraints changed"])
def test_a_stale_set_up_is_made_again(checkout, damage):
    folder, make = checkout
    make("test")
    if damage == "python gone":
        (folder / ".venv/bin/python").unlink()
    elif damage == "folder moved":
        (folder / ".venv/ready").write_text("/elsewhere\n")
    else:
        later = (folder / ".venv/ready").stat().st_mtime + 5
        os.utime(folder / "constraints.txt", (later, later))
    assert [call.split()[1] for call in make("test")[1]] == ["venv", "pip", "pip", "pytest"]


@pytest.mark.parametrize("browser", [None, "chromium", "google-chrome"])
def test_continuous_integration_installs_a_browser_where_there_is_none(tmp_path, browser):
    for name in filter(None, ["apt-get", "make", "id", browser]):
        (tmp_path / name).write_text(f"#!/bin/sh\necho {name} $* >> {tmp_path}/calls\necho 0\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "dirname").symlink_to(shutil.which("dirname"))
    subprocess.run([shutil.which("bash"), ROOT / ".ci" / "run"], env={"PATH": str(tmp_path)}, check=True)
    calls = (tmp_path / "calls").read_text().splitlines()
    installed = [call for call in calls if call.startswith("apt-get") and call.endswith(" chromium")]
    assert calls[-1] == "make test" and bool(installed) is (browser is None)


def test_lab_keeps_the_servers_token_and_localhost():
    files = [ROOT / "Makefile", ROOT / "course" / "lab.py", *(ROOT / "jupyter").rglob("*.json")]
    settings = "".join(file.read_text() for file in files)
    assert "jupyterlab" in settings and not re.search(r"token|password|\bip\b|allow", settings)


def test_doctor_says_what_this_machine_can_do():
    answer = subprocess.run([sys.executable, "-m", "course.doctor"], capture_output=True, text=True)
    assert answer.returncode == 0
    assert all(line.startswith(("[OK]   ", "[FAIL] ")) for line in answer.stdout.splitlines())
    assert re.search(r"^\[OK\]   %%gpu cells run (live on this GPU|as recorded)$", answer.stdout, re.MULTILINE)


def test_doctor_names_the_mend_and_fails_if_lessons_cannot_run(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(doctor.torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(doctor, "TRACES", tmp_path)
    assert doctor.main() == 1
    assert "[FAIL] %%gpu cells run not at all: find a GPU, or restore traces/ with git" in capsys.readouterr().out


def test_the_package_says_what_each_of_its_modules_is_for():
    modules = {path.stem for path in (ROOT / "helpers").iterdir()} - {"__init__", "__pycache__"}
    assert modules <= set(re.findall(r"\w+", helpers.__doc__))
