"""The set-up: versions that agree, no addresses, and a Makefile that heals."""

import fcntl
import os
import re
import shlex
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from course import machine, set_up
from course.commands import doctor
from course.paths import ROOT
from tests.support.processes import run_python
from tests.support.project import PINS, PROJECT, SET_UP, clean_environment


def test_the_tested_versions_are_what_the_course_asks_for():
    extras = dict(PROJECT["optional-dependencies"])
    for unpinned in ("te", "megatron"):  # built against one torch, which is not the pinned one
        del extras[unpinned]
    wanted = [Requirement(text) for text in sum(extras.values(), PROJECT["dependencies"])]
    pins = {canonicalize_name(name): version for name, version in PINS.items()}
    for requirement in wanted:
        if requirement.name == PROJECT["name"]:
            continue  # an extra that brings another one
        assert pins[canonicalize_name(requirement.name)] in requirement.specifier


# it installs nothing; $here is its folder, $python this Python
PRETENDS = """
echo "$*" >> "$here/calls"
case "$*" in
  "-m course.set_up"*) shift 2
    exec env PYTHONPATH="$here" "$python" "$here/as_if.py" "$0" "$0" "$@";;
  "-m venv"*) rm -rf "$4"; mkdir -p "$4/bin"; cp "$0" "$4/bin/python";;
  "-m uv"*)
    case "$*" in *--torch-backend*) failing=no_torch_index;; *) failing=offline;; esac
    test ! -e "$here/$failing" || { echo "error: Request failed
  cause: no such host" >&2; exit 2; };;
esac
"""
# run the set-up as if another program were the interpreter
AS_IF = """
import runpy, sys
sys.executable, *sys.argv = sys.argv[1:]
runpy.run_module("course.set_up", run_name="__main__")
"""
OPTIONS = "--no-browser --port 0"


@pytest.fixture
def checkout(tmp_path):
    """The Makefile in a folder of its own, with a python that only pretends to install."""
    (tmp_path / "course").mkdir()
    for name in ("Makefile", "pyproject.toml", "constraints.txt", *SET_UP):
        shutil.copy(ROOT / name, tmp_path / name)
    python = tmp_path / "python"
    (tmp_path / "as_if.py").write_text(AS_IF)
    names = f"here={shlex.quote(str(tmp_path))} python={shlex.quote(sys.executable)}"
    python.write_text(f"#!/bin/sh\n{names}\n{PRETENDS}")
    python.chmod(0o755)
    (tmp_path / "calls").touch()

    def make(target, options=OPTIONS, **variables):
        before = len((tmp_path / "calls").read_text().splitlines())
        command = ["make", target, "PYTHON=./python", f"ARGS={options}"]
        command += [f"{name}={value}" for name, value in variables.items()]
        run = subprocess.run(
            command, cwd=tmp_path, env=clean_environment(), capture_output=True, text=True
        )
        calls = (tmp_path / "calls").read_text().splitlines()[before:]
        make.said += run.stdout + run.stderr
        own = [call for call in calls if call != "-c pass" and "course.set_up" not in call]
        return run.returncode, own

    make.said = ""
    return tmp_path, make


def steps(calls):
    return [call.split()[1] for call in calls]


def test_make_sets_up_once_and_another_torch_in_an_environment_of_its_own(checkout):
    folder, make = checkout
    status, calls = make("lab")
    assert status == 0 and steps(calls) == ["venv", "pip", "uv", "course.commands.lab"], make.said
    assert calls[1].endswith(f" uv=={PINS['uv']}")
    pinned = f"--constraint {folder}/.venv/constraints.txt --editable ."
    assert calls[2].partition(" --torch-backend=")[0].endswith(pinned)
    said = r"Setting up the course in \.venv, once\.\nuv downloads .*: torch for .*, about \d.* GB"
    assert re.search(said, make.said)
    assert make("lab") == (0, [f"-m course.commands.lab {OPTIONS}"])
    status, calls = make("test")
    assert status == 0 and steps(calls) == ["uv", "pytest"] and " --editable .[test]" in calls[0]
    status, (call,) = make("test")
    assert status == 0 and call.startswith("-m pytest ") and call.endswith(f" {OPTIONS}")
    assert steps(make("works-on")[1]) == ["uv", "course.commands.works_on"]
    assert steps(make("test", TORCH="2.11.0")[1]) == ["venv", "pip", "uv", "pytest"]
    pins = (folder / ".venv-2.11.0/constraints.txt").read_text().splitlines()
    assert "torch==2.11.0" in pins and len(pins) == len(PINS) - 1
    assert steps(make("test", TORCH="2.11.0")[1]) == ["pytest"]


def test_a_failed_set_up_heals_on_the_next_call_from_the_default_index(checkout):
    folder, make = checkout
    (folder / "no_torch_index").touch()
    (folder / "offline").touch()
    assert make("lab")[0] != 0
    assert re.search(
        r"no such host\nThe set-up did not finish: uv could not install the packages "
        r"and has said why; .*HTTPS_PROXY.*\. The same command starts it again\.\n",
        make.said,
    )
    (folder / "offline").unlink()
    status, calls = make("lab")
    assert status == 0 and steps(calls) == ["venv", "pip", "uv", "uv", "course.commands.lab"]
    assert "--torch-backend" in calls[2] and "--torch-backend" not in calls[3]
    assert "did not help: taking torch for CUDA, about 3.2 GB in all" in make.said
    (folder / "no_torch_index").unlink()
    assert "--torch-backend" not in make("test")[1][0], "torchvision comes from there too"


@pytest.mark.parametrize(
    ("there", "cpu", "backend"), [(False, False, "cpu"), (True, False, "auto"), (True, True, "cpu")]
)
def test_the_build_of_torch_follows_the_driver(monkeypatch, tmp_path, there, cpu, backend):
    monkeypatch.delenv("UV_TORCH_BACKEND", raising=False)
    monkeypatch.setattr(set_up.platform, "system", lambda: "Linux")
    monkeypatch.setattr(set_up.shutil, "which", lambda _: None)
    monkeypatch.setattr(set_up, "DRIVER", [str(tmp_path / "version")])
    if there:
        (tmp_path / "version").touch()
    assert set_up.torch_backend(cpu) == backend
    monkeypatch.setenv("UV_TORCH_BACKEND", "cu130")
    assert set_up.torch_backend(cpu) == "", "uv reads it by itself"


def test_what_the_network_did_is_said_before_what_pip_makes_of_it(tmp_path):
    pip = tmp_path / "pip"
    pip.write_text(
        "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError('<x at "
        "0x7f>: Failed to establish a new connection: [Errno -3] Temporary failure in name "
        "resolution')': /simple/uv/\nERROR: No matching distribution found for uv==1\n"
    )
    said = r"tried to install uv \(Temporary failure in name resolution\); a proxy"
    with pytest.raises(set_up.Failed, match=said):
        set_up.run("install uv", "sh", "-c", f"cat {shlex.quote(str(pip))} >&2; exit 1")
    with pytest.raises(set_up.Failed, match=r"Python could not see \(error: no such thing\)"):
        set_up.run("see", "sh", "-c", "echo error: no such thing; exit 1")


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
        for stamp in ("ready", "test"):
            os.utime(folder / ".venv" / stamp, (earlier, earlier))
    assert steps(make("test")[1]) == ["venv", "pip", "uv", "pytest"]


def test_of_two_set_ups_at_once_one_waits_and_finds_it_done(checkout):
    folder, _ = checkout
    command = [folder / "python", "-m", "course.set_up"]
    with (folder / "pyproject.toml").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        options = {"cwd": folder, "stdout": subprocess.PIPE, "text": True}
        both = [subprocess.Popen(command, **options) for _ in range(2)]
        said = [process.stdout.readline() for process in both]
    assert said == ["Another set-up of this folder is under way: waiting for it.\n"] * 2
    said = "".join(process.communicate()[0] for process in both)
    assert [process.returncode for process in both] == [0, 0]
    assert said.count("Setting up the course") == 1


def test_without_a_python_make_says_so(checkout):
    _, make = checkout
    assert make("lab", PYTHON="no-such-python")[0] != 0
    assert "There is no no-such-python: install Python 3.11 or newer, or name it" in make.said


def failing(*_):
    raise set_up.Failed("Python could not make an environment")


def interrupted(*_):
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("name", "instead", "said"),
    [
        ("sys.version_info", (3, 10), r"needs Python 3\.11 or newer, and this is .*: make PYTHON="),
        ("importlib.util.find_spec", lambda _: None, "has no ensurepip: .*python3-venv"),
        ("os.access", lambda *_: False, "cannot be written: copy the course to"),
        ("shutil.disk_usage", lambda _: SimpleNamespace(free=0), "is full: make room"),
        ("course.set_up.set_up", interrupted, "was interrupted; the same command starts it again"),
        ("os.geteuid", lambda: 0, "You are root"),
    ],
)
def test_what_is_in_the_way_is_one_sentence(monkeypatch, name, instead, said):
    monkeypatch.setattr(set_up, "set_up", failing)
    monkeypatch.setenv(set_up.NO_ROOT, "1")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setattr(name, instead)
    with pytest.raises(SystemExit, match=said):
        set_up.main([])


def test_what_runs_before_the_set_up_imports_the_standard_library_alone():
    code = "import course.set_up, sys; print(*sys.modules)"
    loaded = run_python("-S", "-E", "-c", code).stdout.split()
    found = {name.partition(".")[0] for name in loaded} - sys.stdlib_module_names
    assert found == {"__main__", "course"}


def test_lab_keeps_the_servers_token_and_localhost():
    of_jupyter = (ROOT / "jupyter").rglob("*.json")
    files = [ROOT / "Makefile", ROOT / "course/commands/lab.py", *of_jupyter]
    settings = "".join(file.read_text() for file in files).replace("--ip=localhost", "")
    assert "jupyterlab" in settings
    assert not re.search(r"token|password|\bip\b|allow_|allow(?!.*root)", settings)


@pytest.mark.parametrize(
    ("driver", "cuda", "missing"),
    [
        (None, "13.0", "install NVIDIA's driver, or pass the GPU into the container (--gpus all)"),
        ("580", None, "(580), but this torch is built for the CPU only: run `make clean`, then"),
        ("580", "13.0", "driver 580 and CUDA 13.0 are there: look at CUDA_VISIBLE_DEVICES"),
    ],
)
def test_without_a_gpu_doctor_says_what_one_would_bring(
    monkeypatch, capsys, tmp_path, driver, cuda, missing
):
    monkeypatch.setattr(doctor.torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(machine, "driver_version", lambda: driver)
    monkeypatch.setattr(doctor.torch.version, "cuda", cuda)
    assert doctor.main() == 0
    lines = capsys.readouterr().out.splitlines()
    assert "[OK]   %%gpu cells run as recorded" in lines
    (gain,) = [line for line in lines if not line.startswith("[OK]   ")]
    assert gain.startswith("[--]   no GPU: lessons play recordings; with one they run live.")
    assert missing in gain
    monkeypatch.setattr(doctor, "TRACES", tmp_path)
    assert doctor.main() == 1
    sentence = "[FAIL] %%gpu cells run not at all: find a GPU, or restore traces/ with git"
    assert sentence in capsys.readouterr().out
