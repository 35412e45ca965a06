"""Give a lesson another name:  python -m course.commands.rename_lesson OLD_NAME NEW_NAME

Its notebooks, scenarios and recordings move, and every text and module that names it follows, but
for %%gpu cells: recordings are compared with those. Readers' copies and solved exercises follow.
"""

import argparse
import re
import sys
from functools import partial
from pathlib import Path

from course.commands.renumber import move_notebooks, stems, update_cells, update_texts
from course.lessons import lesson_file
from course.paths import ROOT, short
from course.recordings.cells import handed_on

NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)+")  # a verb and an object
FILES = (
    "exercises/scenarios/{}.py",
    "tests/exercises/answers/{}.py",
    "traces/**/{}.json",
    "traces/**/{}",
)
TEXTS = (
    "*.md",
    "*/README.md",
    "docs/*.*",
    "jupyter/*.json",
    "capturable/causes.json",
    "traces/works_on.json",
    "course/**/*.py",
    "exercises/**/*.py",
    "tests/**/*.py",
)


def rename(old: str, new: str, root: Path = ROOT) -> list[Path]:
    """Rename a lesson, and return the texts, modules and notebooks that named it.

    Raises LookupError if there is no lesson old, ValueError for a new name that is none, or taken.
    """
    stem = lesson_file(old, root / "notebooks").stem
    refuse(new, root)
    move_notebooks({old: f"{stem[:2]}_{new}"}, root)
    for path in [path for pattern in FILES for path in root.glob(pattern.format(old))]:
        path.rename(path.with_name(new + path.suffix))
    named = re.compile(rf"""(?:(?<=["'`/.])|(?<=\d_)|^){old}\b(?!\()""", re.MULTILINE)
    update = partial(named.sub, new)
    changed = update_cells(root, update, lambda code: handed_on(code) is None)
    return [*changed, *update_texts(root, TEXTS, update)]


def refuse(name: str, root: Path = ROOT) -> None:
    """Raise ValueError for a lesson's name that is none, or taken."""
    if not NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} is no name of a lesson: a verb and an object, such as share_memory_pools."
        )
    if name in stems(root):
        raise ValueError(f"There is a lesson {name} already: notebooks/{stems(root)[name]}.ipynb.")


def main(arguments: list[str] | None = None) -> int:
    """Rename a lesson and say what named it; return 1, after a sentence, after a mistake."""
    parser = argparse.ArgumentParser(prog="make rename-lesson", description=__doc__.splitlines()[0])
    parser.add_argument("old", help="the lesson's name without its number, such as choose_api")
    parser.add_argument("new", help="its new name")
    options = parser.parse_args(arguments)
    try:
        changed = rename(options.old, options.new)
    except (LookupError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{options.old} is {options.new} in {', '.join(str(short(path)) for path in changed)}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
