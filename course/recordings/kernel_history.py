"""What ran in this kernel: may the next %%gpu cell show what it gave when it was recorded?"""

from contextlib import suppress
from difflib import get_close_matches
from typing import Any

import nbformat
from IPython.core.interactiveshell import ExecutionResult, InteractiveShell

from course.lessons import lesson_file
from course.paths import LessonError
from course.recordings.cells import handed_on
from course.recordings.recording import RecordedCell, Recording, as_written
from course.recordings.statements import Statement, cell_hash, hash_of, needed, statements

RUN_ABOVE = "In JupyterLab: Run, Run All Above Selected Cell."
ELSEWHERE = "or run this on a machine with a CUDA GPU."


class NeedsGPU(LessonError):
    """A %%gpu cell without a GPU, where the recording was made by other code than is in front of
    the reader.
    """


def recorded_cell_like(source: str, lesson: str) -> str:
    """The %%gpu cell of a lesson from which this one was edited, to paste; "" if none is like it
    or the course has no such lesson.
    """
    with suppress(LookupError):
        cells = nbformat.read(lesson_file(lesson), as_version=4).cells
        own = [cell.source for cell in cells if handed_on(cell.source) is not None]
        return f" The lesson's own cell:\n\n{get_close_matches(source, own, 1)[0]}"
    return ""


class History:
    """The statements that ran in a shell, in order, and the %%gpu cells that were played."""

    def __init__(self, shell: InteractiveShell) -> None:
        self.shell = shell
        self.statements: list[Statement] = []
        self.played: set[str] = set()  # their hashes
        for source in getattr(shell.history_manager, "input_hist_raw", []):
            self._note(source)  # what ran before the lesson was opened
        shell.events.register("post_run_cell", self.after)

    def after(self, result: ExecutionResult) -> None:
        """Take note of a cell that has just run; a %%gpu cell that did not play has not run."""
        source: Any = getattr(result.info, "raw_cell", None) or ""
        if result.success or handed_on(source) is None:
            self._note(source)

    def _note(self, source: str) -> None:
        self.statements += statements(source)

    def allows(self, source: str, recording: Recording) -> RecordedCell:
        """The recorded %%gpu cell with this source. Raises NeedsGPU if other code came before it
        here.
        """
        own = cell_hash(source)
        number = next((i for i, cell in enumerate(recording.cells) if cell.cell == own), None)
        if number is None:
            raise NeedsGPU(
                f"this %%gpu cell is not one that was recorded: undo the change, {ELSEWHERE}"
                + recorded_cell_like(source, recording.path.stem)
            )
        missing = [cell for cell in recording.cells[:number] if cell.cell not in self.played]
        if missing:
            more = f" {RUN_ABOVE}" if len(missing) > 1 else ""
            raise NeedsGPU(
                "this %%gpu cell was recorded after the %%gpu cell with the line "
                f"`{as_written(recording, missing[0])}`, which was not run here: run it first, "
                f"{ELSEWHERE}{more}"
            )
        self._check_statements(source, recording, recording.cells[number])
        self.played.add(own)
        return recording.cells[number]

    def _check_statements(self, source: str, recording: Recording, cell: RecordedCell) -> None:
        before = needed(source, self.statements)
        known = {one for hashed in recording.statements.values() for one in hashed}
        if others := [one for one in before if one.hash not in known]:
            names = ", ".join(f"`{name}`" for name in sorted(others[0].binds))
            raise NeedsGPU(
                f"`{others[0]}` has changed {names}, on which this %%gpu cell depends: run the "
                f"lesson's own cells for it again, {ELSEWHERE}"
            )
        if hash_of(before) == cell.after or cell.cell in self.played:
            return
        own = statements(source)
        read = {name for one in (*before, *own) for name in one.reads | one.later}
        bound = {name for one in (*self.statements, *own) for name in one.binds}
        names = ", ".join(sorted((read & recording.statements.keys()) - bound))
        why = f"reads {names}, which no cell has bound here" if names else "depends on more cells"
        raise NeedsGPU(
            f"this %%gpu cell {why}: run the cells above it first, {ELSEWHERE} {RUN_ABOVE}"
        )
