"""What was run in this kernel, compared with a recording:
may the next %%gpu cell show what it gave there?
"""

import ast
import builtins
from contextlib import suppress
from typing import Any

from IPython.core.interactiveshell import ExecutionInfo, ExecutionResult, InteractiveShell

from course.paths import LessonError
from course.recordings.cells import CodeCell, meaning, that_count
from course.recordings.contents import content, defined, replaced, torch_settings
from course.recordings.fingerprints import bindings, binds
from course.recordings.names import reads
from course.recordings.recording import Recording

MISSING = object()
OUTSIDE = "something that ran outside of the cells"
BEFORE = "a cell above the lesson's first"
RUN_ABOVE = "In JupyterLab: Run, Run All Above Selected Cell."
ELSEWHERE = "or run this on a machine with a CUDA GPU."


class NeedsGPU(LessonError):
    """A %%gpu cell without a GPU, where the recording was
    made by other code than is in front of the reader.
    """


class History:
    """Follows the cells that a shell runs, for the cells of one recording.

    A cell counts as run when its source, as recorded, was the last that ran in its place, without
    an error. A name counts as changed when a cell that is not in the recording gave it another
    value than the recorded cells did, or when a recorded cell made it of such a name. A function
    or class of the project and a setting of torch count as changed while they are.
    """

    def __init__(self, shell: InteractiveShell, recording: Recording) -> None:
        self.shell = shell
        self.recording = recording
        self.cells = that_count(recording.cells)
        kinds = ("gpu", "plain", "view")
        self.bound = bindings([cell for cell in recording.cells if cell.kind in kinds])
        self.binds = {cell.meaning: binds(cell.source) for cell in self.cells}
        self.reads = {cell.meaning: reads(cell.source, self.bound) for cell in self.cells}
        # "_" is IPython's, what a cell has shown; guesses reach charts alone
        self.watched = {
            name for name in self._that_matter() if name != "_" and not name.startswith("guess")
        }
        self.last_run: dict[str, str] = {}  # a cell's place in the notebook -> what ran there
        self.changed: dict[str, str] = {}  # a name -> what changed it
        self.values = self._values()
        self.project = self._project()
        self.settings = torch_settings()
        for name in self.watched & vars(builtins).keys() - self.bound.keys():
            if name in shell.user_ns:
                self.changed[name] = BEFORE
        for name in filter(replaced, self.project):
            self.changed[name] = BEFORE
        self.follow()

    def follow(self) -> None:
        """Hear of each cell before and after it runs, from here on."""
        self.shell.events.register("pre_run_cell", self.before)
        self.shell.events.register("post_run_cell", self.after)

    def close(self) -> None:
        """Stop following."""
        self.shell.events.unregister("pre_run_cell", self.before)
        self.shell.events.unregister("post_run_cell", self.after)

    def before(self, info: ExecutionInfo) -> None:
        """Take note of what changed since the last cell, as by a widget."""
        self._note(self._values(), OUTSIDE)

    def after(self, result: ExecutionResult) -> None:
        """Take note of a cell that has just run."""
        source = getattr(result.info, "raw_cell", None) or ""
        cell, values = meaning(source), self._values()
        place = getattr(result.info, "cell_id", None) or cell
        self.last_run.pop(place, None)
        if cell in self.binds and result.success:
            self.last_run[place] = cell
            causes = [self.changed[name] for name in self.reads[cell] if name in self.changed]
            for name in self.binds[cell] & self.watched:
                self.changed.pop(name, None)
                if causes:
                    self.changed[name] = causes[0]
            self.values = values
            self.project |= self._project()
            self.settings = torch_settings()
        else:
            self._note(values, f"a cell that is not in the recording ({_first_line(source)})")

    def allows(self, source: str) -> CodeCell:
        """The recorded %%gpu cell with this source. Raises
        NeedsGPU if other code came before it here.
        """
        run = set(self.last_run.values())
        number = next(
            (i for i, cell in enumerate(self.cells) if cell.meaning == meaning(source)), None
        )
        if number is None:
            raise NeedsGPU(
                f"this %%gpu cell is not one that was recorded: undo the change, {ELSEWHERE}"
            )
        missing = [cell for cell in self.cells[:number] if cell.meaning not in run]
        if missing:
            raise NeedsGPU(
                f"this %%gpu cell was recorded after {missing[0]}, which was not run here as "
                f"recorded: run that cell unchanged first, {ELSEWHERE}"
                + (f" {RUN_ABOVE}" if len(missing) > 1 else "")
            )
        cell = self.cells[number]
        self._check_names(cell)
        self._check_settings()
        return cell

    def _check_names(self, cell: CodeCell) -> None:
        used = self.reads[cell.meaning] | self.project.keys()
        for name in sorted(used & self.changed.keys()):
            cause = self.changed[name]
            names = ", ".join(sorted(one for one in self.changed if self.changed[one] == cause))
            fix = "run the lesson's own cells for it again"
            if name in self.project or cause == BEFORE:
                fix = f"restart the kernel and leave that cell out ({RUN_ABOVE.rstrip('.')})"
            raise NeedsGPU(
                f"{cause} has changed {names}, on which this %%gpu cell depends: {fix}, {ELSEWHERE}"
            )

    def _check_settings(self) -> None:
        now = torch_settings()
        for name, value in self.settings.items():
            if now[name] != value:
                raise NeedsGPU(
                    "a cell that is not in the recording has changed a setting of torch, "
                    f"{name}, from {value} to {now[name]}: set it back, {ELSEWHERE}"
                )

    def _that_matter(self) -> set[str]:
        """The names that %%gpu cells read, and those of which plain cells make them."""
        found = set().union(*(self.reads[cell.meaning] for cell in self.cells if _gpu(cell)))
        while True:
            makers = [cell for cell in self.cells if self.binds[cell.meaning] & found]
            more = set().union(*(self.reads[cell.meaning] for cell in makers)) - found
            if not more:
                return found
            found |= more

    def _note(self, values: dict[str, tuple[Any, Any]], cause: str) -> None:
        """Take note of the names that no longer hold what the recorded cells gave them."""
        self.settings = self.settings or torch_settings()
        for name, value in values.items():
            if name not in self.changed and not _same(value, self.values[name]):
                if self._imported(name, value[0]):
                    self.values[name] = value
                else:
                    self.changed[name] = cause
        for name, now in self._project().items():
            then = self.project[name]
            if then is ... and now is not ...:
                self.project[name] = now
                if replaced(name):
                    self.changed.setdefault(name, cause)
            elif now != then:
                self.changed.setdefault(name, cause)

    def _imported(self, name: str, value: Any) -> bool:
        """Whether it is what the recorded cells import under this name."""
        scope: dict[str, Any] = {}
        for node in self.bound.get(name, []):
            if isinstance(node, ast.Import | ast.ImportFrom):
                with suppress(ImportError):
                    exec(compile(ast.Module([node], []), "<recorded>", "exec"), scope)
        return name in scope and scope[name] is value

    def _values(self) -> dict[str, tuple[Any, Any]]:
        """What each watched name holds: the object, and a fingerprint of its content."""
        held = {name: self.shell.user_ns.get(name, MISSING) for name in self.watched}
        return {name: (value, content(value)) for name, value in held.items()}

    def _project(self) -> dict[str, Any]:
        """Fingerprints of what the %%gpu cells reach of the project; ... where not yet imported."""
        names = [name for name in self.recording.about["definitions"] if "/" not in name]
        held = {name: defined(name) for name in names}
        return {name: ... if value is ... else content(value) for name, value in held.items()}


def _gpu(cell: CodeCell) -> bool:
    return cell.kind == "gpu"


def _first_line(source: str) -> str:
    lines = [line.strip() for line in source.splitlines() if line.strip()]
    return (lines or [""])[0][:60]


def _same(value: tuple[Any, Any], other: tuple[Any, Any]) -> bool:
    """Whether a name still holds what it held: the same content, or the very same plain object."""
    return value[1] == other[1]
