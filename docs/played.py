"""Every lesson with what its cells show, played once for the site, read/ and the minutes.

What was played is kept in docs/_build/played until a lesson, its recording, or the project's code
changes.
"""

import hashlib
from collections.abc import Iterable
from functools import cache
from importlib.metadata import version
from pathlib import Path

import nbformat
from filelock import FileLock

from course.files import replacing
from course.lessons import lessons
from course.paths import ROOT, TRACES, lesson_name
from course.player import play_in_parallel
from course.recordings.reached_code import ROOMS
from exercises.unfinished import missing_recording

KEPT = ROOT / "docs/_build/played"
PACKAGES = ("torch", "pandas", "matplotlib", "ipython")


def recorded_lessons() -> list[Path]:
    """The lessons that have their recording, in reading order: lists and pages show no other."""
    return [path for path in lessons() if not missing_recording(path)]


def played(paths: Iterable[Path]) -> dict[Path, nbformat.NotebookNode]:
    """The lessons, each with its outputs. Who asks while they are played waits for them."""
    kept = {path: KEPT / f"{lesson_name(path)}-{_state(path)}.ipynb" for path in paths}
    KEPT.mkdir(parents=True, exist_ok=True)
    with FileLock(KEPT / "lock"):
        if missing := [path for path, file in kept.items() if not file.exists()]:
            for path, notebook in play_in_parallel(missing).items():
                for old in KEPT.glob(f"{lesson_name(path)}-*"):
                    old.unlink()
                with replacing(kept[path]) as file:
                    nbformat.write(notebook, file)
    return {path: nbformat.read(file, as_version=4) for path, file in kept.items()}


def _state(path: Path) -> str:
    """A hash of all that a lesson's outputs depend on."""
    name = lesson_name(path)
    files = [path, *TRACES.glob(f"*/{name}.json")]
    digests = [hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(files)]
    return hashlib.sha256("".join([*digests, _hash_of_code()]).encode()).hexdigest()[:12]


@cache
def _hash_of_code() -> str:
    """A hash of the project's code, and of the versions that it runs with."""
    files = [file for room in ROOMS for file in (ROOT / room).rglob("*.*")]
    texts = [file.read_bytes() for file in sorted(files) if file.suffix != ".pyc"]
    versions = [version(package).encode() for package in PACKAGES]
    return hashlib.sha256(b"\0".join([*texts, *versions])).hexdigest()
