"""Recordings: a lesson as executed on some GPU, and whether it is still true.

traces/<gpu>/<lesson>.ipynb is the executed lesson. Its metadata say where it comes from, name its
traces (traces/<gpu>/<lesson>/<trace>-<digest>.json.gz) and hold a digest of the notebook, so that
no part of a recording changes unnoticed. The digests find accidents, not forgery.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat

from course.paths import REFERENCE_GPU, ROOT, TRACES, LessonError, short
from course.recordings.cells import CodeCell, code_cells, that_count
from course.recordings.fingerprints import counted, forget_modules, hashes, source_file, text_hash
from course.recordings.values import MIME, decode

FIX = "restore it with git, or make it on a machine with a CUDA GPU by `make record`"
# of what a recording says about itself; those made before formats were numbered have none, and are
# as 1
FORMAT = 1
DIGESTS = ("definitions", "traces")  # names and texts
WORDS = ("gpu", "torch", "date")  # which pages show
MAY_SAY = ("driver", "cuda", "python", "cpu")  # likewise; a machine may not know them
NUMBERS = ("seconds", "peak_gpu_mib", "gpus")
WORD = re.compile(r"[\w .,:+@()/-]{1,120}")  # no markup


class RecordingError(LessonError):
    """A recording that is missing or damaged."""


@dataclass
class Recording:
    """A lesson as executed: its code cells, its traces' file names, and its provenance."""

    path: Path
    cells: list[CodeCell]
    about: dict[str, Any]

    @classmethod
    def read(cls, path: Path) -> "Recording":
        """Read a recording. Raises RecordingError, one sentence,
        if it is missing, damaged or not in traces/.
        """
        path = Path(path)
        notebook = _parsed(path)
        try:
            about = dict(notebook.metadata["recording"])
            intact = about["digest"] == digest(notebook)
            typed = _typed(about)
            recording = cls(path, code_cells(notebook), about)
        except (RuntimeError, ValueError, LookupError, TypeError, AttributeError):
            raise _damaged(path) from None
        if not intact or not typed:
            raise RecordingError(f"{short(path)} was changed after it was recorded: {FIX}.")
        if about.get("format", FORMAT) != FORMAT:
            raise RecordingError(
                f"{short(path)} has format {about['format']}, and this course reads {FORMAT}: "
                "update the course."
            )
        _check_texts(path, about["definitions"])
        return recording

    def check_code(self) -> None:
        """Raises RecordingError if the project's code is not what the recording was made with.

        Only what its %%gpu cells reach counts, and neither comments nor docstrings do.
        """
        forget_modules()
        recorded = counted(self.about["definitions"])
        known = {name: was for name, was in recorded.items() if "/" not in name}
        now = {name: text for name, text in hashes(self.cells).items() if "/" not in name}
        if changed := list(_redefined(now, known)):
            name = changed[0].removesuffix(" has changed")
            more = f", nor are {len(changed) - 1} more" if len(changed) > 1 else ""
            raise RecordingError(
                f"{name.rpartition('.')[2]} in {source_file(name)} is not the code that "
                f"{short(self.path)} was made with{more}: restore it with git, or run this lesson "
                "on a machine with a CUDA GPU."
            )

    def value(self, name: str) -> Any:
        """The value that a cell handed on under this name. Raises RecordingError if none did."""
        values = {key: value for cell in self.cells for key, value in values_in(cell).items()}
        if name not in values:
            raise RecordingError(
                f"{self.path.name} records no value {name!r}, only {', '.join(sorted(values))}."
            )
        return decode(name, values[name])

    def trace(self, name: str) -> Path:
        """The file of a profiler trace. Raises RecordingError
        if it is missing, or another one than was recorded.
        """
        path = (
            self.path.with_suffix("") / Path(self.about["traces"].get(name, f"{name}.json.gz")).name
        )
        try:
            intact = path.name == trace_name(name, path.read_bytes())
        except OSError:
            raise RecordingError(
                f"There is no recorded trace {short(path)}: restore it with git."
            ) from None
        if not intact:
            raise RecordingError(
                f"{short(path)} is not the trace that was recorded: restore it with git."
            )
        return path


def _typed(about: dict[str, Any]) -> bool:
    """Whether what a recording says of itself has the right kinds, and no word is markup."""
    texts = [text for table in DIGESTS for text in about[table].values()]
    words = [about[key] for key in WORDS]
    words += [about[key] for key in MAY_SAY if about.get(key) is not None]
    return all(
        [
            *(isinstance(text, str) for text in (about["digest"], *texts)),
            *(isinstance(word, str) and WORD.fullmatch(word) for word in words),
            *(isinstance(about.get(key, 0), int | float) for key in NUMBERS),
        ]
    )


def _parsed(path: Path) -> nbformat.NotebookNode:
    """The notebook at path. Raises RecordingError if there
    is none, or if it is a link to somewhere else.
    """
    try:
        if not path.resolve().is_relative_to(path.parent.parent.resolve()):
            raise _damaged(path)
        return nbformat.v4.reads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RecordingError(f"There is no recording {short(path)}: {FIX}.") from None
    except RecordingError:
        raise
    except (OSError, RuntimeError, ValueError, LookupError, TypeError, AttributeError):
        raise _damaged(path) from None


def _damaged(path: Path) -> RecordingError:
    return RecordingError(f"{short(path)} is no recording, or a damaged one: {FIX}.")


def _check_texts(path: Path, definitions: dict[str, str]) -> None:
    """Raises RecordingError unless the text files that a recording reached are as they were."""
    for file, known in definitions.items():
        if "/" in file and text_hash(ROOT / file) != known:
            raise RecordingError(
                f"{file} is not the text that {short(path)} was made with: restore it with git."
            )


def recorded_lesson(name: str, gpu: str = REFERENCE_GPU, traces: Path = TRACES) -> Recording:
    """The recording of a lesson on a GPU, both by their names
    in traces/; the reference GPU's, if that one has none.

    Raises RecordingError.
    """
    known = sorted(path.name for path in traces.glob("*/") if path.name != "local")
    if gpu not in known:
        asked = gpu if len(gpu) < 60 else gpu[:57] + "..."
        raise RecordingError(
            f"{asked!r} is no folder of traces/: give the name of one ({', '.join(known)})."
        )
    there = traces / gpu / f"{name}.ipynb"
    return Recording.read(there if there.exists() else traces / REFERENCE_GPU / there.name)


def recordings(name: str, traces: Path = TRACES) -> list[Recording]:
    """Every recording of a lesson, the reference GPU's
    first. Raises RecordingError if one is damaged.
    """
    paths = sorted(
        traces.glob(f"*/{name}.ipynb"), key=lambda path: (path.parent.name != REFERENCE_GPU, path)
    )
    return [Recording.read(path) for path in paths if path.parent.name != "local"]


def digest(notebook: nbformat.NotebookNode) -> str:
    """Of everything in a recording but the digest itself;
    the same however JSON and line ends are written.
    """
    about = {key: value for key, value in notebook.metadata["recording"].items() if key != "digest"}
    content = [notebook.cells, about]
    return hashlib.sha256(json.dumps(content, sort_keys=True, allow_nan=False).encode()).hexdigest()


def trace_name(name: str, content: bytes) -> str:
    """The file name of a recorded trace: it says which content belongs in it."""
    return f"{name}-{hashlib.sha256(content).hexdigest()[:12]}.json.gz"


def values_in(cell: CodeCell) -> dict[str, Any]:
    """The encoded values that ride in the outputs of a recorded cell, by name."""
    return next(
        (output.data[MIME] for output in cell.outputs if MIME in output.get("data", {})), {}
    )


def stale(notebook: nbformat.NotebookNode, recording: Recording) -> list[str]:
    """What has changed since the recording was made, a sentence each; an empty list if it is fresh.

    Compares the code cells up to the last %%gpu cell, guesses, exercises and views apart, in order,
    and what the %%gpu cells reach by name. Of the cells only the first that differs is named.
    """
    cells = code_cells(notebook)
    now, then = that_count(cells), that_count(recording.cells)
    last = max((index for index, cell in enumerate(now) if cell.kind == "gpu"), default=-1)
    return [
        *_changed(now[: last + 1], then),
        *_redefined(hashes(cells), counted(recording.about["definitions"])),
    ]


def _changed(now: list[CodeCell], then: list[CodeCell]) -> Iterator[str]:
    for index, cell in enumerate(now):
        if index >= len(then) or then[index].meaning != cell.meaning:
            yield f"{cell} has changed"
            return
    if any(cell.kind == "gpu" for cell in then[len(now) :]):
        yield "a %%gpu cell was taken out"


def _redefined(now: dict[str, str], then: dict[str, str]) -> Iterator[str]:
    """A name with another text than before has changed; one that only moved, text and all, has not.

    The names of one statement (A, B = 1, 2) share its text, so they only ever change together.
    """
    both = now.keys() & then.keys()
    changed = {name for name in both if now[name] != then[name]}
    gone = {name for name in then.keys() - both if then[name] not in now.values()}
    new = {name for name in now.keys() - both if now[name] not in then.values()}
    yield from (f"{name} has changed" for name in sorted(changed | gone | new))
