"""Run the tests that a change since the last commit can break, in 20 s:  python -m tests.quick

A test can break if it imports what has changed, directly or through others, or names it; those of
a lesson, if its cells import it. The nearest run first, until their seconds in tests/seconds.json
fill the time; on a slower machine the time ends the run. What did not fit is named, and so is every
changed function that none of them has called. `make test` runs everything.
"""

import ast
import cProfile
import json
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from textwrap import fill

import grimp
import pytest

from course.files import changed_files
from course.lessons import unnumbered
from course.paths import ROOT
from course.recordings.statements import nested_lists_of
from tests.support.notebooks import LESSONS, code
from tests.support.project import SETTINGS
from tests.support.seconds import TABLE, row_of_test

ROOMS = SETTINGS["tool"]["importlinter"]["root_packages"]
ALWAYS = "tests/project/test_rooms.py"
SECONDS = 12  # of tests: before them Python imports torch and collects them
UNKNOWN = 5  # seconds of a file that is not in the table yet
SLOW = {"chromium", "site"}  # fixtures that start a browser, or build the site
OF_LESSONS = [  # what has its tests once for each lesson
    "tests/lessons/test_freshness.py",
    "tests/lessons/test_form.py",
    "tests/lessons/test_solutions.py",
    "tests/lessons/test_times.py",
    "tests/lessons/test_read.py",
    "tests/exercises/test_capture_exercises.py",
]
LATER = 2  # lessons come after the tests of what they import
EXAMPLE = "start_here"  # the lesson that stands for all, where all import what has changed
SMOKE = f"tests/lessons/test_solutions.py[{EXAMPLE}]"
IMPORT = re.compile(r"^\s*(?:from (\S+) import (.+)|import (\S+))", re.MULTILINE)
NAMES = {unnumbered(path.stem): path for path in LESSONS}


@cache
def imports() -> grimp.ImportGraph:
    """Which module of the project imports which."""
    return grimp.build_graph(*ROOMS, cache_dir=str(ROOT / ".import_linter_cache"))


@cache
def texts() -> dict[str, str]:
    """The source of every module and lesson, by its name."""
    files = [file for room in ROOMS for file in (ROOT / room).rglob("*.py")]
    modules = {module_of(file): file.read_text(encoding="utf-8") for file in files}
    return modules | {lesson: "\n".join(code(path)) for lesson, path in NAMES.items()}


@cache
def lessons_importing() -> dict[str, set[str]]:
    """The lessons whose cells import each module."""
    found: dict[str, set[str]] = {}
    for lesson in NAMES:
        for room, names, module in IMPORT.findall(texts()[lesson]):
            for name in [module or room, *(f"{room}.{name}" for name in names.split(", ") if room)]:
                found.setdefault(name, set()).add(lesson)
    return found


def module_of(file: Path) -> str:
    """helpers/timing.py -> helpers.timing."""
    name = ".".join((ROOT / file).relative_to(ROOT).with_suffix("").parts)
    return name.removesuffix(".__init__")


def users(name: str) -> set[str]:
    """The modules and lessons that import a module, or whose source names it or a file."""
    if name in NAMES:
        return set()
    is_file = "/" in name or name not in imports().modules
    named = Path(name).name if is_file else f'"{name.removesuffix(".__main__")}"'
    found = {user for user, text in texts().items() if named in text} - {name}
    if not is_file:
        found |= imports().find_modules_that_directly_import(name)
    last = name.rpartition(".")[2]
    by_name = {last} & NAMES.keys()  # scenarios and answers are looked up by their lesson
    return found | by_name | lessons_importing().get(name, set())


def reached(file: str) -> dict[str, int]:
    """The modules and lessons that a change of a file can break, and how far they are from it."""
    lesson = unnumbered(Path(file).stem)
    first = {module_of(Path(file)) if file.endswith(".py") else file}
    wave = first | ({lesson} & NAMES.keys())
    found: dict[str, int] = {}
    distance = 0
    while wave:
        found |= dict.fromkeys(wave, distance)
        wave = {user for name in wave for user in users(name)} - found.keys()
        distance += 1
    return found


def units(files: list[str]) -> dict[str, int]:
    """The rows of tests/seconds.json that changed files can break, and how far they are from it."""
    found = {ALWAYS: 0}
    for file in files:
        for name, distance in reached(file).items():
            later = LATER if name in NAMES and distance else 0
            for row in rows_of(name):
                found[row] = min(distance + later, found.get(row, distance + later))
    if SMOKE in found:
        found[SMOKE] = 0
    return found


def rows_of(name: str) -> Iterator[str]:
    """The rows of a lesson, or of a module of tests; none of another module."""
    if name in NAMES:
        yield from (f"{file}[{name}]" for file in OF_LESSONS)
    elif name.startswith("tests.") and name.rpartition(".")[2].startswith("test_"):
        file = f"{name.replace('.', '/')}.py"
        yield f"{file}[{EXAMPLE}]" if file in OF_LESSONS else file


def selected(found: dict[str, int]) -> tuple[list[str], list[str]]:
    """What fits into the time, the nearest first, and what does not."""
    table = json.loads(TABLE.read_text(encoding="utf-8"))
    seconds = {row: table.get(row, UNKNOWN) for row in found}
    fits, left = [], []
    for row in sorted(found, key=lambda row: (found[row], seconds[row])):
        room = sum(seconds[other] for other in fits) + seconds[row] <= SECONDS
        (fits if room else left).append(row)
    return fits, left


def by_file(rows: list[str]) -> list[str]:
    """The files of these rows, each with how many lessons it is about."""
    lessons = Counter(row.partition("[")[0] for row in rows)
    return [
        f"{file} ({count} lessons)" if file in OF_LESSONS else file
        for file, count in sorted(lessons.items())
    ]


class Only:
    """A plugin of pytest: the tests of these rows, until the time is over; what it left out."""

    def __init__(self, rows: list[str]) -> None:
        self.rows = rows
        self.left: list[str] = []

    @pytest.hookimpl(trylast=True)  # -m and -k have chosen
    def pytest_collection_modifyitems(self, config, items):
        others = [
            item
            for item in items
            if "[" in row_of_test(item) and row_of_test(item) not in self.rows
        ]
        slow = [item for item in items if SLOW & set(item.fixturenames)]
        self.left += map(row_of_test, slow)
        config.hook.pytest_deselected(items=others + slow)
        items[:] = [item for item in items if item not in others + slow]

    def pytest_collection_finish(self):
        self.end = time.monotonic() + SECONDS

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item):
        if time.monotonic() < self.end:
            return None  # it runs
        self.left.append(row_of_test(item))
        return True


def functions(source: str) -> dict[str, tuple[int, str]]:
    """The functions and methods of a module: where each begins, and its text."""
    tree = ast.parse(source)
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    bodies = [("", tree.body), *((f"{node.name}.", node.body) for node in classes)]
    return {
        prefix + node.name: (
            min([node, *node.decorator_list], key=_line).lineno,
            nested_lists_of(node),
        )
        for prefix, body in bodies
        for node in body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def _line(node: ast.stmt | ast.expr) -> int:
    return node.lineno


def uncalled(files: list[str], calls: cProfile.Profile) -> list[str]:
    """The changed functions that were not called, and changed modules that were not imported."""
    imported = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    codes = [entry.code for entry in calls.getstats() if not isinstance(entry.code, str)]
    called = {(one.co_filename, one.co_firstlineno) for one in codes}
    found = []
    for file in (file for file in files if file.endswith(".py") and (ROOT / file).exists()):
        before = subprocess.run(["git", "show", f"HEAD:{file}"], cwd=ROOT, capture_output=True)
        known = functions(before.stdout.decode())
        now = functions((ROOT / file).read_text(encoding="utf-8"))
        if str(ROOT / file) not in imported:
            found.append(file)
            continue
        found += [
            f"{name} in {file}"
            for name, (line, text) in now.items()
            if text != known.get(name, (0, ""))[1] and (str(ROOT / file), line) not in called
        ]
    return found


def main() -> int:
    """Run them, say what was left out, and return pytest's exit status."""
    files = changed_files()
    fits, left = selected(units(files))
    paths = dict.fromkeys(row.partition("[")[0] for row in fits)
    options = ["-q", "-p", "no:xdist", "-m", "not weekly", *sys.argv[1:]]
    calls = cProfile.Profile(builtins=False)
    only = Only(fits)
    status = calls.runcall(pytest.main, [*paths, *options], plugins=[only])
    if left := list(dict.fromkeys([*left, *only.left])):
        files_left = ", ".join(by_file(left))
        print(fill(f"Not run, or not whole, for they do not fit into 20 s: {files_left}.", 100))
    if missed := uncalled(files, calls):
        print(fill(f"No test of this run calls what has changed: {', '.join(missed)}.", 100))
    if left or missed:
        print("`make test` runs everything.")
    return status


if __name__ == "__main__":
    sys.exit(main())
