"""Which exercises are solved:  python -m course.progress

A solved exercise is an empty file my_lessons/.progress/<lesson>/<exercise>: nothing to damage, and
nothing leaves the machine. Only notebooks of the learner's copy leave such marks, so tests and
recordings do not.
"""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from course.files import SavingError, replacing
from course.lessons import following, lesson_file, lessons, title
from course.paths import MY_LESSONS, lesson_name
from course.recordings.cells import CHECKS, checks_in

PAGE = "00_progress.md"  # the first of the file list
ANEW = "To begin a lesson anew, rename your copy of it and run `make lab` again."


def mark(lesson: str, exercise: str) -> str:
    """Note that an exercise is solved; returns "", or a sentence if the disk refuses the mark."""
    if not in_copy():
        return ""
    try:
        (MY_LESSONS / ".progress" / lesson).mkdir(parents=True, exist_ok=True)
        (MY_LESSONS / ".progress" / lesson / exercise).touch()
    except OSError as error:
        return f" It could not be noted in your progress: {error.strerror}."
    with suppress(SavingError):  # the mark is there, so the next one writes the page
        write_page()
    return ""


def iter_progress() -> Iterator[tuple[str, dict[str, bool]]]:
    """Yield for each lesson: its name, and a dict of exercise -> solved?, both in reading order."""
    asked = {lesson_name(path): exercises(path) for path in lessons()}
    marks = {(path.parent.name, path.name) for path in (MY_LESSONS / ".progress").glob("*/*")}
    # out of its old lesson
    moved = {exercise for lesson, exercise in marks if exercise not in asked.get(lesson, [])}
    for lesson, names in asked.items():
        yield lesson, {name: (lesson, name) in marks or name in moved for name in names}


def exercises(path: Path) -> list[str]:
    """The exercises that a lesson checks, in reading order."""
    cells = json.loads(path.read_bytes())["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    asking = [source for source in sources if any(f"{check}(" in source for check in CHECKS)]
    return list(dict.fromkeys(exercise for source in asking for _, exercise in checks_in(source)))


def lesson_ending(lesson: str) -> str:
    """Markdown at a lesson's end: its solved exercises, the next lesson; "" outside the copy."""
    solved = dict(iter_progress()).get(lesson) if in_copy() else None
    if solved is None:
        return ""
    told = [f"Solved exercises in {progress_line(lesson, solved)}."] if solved else []
    if path := following(lesson_file(lesson)):
        told.append(f"Next lesson: [{title(path)}]({path.name}).")
    return " ".join([*told, f"[Your progress]({PAGE})."])


def write_page() -> None:
    """Write my_lessons/00_progress.md, all lessons with their solved exercises."""
    solved = dict(iter_progress())
    marks = [done for asked in solved.values() for done in asked.values()]
    head = f"# {sum(marks)} of {len(marks)} exercises solved"
    lines = [head, "", "| lesson | exercises |", "|-|-|"]
    for path in lessons():
        signs = " ".join("✓" if done else "○" for done in solved[lesson_name(path)].values())
        lines.append(f"| [{title(path)}]({path.name}) | {signs} |")
    with replacing(MY_LESSONS / PAGE) as file:
        file.write_text("\n".join([*lines, "", ANEW, ""]), encoding="utf-8")


def progress_line(lesson: str, solved: dict[str, bool]) -> str:
    """One lesson's progress in words."""
    marks = ", ".join(f"{exercise} {'✓' if done else '○'}" for exercise, done in solved.items())
    return f"{title(lesson_file(lesson))}: {sum(solved.values())} of {len(solved)} ({marks})"


def in_copy() -> bool:
    """Whether this notebook is one of the learner's copy."""
    return Path.cwd() == MY_LESSONS


if __name__ == "__main__":
    for lesson, solved in iter_progress():
        print(progress_line(lesson, solved))
