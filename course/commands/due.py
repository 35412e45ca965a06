"""Say which lessons are to be recorded anew, and why:  python -m course.commands.due"""

import sys
from pathlib import Path

import nbformat

from course.lessons import lesson_file
from course.paths import CONFORMANCE, TRACES
from course.recordings.cells import code_cells
from course.recordings.reached_code import tool_changes
from course.recordings.recording import Recording, changes_since, code_hashes, trace_hash


def recording_paths() -> list[Path]:
    """All recordings in traces/ but the learner's own."""
    own = TRACES / "local"
    paths = sorted(TRACES.glob("*/*.json"))
    return [path for path in paths if path.parent != own and path.name != CONFORMANCE.name]


def changed_tools(path: Path) -> list[str]:
    """A sentence for each tool of which a recording used another copy than this one."""
    cells = code_cells(nbformat.read(lesson_file(path.stem), as_version=4))
    then = Recording.read(path).about["definitions"]
    differ = tool_changes(code_hashes(cells)["definitions"], then)
    return [f"used {tool} {old}, and this copy is {new}" for tool, (old, new) in differ.items()]


def changed_trace_readings(path: Path) -> list[str]:
    """A sentence for each trace of a recording out of which other numbers are read than then."""
    recording = Recording.read(path)
    readings = recording.about["readings"].items()
    changed = [name for name, then in readings if trace_hash(recording.trace(name)) != then]
    return [f"helpers.trace reads other numbers out of its trace {name}" for name in changed]


def main() -> int:
    """A line for each lesson to record, then the command; returns 1 if one is stale."""
    found, names = 0, []
    for path in recording_paths():
        notebook = nbformat.read(lesson_file(path.stem), as_version=4)
        changes = changes_since(notebook, Recording.read(path))
        changes += changed_trace_readings(path)
        if sentences := [*changes, *changed_tools(path)]:
            found += bool(changes)
            names.append(path.stem)
            print(f"{path.stem} ({path.parent.name}): {'; '.join(sentences)}.")
    print(f'make record ARGS="{" ".join(names)}"' if names else "Every recording is up to date.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
