"""Write anew what follows from the changes since the last commit:  python -m docs.fix

The links to lessons; the minutes of the changed lessons, the README's tables and the list of the
lessons; and the pages in read/ of the changed lessons, and of those whose next lesson is another.
"""

import sys
from pathlib import Path

from course.commands.rename import update_links
from course.files import changed_files
from course.lessons import lessons, unnumbered
from course.paths import LessonError
from docs import read, readme
from docs.played import recorded_lessons
from exercises.unfinished import all_missing

OF_LESSONS = "notebooks/", "traces/"


def changed_lessons() -> list[Path]:
    """The lessons whose notebook or recording has changed, and those whose page names another
    lesson as the next.
    """
    names = {unnumbered(Path(file).stem) for file in changed_files() if file.startswith(OF_LESSONS)}
    recorded = recorded_lessons()
    return [
        path
        for path in lessons()
        if unnumbered(path.stem) in names or (path in recorded and not _is_next_link_right(path))
    ]


def _is_next_link_right(lesson: Path) -> bool:
    """Whether a lesson has a page that ends with the link to its next lesson, if it has one."""
    page = read.READ / f"{lesson.stem}.md"
    last = page.read_text(encoding="utf-8").splitlines()[-1] if page.exists() else read.NEXT
    return (last if last.startswith(read.NEXT) else "") == read.next_lesson_line(lesson)


def main() -> int:
    """Write it all and say what changed; returns 1, after a sentence each, if a changed lesson
    lacks something.
    """
    before = set(changed_files())
    update_links()
    lessons = changed_lessons()
    there = recorded_lessons()
    recorded = [path for path in lessons if path in there]
    try:
        readme.write(recorded)
        read.write(recorded)
    except (LookupError, LessonError) as error:
        print(error, file=sys.stderr)
        return 1
    written = sorted(set(changed_files()) - before)
    print(f"Fresh: {', '.join(path.stem for path in recorded) or 'no lesson had changed'}.")
    print(f"Changed with it: {', '.join(written) or 'nothing'}.")
    lacking = all_missing(lessons)
    print("\n".join(lacking), end="\n" if lacking else "")
    return 1 if lacking else 0


if __name__ == "__main__":
    sys.exit(main())
