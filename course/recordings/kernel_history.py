"""What ran in this kernel: may the next %%gpu cell show what it gave when it was recorded?

Cells are followed by their statements. What changes a name in another way (exec, %run, a function
that says global) is noticed by the object that the name then means.
"""

import ast
import hashlib
import sys
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from difflib import get_close_matches
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import nbformat
from IPython.core.interactiveshell import ExecutionResult, InteractiveShell

from course.lessons import lesson_file
from course.paths import ROOT, LessonError, short
from course.recordings.cells import handed_on
from course.recordings.counts import ROOMS
from course.recordings.reached_code import (
    SUFFIXES,
    hashes,
    lost_files,
    module_file,
    module_of,
    redefined,
    tool_changes,
)
from course.recordings.recording import RecordedCell, Recording, cell_label_in_lesson
from course.recordings.statements import ParsedCell, Statement, hash_all, needed_statements, parsed

RUN_ABOVE = "In JupyterLab: Run, Run All Above Selected Cell."
GIVEN = ("In", "Out", "get_ipython", "exit", "quit", "open")  # by IPython
ELSEWHERE = "or run this on a machine with a CUDA GPU."


class NeedsGPU(LessonError):
    """A %%gpu cell without a GPU, where the recording was made by other code than is in front of
    the reader.
    """


def closest_cell_hint(source: str, lesson: str) -> str:
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
        self.watching = True
        self.objects: dict[str, Callable] = {}  # what each name meant after a cell
        self.files: dict[str, str] = {}  # digests of the modules' files, as they were imported
        sources = getattr(shell.history_manager, "input_hist_raw", [])
        for source in sources:  # what ran before the lesson was opened
            self.statements += parsed(source).statements
        self._look("a cell above", {name for source in sources for name in parsed(source).binds()})
        shell.events.register("post_run_cell", self.note_finished_cell)

    def note_finished_cell(self, result: ExecutionResult) -> None:
        """Take note of a cell that has just run; a %%gpu cell that did not play has not run."""
        cell = parsed(getattr(result.info, "raw_cell", None) or "")
        if result.success or cell.hands_on is None:
            self.statements += cell.statements
            self._look(cell.source.strip().partition("\n")[0], cell.binds())

    def set_watching(self, playing: bool) -> None:
        """Objects are compared only where cells are played: lists and dicts, to which there are no
        weak references, live on until the next cell.
        """
        started = playing and not self.watching
        self.watching = playing
        if started:
            self._look("", self.shell.user_ns)  # they are as the statements left them
        elif not playing:
            self.objects.clear()

    def _look(self, where: str, explained: Iterable[str] = ()) -> None:
        """Note the names that mean other objects than before, if no statement says why: as if an
        unknown statement had bound them.
        """
        if not self.watching:
            return
        given = {name: self.shell.user_ns_hidden.get(name, self) for name in GIVEN}
        variables = {
            name: value
            for name, value in self.shell.user_ns.items()
            if not name.startswith("_") and value is not given.get(name, self)
        }
        gone = {name for name in self.objects if name not in variables}
        new = {name for name, value in variables.items() if not self._is_same_object(name, value)}
        if names := (gone | new).difference(explained):
            node = ast.Expr(ast.Name(where))
            unknown = Statement(node, f"{where} {len(self.statements)}", frozenset(names))
            self.statements.append(unknown)
        self.objects = {name: _weak_or_strong_ref(value) for name, value in variables.items()}
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if name.partition(".")[0] in ROOMS and name not in self.files and file:
                self.files[name] = _file_digest(Path(file))

    def _is_same_object(self, name: str, value: object) -> bool:
        return name in self.objects and self.objects[name]() is value

    def find_playable_cell(
        self, cell: ParsedCell, recording: Recording
    ) -> tuple[RecordedCell, dict[str, tuple[str, str]]]:
        """The recorded %%gpu cell like this one, and the tools of which it used another copy: the
        version then, and the one here. Raises NeedsGPU if other code came before it here, or if the
        code that it reaches has changed.
        """
        number = next((i for i, one in enumerate(recording.cells) if one.cell == cell.hash), None)
        if number is None:
            raise NeedsGPU(
                f"this %%gpu cell is not one that was recorded: undo the change, {ELSEWHERE}"
                + closest_cell_hint(cell.source, recording.path.stem)
            )
        missing = [one for one in recording.cells[:number] if one.cell not in self.played]
        if missing:
            more = f" {RUN_ABOVE}" if len(missing) > 1 else ""
            raise NeedsGPU(
                "this %%gpu cell was recorded after the %%gpu cell with the line "
                f"`{cell_label_in_lesson(recording, missing[0])}`, which was not run here: "
                f"run it first, {ELSEWHERE}{more}"
            )
        self._look("something between two cells")
        before = needed_statements(cell, self.statements)
        self._check_statements(cell, before, recording, recording.cells[number])
        others = _check_reached_code([*before, *cell.statements], recording, self.files)
        self.played.add(cell.hash)
        return recording.cells[number], others

    def _check_statements(
        self, cell: ParsedCell, before: list[Statement], recording: Recording, then: RecordedCell
    ) -> None:
        known = {one for hashed in recording.statements.values() for one in hashed}
        read = {name for one in (*before, *cell.statements) for name in one.reads | one.later}
        if others := [one for one in before if one.hash not in known]:
            names = ", ".join(f"`{name}`" for name in sorted(others[0].binds & read))
            raise NeedsGPU(
                f"`{others[0]}` has changed {names}, on which this %%gpu cell depends: run the "
                f"lesson's own cells for it again, {ELSEWHERE}"
            )
        if hash_all(before) == then.after or cell.hash in self.played:
            return
        bound = {name for one in (*self.statements, *cell.statements) for name in one.binds}
        names = ", ".join(sorted((read & recording.statements.keys()) - bound))
        why = f"reads {names}, which no cell has bound here" if names else "depends on more cells"
        run = f"run the cells above it first, {ELSEWHERE} {RUN_ABOVE}"
        raise NeedsGPU(f"this %%gpu cell {why}: {run}")


def _check_reached_code(
    ran: Iterable[Statement], recording: Recording, files: dict[str, str]
) -> dict[str, tuple[str, str]]:
    """The tools of which this is another copy. Raises NeedsGPU if other code of the project has
    changed, on the disk or since this kernel imported it (files: digests then).
    """
    now, then = hashes(one.node for one in ran), recording.about["definitions"]
    if changed := [*redefined(now, then), *lost_files(then)]:
        more = f", nor are {len(changed) - 1} more" if len(changed) > 1 else ""
        raise NeedsGPU(
            f"{changed[0]} is not what {short(recording.path)} was made with{more}: restore it "
            f"with git, {ELSEWHERE}"
        )
    for mine in sorted(Path().iterdir()):
        if mine.is_dir() and mine.resolve().parent == ROOT:
            continue  # a room: some library has a package docs, too
        name = mine.name.partition(".")[0]
        is_module = mine.name.endswith(SUFFIXES) or (mine / "__init__.py").is_file()
        if is_module and _is_library(name):
            raise NeedsGPU(f"{mine} takes the place of the library {name}: rename it.")
    for module in {module_of(name) for name in now if "/" not in name} - {""}:
        file, room = module_file(module), find_spec(module.partition(".")[0])
        if room is None or room.origin != str(module_file(room.name)):
            raise NeedsGPU(f"{module} is another one here: rename {room and room.origin}.")
        if file and module in files and files[module] != _file_digest(file):
            why = f"{short(file)} has changed since this kernel imported it"
            raise NeedsGPU(f"{why}: restart the kernel. {RUN_ABOVE}")
    return tool_changes(now, then)


def _is_library(name: str) -> bool:
    """Whether Python has a module of this name elsewhere than in the project and in this folder."""
    here = {"", *map(str, (ROOT, ROOT.resolve(), Path.cwd()))}
    elsewhere = [folder for folder in sys.path if folder not in here]
    return name in sys.stdlib_module_names or bool(PathFinder.find_spec(name, elsewhere))


def _weak_or_strong_ref(value: Any) -> Callable[[], Any]:
    """What returns an object; it keeps alive only an object to which there are no weak references,
    whose id could otherwise be that of another one by then.
    """
    try:
        return weakref.ref(value)
    except TypeError:
        return lambda: value


def _file_digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""
