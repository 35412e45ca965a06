"""Give recordings the hashes of today's code, where it is the program that they were made with:

    python -m course.commands.carry_over COMMIT [OLD NEW]

COMMIT is one where they were fresh, by its own rule. OLD NEW: a name that has changed since, all
over the project. What was measured stays byte for byte; a recording that was not fresh there, or
whose program has changed since, stays as it is and is named.
"""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat

from course.commands.due import recording_paths
from course.files import replacing
from course.lessons import lesson_file
from course.paths import NOTEBOOKS, ROOT, LessonError
from course.recordings.cells import code_cells
from course.recordings.counts import TOOLS
from course.recordings.recording import Recording, changes_since, code_hashes, json_text, trace_hash

CHANGES = """\
import json, sys, nbformat
from pathlib import Path
from course.lessons import lesson_file
from course.recordings import recording

changes_since = getattr(recording, "changes_since", None) or recording.stale  # its older name

changes = {}
for path in map(Path, sys.argv[1:]):
    try:
        notebook = nbformat.read(lesson_file(path.stem), as_version=4)
        changes[str(path)] = changes_since(notebook, recording.Recording.read(path))
    except (RuntimeError, LookupError) as error:
        changes[str(path)] = [str(error)]
print(json.dumps(changes))
"""  # code, because the code of another commit runs it
TEXT: dict[str, Any] = {"check": True, "capture_output": True, "text": True}


class RefusedError(LessonError):
    """A recording that cannot be carried over."""


def carry_over(commit: str, renamed: tuple[str, str] | None = None) -> tuple[list[str], list[str]]:
    """Carry all recordings over from a commit; returns the lessons that got other hashes, and a
    sentence for each that is refused.
    """
    paths = [path.relative_to(ROOT) for path in recording_paths()]
    with _temporary_worktree(commit) as base:
        there = [path for path in paths if (base / path).exists()]
        command = [sys.executable, "-c", CHANGES, *map(str, there)]
        changes = json.loads(subprocess.run(command, cwd=base, **TEXT).stdout)
        if renamed:
            _rename_in_code(base, *renamed)
        carried, refused = [], []
        for path in paths:
            try:
                if path not in there:
                    raise RefusedError(f"{path.stem} has no recording there")
                if found := changes[str(path)]:
                    raise RefusedError(f"{path.stem} was not fresh there: {'; '.join(found)}")
                if _rehash_recording(path, base):
                    carried.append(path.stem)
            except RefusedError as error:
                refused.append(str(error))
    return carried, refused


def _rehash_recording(path: Path, base: Path) -> bool:
    """Write a recording's new hashes; returns whether any differs. Raises RefusedError."""
    text = (ROOT / path).read_text(encoding="utf-8")
    if text != (base / path).read_text(encoding="utf-8"):
        raise RefusedError(f"{path.stem} has another recording now than there")
    content = json.loads(text)
    file = lesson_file(path.stem)
    there = lesson_file(path.stem, base / NOTEBOOKS.relative_to(ROOT))
    then = code_hashes(code_cells(_notebook(there)), base)
    if found := changes_since(_notebook(file), Recording.from_content(path, content | then)):
        raise RefusedError(f"{path.stem} has changed since: {'; '.join(found)}")
    now = code_hashes(code_cells(_notebook(file)))
    for cell, old in zip(now["cells"], content["cells"], strict=True):
        if cell["cell"] == old["cell"]:  # a comment of its first line is no change
            cell["begins"] = old["begins"]
    # a tool is that of the recording, not this copy
    tools = {tool: then["definitions"][tool] for tool in TOOLS if tool in now["definitions"]}
    known = {tool: old for tool, old in content["definitions"].items() if tool in tools}
    now["definitions"] |= tools | known
    about = {key: part for key, part in content.items() if key not in {"digest", *now}}
    folder = (ROOT / path).with_suffix("")  # how traces are read may have changed, too
    files = about["traces"].items()
    about["readings"] = {name: trace_hash(folder / file) for name, file in files}
    kept = ("values", "outputs")
    measured = [{key: cell[key] for key in kept if key in cell} for cell in content["cells"]]
    new = json_text(about, now, measured)
    if new != text:
        with replacing(ROOT / path) as target:
            target.write_text(new, encoding="utf-8", newline="\n")
    return new != text


def _notebook(file: Path) -> nbformat.NotebookNode:
    return nbformat.read(file, as_version=4)


@contextmanager
def _temporary_worktree(commit: str) -> Iterator[Path]:
    """The project as it was at a commit, in a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder).resolve() / "base"
        git = ["git", "-C", str(ROOT)]
        subprocess.run([*git, "worktree", "add", "--detach", str(base), commit], **TEXT)
        try:
            yield base
        finally:
            subprocess.run([*git, "worktree", "remove", "--force", str(base)], **TEXT)


def _rename_in_code(base: Path, old: str, new: str) -> None:
    """Rename a name in all code of a folder. Raises RefusedError if the new one is taken there."""
    files = [file for suffix in ("py", "ipynb") for file in base.rglob(f"*.{suffix}")]
    for file in files:
        text = file.read_text(encoding="utf-8")
        if re.search(rf"\b{re.escape(new)}\b", text):
            raise RefusedError(f"{new} is taken there already, in {file.relative_to(base)}")
        file.write_text(re.sub(rf"\b{re.escape(old)}\b", new, text), encoding="utf-8")


def main(arguments: list[str]) -> int:
    """Carry over, and say what was; returns 1 if a recording was refused, 2 for other arguments."""
    if len(arguments) not in (1, 3):
        print(__doc__, file=sys.stderr)
        return 2
    commit, *names = arguments
    try:
        carried, refused = carry_over(commit, (names[0], names[1]) if names else None)
    except RefusedError as error:
        carried, refused = [], [str(error)]
    except subprocess.CalledProcessError as error:
        print(error.stderr.strip() or str(error), file=sys.stderr)
        return 2
    print(f"{len(carried)} recordings got new hashes: {', '.join(carried) or 'none'}.")
    for sentence in refused:
        print(f"Refused: {sentence}.", file=sys.stderr)
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
