"""What keeps JupyterLab from starting is found before anything
is installed, and its advice is a command that works.
"""

import os
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from jupyter_core import paths

from course import lab_address, lab_options


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A home of its own, and a process that make did not start."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("HOME", str(tmp_path))
    jupyters = "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "XDG_DATA_HOME"
    for name in (*jupyters, "MAKELEVEL", "MAKEFLAGS", "SSH_CONNECTION"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def as_root(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)


@pytest.fixture
def as_user(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)


def test_a_user_is_let_in(as_user):
    assert lab_options.obstacle(["--port=0"]) == lab_options.notice(["--port=0"]) == ""


@pytest.mark.parametrize("allowed", ["--allow-root", "--ServerApp.allow_root=True"])
def test_root_is_let_in_when_told(as_root, allowed):
    assert lab_options.obstacle([allowed, "--port=0"]) == ""


def test_roots_advice_keeps_the_options_that_were_given(as_root):
    options = ["--no-browser", "--port", "0", "--LabApp.app_name=my lab"]
    said = lab_options.obstacle(options)
    assert said.startswith(
        "JupyterLab does not start as root unless it is told to. On a machine that only you use: "
    )
    command = said.partition("only you use: ")[2]
    assert shlex.split(command) == ["python", "-m", "course.commands.lab", "--allow-root", *options]


def test_under_make_the_advice_is_the_make_command_with_its_variables(tmp_path):
    """The advice is run as it stands, and gives the
    same options and variables to make once more.
    """
    (tmp_path / "Makefile").write_text(
        f"lab:\n\t@PYTHONPATH={Path.cwd()} {sys.executable} -c "
        "'import sys; from course.lab_options import restart_command; print(restart_command(sys.argv[1:]))' $(ARGS)\n"
    )
    run = {"cwd": tmp_path, "capture_output": True, "text": True, "check": True}
    first = [
        "make",
        "--no-print-directory",
        "lab",
        "CPU=1",
        "ARGS=--port 9 --LabApp.app_name='my lab'",
    ]
    said = subprocess.run(first, **run).stdout.strip()
    assert shlex.split(said) == ["make", "lab", "CPU=1", "ARGS=--port 9 '--LabApp.app_name=my lab'"]
    assert subprocess.run(said, shell=True, **run).stdout.strip() == said


@pytest.mark.parametrize("port", ["x", "65536", "-1"])
def test_a_port_that_is_none_is_refused(as_user, port):
    said = f"JupyterLab's --port must be a number from 0 to 65535, not {port}."
    assert (
        lab_options.obstacle([f"--port={port}"]) == lab_options.obstacle(["--port", port]) == said
    )


def test_an_address_of_another_machine_is_refused(as_user):
    said = lab_options.obstacle(
        ["--ip=192.0.2.1", "--port=0"]
    )  # kept for documentation: nobody has it
    assert re.fullmatch(
        r"JupyterLab cannot listen on port 0 of 192\.0\.2\.1 \(.+\): give .* --ip in ARGS\.", said
    )


def test_a_port_that_is_not_allowed_is_refused(as_user, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket, "create_server", refuse)
    assert "port 80 of localhost (Permission denied)" in lab_options.obstacle(
        ["--ServerApp.port=80"]
    )


def test_a_taken_port_is_told_and_stops_only_what_may_take_no_other(as_user):
    with socket.create_server(("localhost", 0)) as taken:
        port = taken.getsockname()[1]
        options = [f"--port={port}"]
        assert lab_options.obstacle(options) == ""
        assert lab_options.notice(options).startswith(
            f"Port {port} is in use: JupyterLab will take another one"
        )
        strict = lab_options.obstacle([*options, "--port-retries=0"])
        assert strict.startswith(
            f"JupyterLab cannot listen on port {port} of localhost (Address already in use)"
        )
    assert lab_options.notice(options) == ""


def test_a_folder_that_cannot_be_written_is_one_sentence(as_user, home, monkeypatch):
    monkeypatch.setenv("HOME", str(home / "file"))
    said = lab_options.obstacle(["--port=0"])
    assert re.fullmatch(
        r"JupyterLab cannot write to .*file/.* \(Not a directory\): set HOME to .* yours\.", said
    )


@pytest.mark.parametrize(
    "names",
    [[], ["JUPYTER_CONFIG_DIR"], ["JUPYTER_DATA_DIR"], ["JUPYTER_RUNTIME_DIR"], ["XDG_DATA_HOME"]],
)
def test_the_folders_are_those_that_jupyter_takes(monkeypatch, names):
    for name in names:
        monkeypatch.setenv(name, "/elsewhere")
    assert lab_options.jupyter_folders() == [
        Path(paths.jupyter_config_dir()),
        Path(paths.jupyter_runtime_dir()),
    ]


def test_readers_who_came_by_ssh_are_told_the_way_to_the_port(monkeypatch):
    monkeypatch.setenv("SSH_CONNECTION", "192.0.2.2 50000 192.0.2.1 22")
    assert (
        lab_address.said(SERVER)[:-1] == lab_address.tunnel(9999)
        and len(lab_address.tunnel(9999)) == 3
    )
    assert "ssh -L 9999:localhost:9999" in lab_address.tunnel(9999)[1]


SERVER = SimpleNamespace(
    ip="localhost", port=9999, public_url="http://localhost:9999/", local_url="http://127.0.0.1/"
)


@pytest.mark.parametrize(
    ("ip", "address"), [("localhost", SERVER.public_url), ("0.0.0.0", SERVER.local_url)]
)
def test_the_last_line_is_the_address_that_a_browser_here_can_open(ip, address):
    assert lab_address.said(SimpleNamespace(**{**vars(SERVER), "ip": ip})) == [
        f"Ready: open {address}"
    ]
