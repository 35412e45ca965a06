"""Traces by the names that a report gives them."""

import re
from collections import Counter
from pathlib import Path

from trace_report.trace import Trace, read_trace

SUFFIXES = (".gz", ".json", ".pt.trace")
DIGEST = re.compile(r"(?<=.)[-_.](?=[a-f]*\d)[0-9a-f]{8,64}$")  # eager-83b5ea649e05


def read_named(files: list[str], limit_mib: int | None = None) -> dict[str, Trace]:
    """Read traces: FILE, which is called like the file, or NAME=FILE. Raises TraceError."""
    named = [split_name(file) for file in files]
    bare = Counter(DIGEST.sub("", name or trace_name(path)) for name, path in named)
    called = [name or _without_digest(trace_name(path), bare) for name, path in named]
    counts = Counter(called)
    traces: dict[str, Trace] = {}
    for name, (_, path) in zip(called, named, strict=True):
        name = f"{path.absolute().parent.name}/{name}" if counts[name] > 1 else name
        while name in traces:
            name += " again"
        traces[name] = read_trace(path, limit_mib, needs_gpu=False)
    return traces


def split_name(file: str) -> tuple[str, Path]:
    """The name that is given to a trace, or "", and its path."""
    name, equals, rest = file.partition("=")
    given = equals and not Path(file).exists()
    return (name, Path(rest)) if given else ("", Path(file))


def trace_name(path: Path) -> str:
    """A trace's name without what says that it is a trace: eager.pt.trace.json.gz -> eager."""
    name = path.name
    for suffix in SUFFIXES:
        name = name.removesuffix(suffix)
    return name or path.name


def _without_digest(name, counts):
    """The name without a digest at its end, unless others would be called the same."""
    bare = DIGEST.sub("", name)
    return bare if counts[bare] == 1 else name
