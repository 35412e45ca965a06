"""Write the lessons' present prose into their recordings:  python -m course.commands.refresh

A recording is a notebook that people open, so its text should be the lesson's. Markdown cells,
guesses and exercises follow the lesson, and the digest with them. What was measured stays as it was
recorded.
"""

import sys
from pathlib import Path

import nbformat

from course.files import replacing
from course.paths import TRACES, lesson_name, short
from course.recordings.cells import lessons, meaning
from course.recordings.recording import Recording, digest, stale
from course.recordings.sanitise import without_chatter


def refresh(path: Path, recording: Path) -> bool:
    """Give a lesson's recording the prose of the lesson, and return whether anything changed.

    path: the lesson; recording: its executed notebook. Raises RecordingError if that is damaged,
    and ValueError if it is stale: then the lesson needs to be recorded again.
    """
    lesson = nbformat.read(path, as_version=4)
    recorded = nbformat.read(recording, as_version=4)
    if changes := stale(lesson, Recording.read(recording)):
        raise ValueError(f"{short(recording)}: {changes[0]}, so record the lesson again.")
    before = nbformat.v4.writes(recorded)
    recorded.cells = _with_lesson(lesson.cells, recorded.cells)
    without_chatter(recorded)
    recorded.metadata["recording"]["digest"] = digest(recorded)
    after = nbformat.v4.writes(recorded)
    if after == before:
        return False
    with replacing(recording) as file:
        file.write_text(after + "\n", encoding="utf-8", newline="\n")
    return True


def _with_lesson(lesson: list, recorded: list) -> list:
    """The lesson's cells, those that were recorded with their outputs."""
    outputs = {meaning(cell.source): cell for cell in recorded if cell.cell_type == "code"}
    return [outputs.get(meaning(cell.source), cell) for cell in lesson]


def main() -> int:
    """Refresh every recording; returns 1 if one of them needs to be recorded again."""
    failed = 0
    for path in lessons():
        for recording in sorted(TRACES.glob(f"*/{lesson_name(path)}.ipynb")):
            try:
                if refresh(path, recording):
                    print(f"{short(recording)}: its prose is the lesson's again")
            except ValueError as error:
                print(error, file=sys.stderr)
                failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
