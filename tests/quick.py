"""Run the tests of what has changed since the last commit, in seconds:  python -m tests.quick

They run in one process, and only their files are collected. A changed module is tested by the file
named after it, a changed lesson by the tests of all lessons, under its name. `make test` runs
everything.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from course.paths import ROOT

ALWAYS = ["tests/project/test_rooms.py"]
LESSONS = ["tests/lessons/test_form.py", "tests/lessons/test_freshness.py"]
LESSONS += ["tests/lessons/test_solutions.py", "tests/lessons/test_times.py"]
SMOKE = {  # the two tools have a thousand tests: these files stand for them
    "capturable": ["tests/capturable/test_preflight.py"],
    "cpu_graph": ["tests/cpu_graph/test_private_names.py"],
}


class OnlyThese:
    """A plugin of pytest: of the tests that come once for each lesson, those of these lessons."""

    def __init__(self, lessons: set[str]) -> None:
        self.lessons = lessons

    def pytest_collection_modifyitems(self, config, items):
        others = [item for item in items if self._is_of_another_lesson(item)]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item not in others]

    def _is_of_another_lesson(self, item):
        path = item.callspec.params.get("path") if hasattr(item, "callspec") else None
        return isinstance(path, Path) and path.stem.partition("_")[2] not in self.lessons


def changed() -> list[Path]:
    """What differs from the last commit, files that git does not know yet among them."""
    words = ["git", "status", "--porcelain", "--untracked-files=all", "--no-renames"]
    lines = subprocess.check_output(words, cwd=ROOT, text=True).splitlines()
    return [Path(line[3:].strip('"')) for line in lines]


def selected(paths: list[Path]) -> tuple[list[str], set[str]]:
    """The files of tests for changed paths, and the names of the changed lessons."""
    files = list(ALWAYS)
    lessons = set()
    for path in paths:
        room = path.parts[0]
        if room == "notebooks":
            lessons.add(path.stem.partition("_")[2])
            files += LESSONS
        elif room == "tests" and path.name.startswith("test_"):
            files.append(str(path))
        else:
            files += SMOKE.get(room, [])
            files += [str(one.relative_to(ROOT)) for one in _tests_of(room, path)]
    return [file for file in dict.fromkeys(files) if (ROOT / file).exists()], lessons


def _tests_of(room, path):
    return (ROOT / "tests" / room).rglob(f"test_{path.stem}.py") if path.suffix == ".py" else ()


def main() -> int:
    """Run them, and return pytest's exit status."""
    files, lessons = selected(changed())
    options = ["-q", "-m", "not weekly and not browser", *sys.argv[1:]]
    return pytest.main([*files, *options], plugins=[OnlyThese(lessons)])


if __name__ == "__main__":
    sys.exit(main())
