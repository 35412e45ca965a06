"""The seconds that tests take, for `make quick`:  make test ARGS="-p tests.support.seconds"

A plugin of pytest. It writes tests/seconds.json: a row for each file of tests that has run; of
tests that come once for each lesson, a row for each lesson. Rows of other files stay.
"""

import json
from collections import Counter
from pathlib import Path

from course.lessons import unnumbered
from course.paths import NOTEBOOKS, ROOT, TRACES

OF_LESSONS = {NOTEBOOKS, TRACES, ROOT / "read"}  # folders of what belongs to a lesson
TABLE = ROOT / "tests/seconds.json"
taken: Counter[str] = Counter()


def row_of_test(item):
    """The row of a test: its file; of a lesson or its recording, with the name in brackets."""
    file = item.path.relative_to(ROOT).as_posix()
    path = item.callspec.params.get("path") if hasattr(item, "callspec") else None
    of_lesson = isinstance(path, Path) and OF_LESSONS & set(path.parents)
    return f"{file}[{unnumbered(path.stem)}]" if of_lesson else file


def pytest_itemcollected(item):
    item.user_properties.append(("unit", row_of_test(item)))


def pytest_runtest_logreport(report):
    taken[dict(report.user_properties)["unit"]] += report.duration


def pytest_sessionfinish(session):
    if not hasattr(session.config, "workerinput"):  # a worker's reports come to the controller
        known = json.loads(TABLE.read_text(encoding="utf-8"))
        there = {row: known[row] for row in known if (ROOT / row.partition("[")[0]).exists()}
        rows = there | {row: round(seconds, 1) for row, seconds in taken.items()}
        table = json.dumps(dict(sorted(rows.items())), indent=1)
        TABLE.write_text(f"{table}\n", encoding="utf-8")
