"""What was run in this kernel, compared with a recording:
may the next %%gpu cell show what it gave there?
"""

import ast
import json
from contextlib import suppress
from typing import Any

from IPython.core.interactiveshell import ExecutionResult, InteractiveShell

from course.paths import LessonError
from course.recordings.cells import CodeCell, normalise, that_count
from course.recordings.fingerprints import bindings, binds, used
from course.recordings.values import encode

MISSING = object()


class NeedsGPU(LessonError):
    """A %%gpu cell without a GPU, where the recording was
    made by other code than is in front of the reader.
    """


class History:
    """Follows the cells that a shell runs, for the cells of one recording.

    A cell counts as run when its source, as recorded, was the last that ran in its place, without
    an error. A name counts as changed when, after a cell that is not in the recording, it has
    another value than the recorded cells gave it.
    """

    def __init__(self, shell: InteractiveShell, recorded: list[CodeCell]) -> None:
        self.shell = shell
        self.cells = that_count(recorded)
        self.bound = bindings([cell for cell in recorded if cell.kind in ("gpu", "plain", "view")])
        self.uses = {
            cell.source: used(cell, self.bound) for cell in self.cells if cell.kind == "gpu"
        }
        self.watched = set().union(*self.uses.values()) - {
            "_"
        }  # which is IPython's: what a cell has shown
        self.binds = {cell.source: binds(cell.source) for cell in self.cells}
        self.last_run: dict[str, str] = {}  # a cell's place in the notebook -> what ran there
        self.changed: dict[str, str] = {}  # a name -> the cell that changed it
        self.values = self._values()
        shell.events.register("post_run_cell", self.after)

    def close(self) -> None:
        """Stop following."""
        self.shell.events.unregister("post_run_cell", self.after)

    def after(self, result: ExecutionResult) -> None:
        """Take note of a cell that has just run."""
        source, values = normalise(getattr(result.info, "raw_cell", None) or ""), self._values()
        place = getattr(result.info, "cell_id", None) or source
        self.last_run.pop(place, None)
        if source in self.binds and result.success:
            self.last_run[place] = source
            for name in self.binds[source]:
                self.changed.pop(name, None)
        else:
            first = source.partition("\n")[0]
            other = [name for name in self.watched if not _same(values[name], self.values[name])]
            self.changed |= {
                name: first for name in other if not self._imported(name, values[name][0])
            }
        self.values |= {name: value for name, value in values.items() if name not in self.changed}

    def allows(self, source: str) -> CodeCell:
        """The recorded %%gpu cell with this source. Raises
        NeedsGPU if other code came before it here.
        """
        run, elsewhere = set(self.last_run.values()), "or run this on a machine with a CUDA GPU."
        number = next(
            (i for i, cell in enumerate(self.cells) if cell.source == normalise(source)), None
        )
        if number is None:
            raise NeedsGPU(
                f"this %%gpu cell is not one that was recorded: undo the change, {elsewhere}"
            )
        for before in self.cells[:number]:
            if before.source not in run:
                raise NeedsGPU(
                    f"this %%gpu cell was recorded after {before}, which was not run here as "
                    "recorded: run that cell "
                    f"unchanged first, {elsewhere}"
                )
        cell = self.cells[number]
        for name in sorted(self.uses[cell.source] & self.changed.keys()):
            raise NeedsGPU(
                f"a cell that is not in the recording ({self.changed[name][:60]}) has changed "
                f"{name}, which this "
                f"%%gpu cell uses: run the lesson's own cell for it again, {elsewhere}"
            )
        return cell

    def _imported(self, name: str, value: Any) -> bool:
        """Whether it is what the recorded cells import under this name."""
        scope: dict[str, Any] = {}
        for node in self.bound.get(name, []):
            if isinstance(node, ast.Import | ast.ImportFrom):
                with suppress(ImportError):
                    exec(compile(ast.Module([node], []), "<recorded>", "exec"), scope)
        return name in scope and scope[name] is value

    def _values(self) -> dict[str, tuple[Any, str]]:
        """What each watched name holds: the object, and its content where it is plain data."""
        held = {name: self.shell.user_ns.get(name, MISSING) for name in self.watched}
        return {
            name: (value, "" if value is MISSING else _content(value))
            for name, value in held.items()
        }


def _content(value: Any) -> str:
    try:
        return json.dumps(encode("", value))
    except (TypeError, ValueError, RecursionError):
        return ""


def _same(value: tuple[Any, str], other: tuple[Any, str]) -> bool:
    """Whether a name still holds what it held: equal data, or the very same object."""
    return value[1] == other[1] if value[1] or other[1] else value[0] is other[0]
