"""Lessons and their recordings as files: which there are, what is in them, and whether it is still true."""

import hashlib
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import nbformat
from IPython.display import Markdown, display

from course.values import MIME, decode, values_in

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS, TRACES = ROOT / "notebooks", ROOT / "traces"
MY_LESSONS = ROOT / "my_lessons"  # the learner's copy, made by course.lab; git ignores it
REFERENCE_GPU = "nvidia-h200"
PRODUCERS = ("model", "capture", "timing", "profiling", "kineto", "trace", "rungs")  # what makes the numbers


class LessonError(RuntimeError):
    """What keeps a lesson from running, in one sentence: notebooks show it without a traceback."""

    def _render_traceback_(self):
        return [f"{type(self).__name__}: {self}"]


class NeedsGPU(LessonError):
    """A %%gpu cell without a GPU and without a recording of exactly this cell."""


class RecordingError(LessonError):
    """A recording that is missing or damaged."""


def lesson_name(path):
    """notebooks/01_profile_eager_training.ipynb -> profile_eager_training; solutions/ stays in front."""
    relative = Path(path).resolve().relative_to(NOTEBOOKS)
    return str(relative.with_name(re.sub(r"^\d+_", "", relative.stem)))


def lessons():
    """The notebooks that have %%gpu cells, in reading order."""
    paths = sorted(NOTEBOOKS.glob("*.ipynb")) + sorted(NOTEBOOKS.glob("solutions/*.ipynb"))
    return [path for path in paths if last_gpu_cell(nbformat.read(path, as_version=4)) >= 0]


def last_gpu_cell(notebook):
    """Index of the last %%gpu cell, or -1."""
    cells = enumerate(notebook.cells)
    return max((i for i, cell in cells if cell.cell_type == "code" and handed_on(cell.source) is not None), default=-1)


def normalise(source):
    """Cell source without what changes nothing: blank lines and white space at line ends."""
    return "\n".join(line.rstrip() for line in source.splitlines() if line.strip())


def handed_on(source):
    """The names that a %%gpu cell hands on, or None if the cell is no %%gpu cell."""
    match = re.match(r"\s*%%gpu\b(.*)", source)
    return match and match[1].split()


@dataclass
class Recording:
    """A lesson as executed: its code cells, each with its normalised source, and its provenance."""

    path: Path
    cells: list
    about: dict

    @classmethod
    def read(cls, path):
        """Read a recording. Raises RecordingError, one sentence, if it is missing or damaged."""
        mend = "restore it with git, or make it on a machine with a CUDA GPU by `make record`"
        try:
            notebook = nbformat.read(path, as_version=4)
            cells = [(normalise(cell.source), cell) for cell in notebook.cells if cell.cell_type == "code"]
            return cls(path, cells, notebook.metadata["recording"])
        except FileNotFoundError:
            raise RecordingError(f"There is no recording {short(path)}: {mend}.") from None
        except (nbformat.ValidationError, ValueError, LookupError, TypeError, AttributeError):
            raise RecordingError(f"{short(path)} is no recording, or a damaged one: {mend}.") from None

    def value(self, name):
        """The value that a cell handed on under this name. Raises RecordingError if none did."""
        values = {key: value for _, cell in self.cells for key, value in values_in(cell).items()}
        if name not in values:
            raise RecordingError(f"{self.path.name} records no value {name!r}, only {sorted(values)}.")
        return decode(name, values[name])

    def play(self, source):
        """Show the outputs recorded for the cell with this source; return its values by name."""
        cell = dict(self.cells).get(normalise(source))
        if cell is None:
            raise NeedsGPU(
                f"this %%gpu cell is not the one recorded on an {self.about['gpu']}, so without a CUDA GPU "
                "there is nothing true to show: undo the change, or run it on a machine with one."
            )
        if cell.outputs:  # a cell that only defines something shows nothing, recorded or live
            display(Markdown(f"*recorded on {self.about['gpu']}, torch {self.about['torch']}, {self.about['date']}*"))
        for output in cell.outputs:
            if output.output_type == "stream":
                print(output.text, end="", file=getattr(sys, output.name))
            elif MIME not in output.data:
                display(output.data, raw=True, metadata=output.metadata)
        return {name: decode(name, value) for name, value in values_in(cell).items()}


def module_hashes():
    """A short hash of the source of each module that produces numbers, by name."""
    sources = {name: (ROOT / "helpers" / f"{name}.py").read_bytes() for name in PRODUCERS}
    return {name: hashlib.sha256(source).hexdigest()[:12] for name, source in sources.items()}


def stale(notebook, recording):
    """What has changed since the recording was made, a sentence each; an empty list if it is fresh.

    Compares every code cell up to the last %%gpu cell, in order, and the modules that make the
    numbers. Of the cells only the first that differs is named.
    """
    cells = [cell for cell in notebook.cells[: last_gpu_cell(notebook) + 1] if cell.cell_type == "code"]
    now, then = [normalise(cell.source) for cell in cells], [source for source, _ in recording.cells]
    changed = next((i for i, source in enumerate(now) if then[i : i + 1] != [source]), None)
    found = [] if changed is None else [f"code cell {changed + 1} ({now[changed].splitlines()[0]} ...) has changed"]
    hashes, recorded = module_hashes(), recording.about["modules"]
    return found + [f"helpers/{name}.py has changed" for name in hashes if hashes[name] != recorded.get(name)]


def short(path):
    """The path as seen from the project, if it lies in it."""
    return path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
