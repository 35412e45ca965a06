"""What pyproject.toml and constraints.txt say."""

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
