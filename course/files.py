"""Write a file as a whole or not at all, and which files changed."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from course.paths import ROOT, LessonError, short

IN_THE_WAY = FileExistsError | IsADirectoryError | NotADirectoryError | PermissionError


class SavingError(LessonError):
    """A file that could not be written; what it should have replaced is as it was."""


@contextmanager
def replacing(path: Path | str) -> Iterator[Path]:
    """Give the block a path to write to; what it wrote becomes the file at path once the block
    ends.

    The file is written beside path, in a folder of its own that goes away again, so that an error,
    an interrupt or a full disk leaves an earlier file as it was. Missing folders are made. Raises
    SavingError, one sentence, for what the disk refused; other errors of the block come through.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".saving-") as folder:
            yield Path(folder) / path.name
            (Path(folder) / path.name).replace(path)
    except OSError as error:
        existing = next(folder for folder in path.parents if folder.exists())
        free = shutil.disk_usage(existing).free >> 20
        in_the_way = isinstance(error, IN_THE_WAY)
        raise SavingError(
            f"{short(path)} could not be written ({error.strerror}; {free} MiB free on that disk): "
            f"{'see what is in the way' if in_the_way else 'make room'} and run this again; "
            "what was there before is unchanged."
        ) from error


def changed_files(root: Path = ROOT) -> list[str]:
    """The files that differ from the last commit, those that git does not know yet among them."""
    words = ["git", "status", "--porcelain", "-z", "--untracked-files=all", "--no-renames"]
    lines = subprocess.check_output(words, cwd=root, text=True).split("\0")
    return [line[3:] for line in lines if line]
