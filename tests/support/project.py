"""What pyproject.toml and constraints.txt say, and what a set-up is made of."""

import os
import tomllib

from course.paths import ROOT

SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = SETTINGS["project"]
FOUND = SETTINGS["tool"]["setuptools"]["packages"]["find"]["include"]
PACKAGES = {pattern.rstrip("*") for pattern in FOUND}
PINS = dict(
    line.split("==")
    for line in (ROOT / "constraints.txt").read_text().splitlines()
    if line and not line.startswith("#")
)
SET_UP = ("course/__init__.py", "course/set_up.py")


def clean_environment():
    """This environment without what an outer make or a reader's settings would tell the
    inner one.
    """
    outer = "MAKELEVEL", "MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES"
    outer += "TORCH", "CPU", "ARGS", "UV_TORCH_BACKEND"
    return {name: value for name, value in os.environ.items() if name not in outer}
