"""Recordings: what the %%gpu cells of a lesson gave on some GPU, and whether it is still true.

traces/<gpu>/<lesson>.json says where it comes from, names its traces
(traces/<gpu>/<lesson>/<trace>-<digest>.json.gz), and holds for each %%gpu cell a hash of the cell
and of the statements on which it depends, the values that it handed on, and the text and the tables
that it showed. Everything else of a lesson is played from the lesson. The digests find accidents,
not forgery.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import zip_longest
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import nbformat

from course.lessons import lesson_file
from course.paths import REFERENCE_GPU, ROOT, TRACES, LessonError, short
from course.recordings.cells import CodeCell, code_cells, python
from course.recordings.reached_code import hashes, lost_names, redefined
from course.recordings.statements import IMPORT, Statement, cell_needs, hash_all, parsed, short_hash
from course.recordings.values import decode
from helpers.trace import TraceError, read_trace

FIX = "restore it with git, or make it on a machine with a CUDA GPU by `make record`"
FORMAT = 3
WIDTH = 120  # a list or dict that is shorter stays on one line


class RecordingError(LessonError):
    """A recording that is missing or damaged."""


class RecordedCell(NamedTuple):
    """A %%gpu cell: hashes of itself and of what it depends on, its first statement, the values
    that it handed on (encoded), and what it showed: {"stdout": [line, ...]}, "stderr" and "text"
    likewise, or {"table": a DataFrame, encoded}.
    """

    cell: str
    after: str
    begins: str
    values: Mapping[str, Any] = MappingProxyType({})
    outputs: Sequence[dict[str, Any]] = ()


@dataclass
class Recording:
    """A lesson's recording: its %%gpu cells, hashes of the statements on which they depend by the
    names that these bind, and where it comes from.
    """

    path: Path
    about: dict[str, Any]
    statements: dict[str, list[str]]
    cells: list[RecordedCell]

    @classmethod
    def read(cls, path: Path) -> "Recording":
        """Read a recording. Raises RecordingError, one sentence, if it is missing, damaged or
        changed.
        """
        path = Path(path)
        try:
            found = path.stat()
            return _read(path, found.st_mtime_ns, found.st_size)
        except FileNotFoundError:
            raise RecordingError(f"There is no recording {short(path)}: {FIX}.") from None
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            raise RecordingError(
                f"{short(path)} is no recording, or a damaged one: {FIX}."
            ) from None

    @classmethod
    def from_content(cls, path: Path, content: dict[str, Any]) -> "Recording":
        """The recording with this content, without its digest."""
        about = {key: part for key, part in content.items() if key not in ("statements", "cells")}
        cells = [RecordedCell(**cell) for cell in content["cells"]]
        return cls(path, about, content["statements"], cells)

    def value(self, name: str) -> Any:
        """The value that a cell handed on under this name. Raises RecordingError if none did."""
        values = {key: value for cell in self.cells for key, value in cell.values.items()}
        if name not in values:
            known = ", ".join(sorted(values))
            raise RecordingError(f"{self.path.name} records no value {name!r}, only {known}.")
        return decode(name, values[name])

    def trace(self, name: str) -> Path:
        """The file of a profiler trace. Raises RecordingError if it is missing, or another one than
        was recorded.
        """
        file = self.about["traces"].get(name, f"{name}.json.gz")
        path = self.path.with_suffix("") / Path(file).name
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


@lru_cache(maxsize=64)
def _read(path: Path, changed: int, size: int) -> Recording:
    """The recording at path, which was last changed then, and has that many bytes."""
    content = json.loads(path.read_text(encoding="utf-8"))
    if content["format"] != FORMAT:
        raise RecordingError(
            f"{short(path)} has format {content['format']}, and this course reads {FORMAT}: "
            "update the course."
        )
    if content.pop("digest") != digest(content):
        raise RecordingError(f"{short(path)} was changed after it was recorded: {FIX}.")
    return Recording.from_content(path, content)


def code_hashes(cells: Iterable[CodeCell], root: Path = ROOT) -> dict[str, Any]:
    """The program that a lesson's %%gpu cells are, as hashes: what of a recording says to which
    code it belongs. root: where the project is.
    """
    found = cell_needs(cells)
    needs = {one.hash: one for _, before in found for one in before}
    statements = {
        name: sorted(one.hash for one in needs.values() if name in one.binds)
        for name in sorted({name for one in needs.values() for name in one.binds})
    }
    hashed = [
        {
            "cell": parsed(cell.source).hash,
            "after": hash_all(before),
            "begins": _cell_label(cell.source),
        }
        for cell, before in found
    ]
    reached = {"format": FORMAT, "definitions": hashes(syntax_trees(found), root)}
    return reached | {"statements": statements, "cells": hashed}


def json_text(about: dict[str, Any], code: dict[str, Any], measured: Iterable[dict]) -> str:
    """The text of a recording.

    about: where it comes from, and its traces. code: its program. measured: the values and outputs
    of each %%gpu cell, in order.
    """
    cells = [
        cell | {key: found for key, found in result.items() if found}
        for cell, result in zip(code["cells"], measured, strict=True)
    ]
    content = about | code | {"cells": cells}
    return _pretty({"digest": digest(content)} | content) + "\n"


def _cell_label(source: str) -> str:
    """The first line of a cell that is no import, as it is written, or what else it begins with."""
    nodes = [one.node for one in parsed(source).statements if not isinstance(one.node, IMPORT)]
    lines = python(source).splitlines() if nodes else source.splitlines()
    return lines[nodes[0].lineno - 1 if nodes else -1].strip()


def cell_label_in_lesson(recording: Recording, cell: RecordedCell) -> str:
    """The line of a recorded cell that the reader sees, or what the recording says."""
    try:
        lesson = nbformat.read(lesson_file(recording.path.stem), as_version=4)
    except LookupError:  # it has gone
        return cell.begins
    sources = (one.source for one in code_cells(lesson))
    return next((_cell_label(one) for one in sources if parsed(one).hash == cell.cell), cell.begins)


def syntax_trees(found: list[tuple[CodeCell, list[Statement]]]) -> list[Any]:
    """The syntax trees of %%gpu cells and of all on which they depend."""
    every = [one for cell, before in found for one in (*before, *parsed(cell.source).statements)]
    return [one.node for one in {one.hash: one for one in every}.values()]


def _pretty(value: Any, indent: str = "") -> str:
    """JSON in which what is short is one line, and everything else has a line for each item."""
    flat = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if not isinstance(value, dict | list) or len(flat) <= WIDTH:
        return flat
    if isinstance(value, dict):
        parts = [
            f"{json.dumps(key, ensure_ascii=False)}: {_pretty(item, indent + ' ')}"
            for key, item in value.items()
        ]
    else:
        parts = [_pretty(item, indent + " ") for item in value]
    opening, closing = flat[0], flat[-1]
    lines = ",".join(f"\n{indent} {part}" for part in parts)
    return f"{opening}{lines}\n{indent}{closing}"


def find_recording(name: str, gpu: str = REFERENCE_GPU, traces: Path = TRACES) -> Recording:
    """The recording of a lesson on a GPU, both by their names in traces/; the reference GPU's, if
    that one has none.

    Raises RecordingError.
    """
    known = sorted(path.name for path in traces.glob("*/") if path.name != "local")
    if gpu not in known:
        asked = gpu if len(gpu) < 60 else gpu[:57] + "..."
        give = f"give the name of one ({', '.join(known)})"
        raise RecordingError(f"{asked!r} is no folder of traces/: {give}.")
    there = traces / gpu / f"{name}.json"
    return Recording.read(there if there.exists() else traces / REFERENCE_GPU / there.name)


def recordings_of(name: str, traces: Path = TRACES) -> list[Recording]:
    """Every recording of a lesson, the reference GPU's first. Raises RecordingError if one is
    damaged.
    """
    paths = sorted(traces.glob(f"*/{name}.json"))
    paths.sort(key=lambda path: path.parent.name != REFERENCE_GPU)
    return [Recording.read(path) for path in paths if path.parent.name != "local"]


def digest(content: dict[str, Any]) -> str:
    """Of everything in a recording but the digest itself; the same however JSON and line ends are
    written.
    """
    return hashlib.sha256(json.dumps(content, sort_keys=True, allow_nan=False).encode()).hexdigest()


def trace_hash(trace: Path) -> str:
    """A hash of what is read out of a trace for each of its steps; "" if it cannot be read.

    What only reads traces does not count for a recording as long as this stays the same.
    """
    try:
        steps = read_trace(trace).per_step()
    except TraceError:
        return ""
    columns = ["gpu_busy_us", "launches", "graph_launches", "kernels"]
    return short_hash(steps[columns].round(1).to_numpy().tolist())


def trace_name(name: str, content: bytes) -> str:
    """The file name of a recorded trace: it says which content belongs in it."""
    return f"{name}-{hashlib.sha256(content).hexdigest()[:12]}.json.gz"


def changes_since(
    notebook: nbformat.NotebookNode, recording: Recording, root: Path = ROOT
) -> list[str]:
    """What has changed since the recording was made, a sentence each; an empty list if it is fresh.

    Compares the %%gpu cells, in order, the statements on which they depend, and what they reach by
    name. Of the cells only the first that differs is named. Another copy of a tool changes nothing.
    """
    cells = cell_needs(code_cells(notebook))
    now, then = hashes(syntax_trees(cells), root), recording.about["definitions"]
    names = {*redefined(now, then, root), *lost_names(now, then)}
    return [*_first_change(cells, recording), *(f"{name} has changed" for name in sorted(names))]


def _first_change(now: list[tuple[CodeCell, list[Statement]]], recording: Recording) -> list[str]:
    known = {one for hashed in recording.statements.values() for one in hashed}
    for found, then in zip_longest(now, recording.cells):
        if found is None:
            return [f"the %%gpu cell that begins with `{then.begins}` was taken out"]
        cell, before = found
        if then is None or parsed(cell.source).hash != then.cell:
            return [f"{cell} has changed"]
        if hash_all(before) != then.after:
            others = [f"`{one}`" for one in before if one.hash not in known]
            what = " and ".join(others) or "other statements than those"
            return [f"{cell} depends on {what} before it, which was not recorded"]
    return []
