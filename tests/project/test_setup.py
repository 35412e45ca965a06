"""The set-up: versions that agree, no addresses, and a Makefile that heals."""

import fcntl
import os
import re
import shutil
import subprocess
import sys

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from course import doctor
from course.notebooks import ROOT
from tests.support.project import PINS, PROJECT


def test_the_tested_versions_are_what_the_course_asks_for():
    extras = dict(PROJECT["optional-dependencies"])
    for unpinned in ("te", "megatron"):  # built against one torch, which is not the pinned one
        assert len(extras.pop(unpinned)) == 1
    assert extras.keys() == {"test", "site", "lm", "bench", "works-on"}
    wanted = [Requirement(text) for text in sum(extras.values(), PROJECT["dependencies"])]
    pins = {canonicalize_name(name): version for name, version in PINS.items()}
    for requirement in wanted:
        if requirement.name == PROJECT["name"]:
            continue  # an extra that brings another one
        assert pins[canonicalize_name(requirement.name)] in requirement.specifier
    assert pins["torch"] == "2.15.0"


def test_constraints_are_names_and_versions_only():
    assert all(re.fullmatch(r"[\w.-]+", name) and re.fullmatch(r"[\w.]+", version) for name, version in PINS.items())


# run a script as if another program were the interpreter
AS_IF = 'import sys, runpy; sys.executable, *sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name="__main__")'


@pytest.fixture
def checkout(tmp_path):
    """The Makefile in a folder of its own, with a python that only pretends to install."""
    (tmp_path / "course").mkdir()
    for name in ("Makefile", "pyproject.toml", "constraints.txt", "course/set_up.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    python = tmp_path / "python"
    python.write_text(
        f"""#!/bin/sh
echo "$*" >> {tmp_path}/calls
case "$*" in
  "course/set_up.py"*) exec {sys.executable} -c '{AS_IF}' "$0" "$@";;
  "-m venv"*) rm -rf .venv; mkdir -p .venv/bin; cp "$0" .venv/bin/python;;
  "-m pip"*) test ! -e {tmp_path}/offline;;
esac
"""
    )
    python.chmod(0o755)

    (tmp_path / "calls").touch()

    def make(target):
        before = len((tmp_path / "calls").read_text().splitlines())
        environment = os.environ | {"PYTHON": str(python), "ARGS": "--no-browser --port 9999", "MAKEFLAGS": ""}
        run = subprocess.run(["make", target], cwd=tmp_path, env=environment, capture_output=True, text=True)
        calls = (tmp_path / "calls").read_text().splitlines()[before:]
        make.said += run.stdout + run.stderr
        return run.returncode, [call for call in calls if call != "-c pass" and not call.startswith("course/set_up.py")]

    make.said = ""
    return tmp_path, make


def test_make_sets_up_once(checkout):
    _, make = checkout
    status, calls = make("test")
    assert status == 0 and [call.split()[1] for call in calls] == ["venv", "pip", "pip", "pytest"], make.said
    assert calls[1].endswith("--editable .") and calls[2].endswith("--editable .[test]")
    assert re.search(r"Setting up the course in \.venv, once\. pip downloads .*: about \d\.\d GB", make.said)
    assert not any("--quiet" in call for call in calls), "pip shows its progress"
    assert make("test") == (0, ["-m pytest --no-browser --port 9999"])


def test_a_failed_set_up_heals_on_the_next_call(checkout):
    folder, make = checkout
    (folder / "offline").touch()
    assert make("lab")[0] != 0
    assert "The set-up did not finish; the same command starts it again." in make.said
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
        earlier = (folder / "constraints.txt").stat().st_mtime - 5
        os.utime(folder / ".venv/ready", (earlier, earlier))
    assert [call.split()[1] for call in make("test")[1]] == ["venv", "pip", "pip", "pytest"]


def test_of_two_set_ups_at_once_one_waits_and_finds_it_done(checkout):
    folder, _ = checkout
    command = [folder / "python", "course/set_up.py"]
    with (folder / "pyproject.toml").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        both = [subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) for _ in range(2)]
        said = [process.stdout.readline() for process in both]
    assert said == ["Another set-up of this folder is under way: waiting for it.\n"] * 2
    said = "".join(process.communicate()[0] for process in both)
    assert [process.returncode for process in both] == [0, 0] and said.count("Setting up the course") == 1


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
    assert "jupyterlab" in settings and not re.search(r"token|password|\bip\b|allow_|allow(?!.*root)", settings)


def test_doctor_says_what_this_machine_can_do():
    answer = subprocess.run([sys.executable, "-m", "course.doctor"], capture_output=True, text=True)
    assert answer.returncode == 0
    assert all(line.startswith(("[OK]   ", "[--]   ")) for line in answer.stdout.splitlines())
    assert re.search(r"^\[OK\]   %%gpu cells run (live on this GPU|as recorded)$", answer.stdout, re.MULTILINE)


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(doctor.torch.cuda, "is_available", lambda: False)


@pytest.mark.parametrize(
    ("driver", "cuda", "missing"),
    [
        (None, "13.0", "install NVIDIA's driver, or pass the GPU into the container (--gpus all)"),
        ("580", None, "the driver is there (580), but this torch is built for the CPU only"),
        ("580", "13.0", "driver 580 and CUDA 13.0 are there: look at CUDA_VISIBLE_DEVICES"),
    ],
)
def test_without_a_gpu_doctor_says_what_one_would_bring(no_gpu, monkeypatch, capsys, driver, cuda, missing):
    monkeypatch.setattr(doctor, "driver_version", lambda: driver)
    monkeypatch.setattr(doctor.torch.version, "cuda", cuda)
    assert doctor.main() == 0
    (gain,) = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("[OK]")]
    assert gain.startswith("[--]   no GPU: lessons play recordings; with one they run live.") and missing in gain


def test_doctor_names_the_fix_and_fails_if_lessons_cannot_run(no_gpu, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(doctor, "TRACES", tmp_path)
    assert doctor.main() == 1
    assert "[FAIL] %%gpu cells run not at all: find a GPU, or restore traces/ with git" in capsys.readouterr().out
