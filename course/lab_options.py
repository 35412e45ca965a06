"""What keeps JupyterLab from starting, found before anything is installed: no package is needed."""

from __future__ import annotations

import errno
import os
import shlex
import socket
import sys
import tempfile
from pathlib import Path

LOCAL = "localhost"
DEFAULT_PORT = 8888
LAST_PORT = 65535


def obstacle(options: list[str]) -> str:
    """What keeps JupyterLab from starting with these options: one sentence with the fix, or ""."""
    return _root(options) or _port(options) or _folders()


def notice(options: list[str]) -> str:
    """What does not keep it from starting, but should be known before: one sentence, or ""."""
    error = _refusal(options)
    if error and error.errno == errno.EADDRINUSE:
        taken = f"Port {_asked_port(options)} is in use"
        return f"{taken}: JupyterLab will take another one and name it in its last line."
    return ""


def restart_command(options: list[str]) -> str:
    """The command that starts JupyterLab with these options, as the reader would type it."""
    if "MAKELEVEL" not in os.environ:
        return shlex.join(["python", "-m", "course.commands.lab", *options])
    _, _, after = os.environ.get("MAKEFLAGS", "").partition("-- ")  # the variables
    given = shlex.split(after)
    variables = [word for word in given if "=" in word and not word.startswith("ARGS=")]
    return " ".join(["make lab", *map(shlex.quote, variables), f'ARGS="{shlex.join(options)}"'])


def value(options: list[str], name: str) -> str | None:
    """What options say for --name=value, --name value or --ServerApp.name=value; None without."""
    for option, following in zip(options, [*options[1:], ""], strict=True):
        key, equals, given = option.partition("=")
        if key in (f"--{name}", f"--ServerApp.{name}"):
            return given if equals else following
    return None


def _root(options):
    if os.geteuid() != 0 or any("allow" in option and "root" in option for option in options):
        return ""
    allowed = restart_command(["--allow-root", *options])
    refused = "JupyterLab does not start as root unless it is told to"
    return f"{refused}. On a machine that only you use: {allowed}"


def _asked_port(options):
    return value(options, "port") or str(DEFAULT_PORT)


def _port(options):
    port = _asked_port(options)
    if not port.isdecimal() or int(port) > LAST_PORT:
        return f"JupyterLab's --port must be a number from 0 to {LAST_PORT}, not {port}."
    error = _refusal(options)
    if error is None or (error.errno == errno.EADDRINUSE and value(options, "port-retries") != "0"):
        return ""
    where = f"port {port} of {value(options, 'ip') or LOCAL}"
    why = error.strerror.partition(" (while ")[0]  # which names port and address once more
    return f"JupyterLab cannot listen on {where} ({why}): give it another --port or --ip in ARGS."


def _refusal(options):
    """The error with which this machine refuses to listen where JupyterLab would, or None."""
    port, address = int(_asked_port(options)), value(options, "ip") or LOCAL
    refusals = []
    try:
        name = None if address == "*" else address
        found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        return error
    for family, _, _, _, where in found:
        try:
            socket.create_server(where[:2], family=family).close()
        except OSError as error:
            refusals.append(error)
    decisive = [error for error in refusals if error.errno in (errno.EADDRINUSE, errno.EACCES)]
    every = len(refusals) == len(found)  # one of several may be missing: ::1 where there is no IPv6
    return next(iter(decisive or (refusals if every else [])), None)


def _folders():
    for folder in jupyter_folders():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=str(folder)).close()
        except OSError as error:
            refused = f"JupyterLab cannot write to {folder} ({error.strerror})"
            return f"{refused}: set HOME to a folder of yours."
    return ""


def jupyter_folders() -> list[Path]:
    """Where JupyterLab writes settings and running servers, as jupyter_core.paths has it."""
    home = Path.home()
    share = Path(os.environ.get("XDG_DATA_HOME") or home / ".local/share")
    data = home / "Library/Jupyter" if sys.platform == "darwin" else share / "jupyter"
    data = Path(os.environ.get("JUPYTER_DATA_DIR") or data)
    config = Path(os.environ.get("JUPYTER_CONFIG_DIR") or home / ".jupyter")
    return [config, Path(os.environ.get("JUPYTER_RUNTIME_DIR") or data / "runtime")]
