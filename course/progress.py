"""Which exercises are solved:  python -m course.progress

A solved exercise is an empty file my_lessons/.progress/<lesson>/<exercise>: nothing to damage, and
nothing leaves the machine. Only notebooks of the learner's copy leave such marks, so tests and
recordings do not.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from course.files import printed
from course.paths import MY_LESSONS, NOTEBOOKS, lesson_name
from course.recordings.cells import checked

OVERVIEW = "start_here"  # the lesson that shows the whole course's progress


def mark(lesson: str, exercise: str) -> str:
    """Note that an exercise is solved; returns "", or a sentence if the disk refuses the mark."""
    if not _in_copy():
        return ""
    try:
        (MY_LESSONS / ".progress" / lesson).mkdir(parents=True, exist_ok=True)
        (MY_LESSONS / ".progress" / lesson / exercise).touch()
    except OSError as error:
        return f" It could not be noted in your progress: {error.strerror}."
    return ""


def progress() -> Iterator[tuple[str, dict[str, bool]]]:
    """Yield for each lesson: its name, and a dict of exercise -> solved?, both in reading order."""
    asked = {lesson_name(path): exercises(path) for path in sorted(NOTEBOOKS.glob("*.ipynb"))}
    marks = {(path.parent.name, path.name) for path in (MY_LESSONS / ".progress").glob("*/*")}
    moved = {
        exercise for lesson, exercise in marks if exercise not in asked.get(lesson, [])
    }  # out of its old lesson
    for lesson in asked:
        yield (
            lesson,
            {
                exercise: (lesson, exercise) in marks or exercise in moved
                for exercise in asked[lesson]
            },
        )


def exercises(path: Path) -> list[str]:
    """The exercises that a lesson checks, in reading order."""
    cells = json.loads(path.read_bytes())["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    return list(dict.fromkeys(exercise for source in sources for _, exercise in checked(source)))


def note(lesson: str) -> str:
    """Markdown on the solved exercises: the lesson's own, in Start here one line and every lesson's
    folded under it.

    "" outside the copy, and while none is solved.
    """
    if not _in_copy():
        return ""
    solved = dict(progress())
    marks = [done for exercises in solved.values() for done in exercises.values()]
    if not any(solved.get(lesson, {}).values() if lesson != OVERVIEW else marks):
        return ""  # nothing to count yet
    if lesson != OVERVIEW:
        return f"\n\nSolved exercises in {line(lesson, solved[lesson], '`')}"
    lines = "".join(f"\n- {line(name, solved[name], '`')}" for name in solved)
    told = f"Solved exercises: {sum(marks)} of {len(marks)}"
    return f"\n\n<details><summary>{told}</summary>\n\n{lines}\n\n</details>"


def line(lesson: str, solved: dict[str, bool], quote: str = "") -> str:
    """One lesson's progress in words."""
    marks = ", ".join(
        f"{quote}{exercise}{quote} {'✓' if done else '○'}" for exercise, done in solved.items()
    )
    return f"{lesson.replace('_', ' ')}: {sum(solved.values())} of {len(solved)} ({marks})"


def _in_copy():
    return Path.cwd() == MY_LESSONS


def main() -> int:
    """Print every lesson's progress; returns the exit status."""
    return printed(line(lesson, solved) for lesson, solved in progress())


if __name__ == "__main__":
    sys.exit(main())
