"""Lines: where in the user's code a program is.

The user's code is what is neither in torch nor in the standard library nor among installed
packages.
"""

import functools
import linecache
import os
import sys
import sysconfig
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import torch

TORCH = str(Path(torch.__file__).parent) + os.sep
OURS = str(Path(__file__).parent) + os.sep
STAND_IN = "cpu_graph"  # which is no code of the user's, wherever it is installed
STANDARD = tuple(sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib"))
INSTALLED = tuple(sysconfig.get_path(name) + os.sep for name in ("purelib", "platlib"))
WRAPPERS = ("utils/_", "_compile.py", "_dynamo/", "_ops.py")  # of torch, in front of everything


class Line(NamedTuple):
    """A line of code: file, number and the function around it."""

    file: str
    number: int
    function: str

    @classmethod
    def of(cls, frame: FrameType) -> "Line":
        """The line that a frame runs."""
        return cls(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)

    @property
    def text(self) -> str:
        """The line's code, "" if there is none to read."""
        return linecache.getline(self.file, self.number).strip()

    def __str__(self) -> str:
        """function:number and the text; the number counts from the top of its file or cell."""
        return f"{self.function}:{self.number}  {self.text}".rstrip()


@functools.cache
def owner_of_file(file: str, module: str = "") -> str:
    """Whose a source file, and the module made of it, is: user, torch, library, python or ours."""
    if file.startswith("<"):  # generated code, or that of python -c
        return "user" if module == "__main__" else "python"
    if file.startswith(OURS) or module.partition(".")[0] == STAND_IN:
        return "ours"
    if file.startswith(TORCH):
        return "torch"
    if is_installed(file):
        return "library"
    return "python" if file.startswith(STANDARD) else "user"


def is_installed(file: str) -> bool:
    """Whether a source file belongs to an installed package."""
    if "site-packages" in file or "dist-packages" in file:
        return True
    return file.startswith((*INSTALLED, *_pip_target_folders()))


@functools.cache
def _pip_target_folders() -> tuple[str, ...]:
    """Folders of pip install --target on the path: they hold *.dist-info, too."""
    folders = [Path(entry) for entry in sys.path if entry]
    return tuple(f"{folder}{os.sep}" for folder in folders if any(folder.glob("*.dist-info")))


def is_users(file: str, module: str = "") -> bool:
    """Whether a source file, and the module made of it, are the user's own."""
    return owner_of_file(file, module) == "user"


def is_user_frame(frame: FrameType) -> bool:
    """Whether a frame runs the user's own code."""
    return is_users(frame.f_code.co_filename, frame.f_globals.get("__name__", ""))


class CodeLocation(NamedTuple):
    """Where the program is: the innermost line of the user's code, the innermost file of torch
    before it (such as optim/sgd.py, or ""), and the innermost line of another library's
    before it, or None."""

    line: Line
    library: str = ""
    inside: Line | None = None


def here(thread: int | None) -> CodeLocation:
    """Where a thread of this process is, by its id; None for this thread alone.

    On autograd's threads there is no line of the user's; then it is that at which thread waits in
    backward().
    """
    for frame in (sys._getframe(1), sys._current_frames().get(thread or 0)):
        library, inside = "", None
        while frame:
            file = frame.f_code.co_filename
            whose = owner_of_file(file, frame.f_globals.get("__name__", ""))
            if whose == "user":
                return CodeLocation(Line.of(frame), library, inside)
            if whose == "torch" and not library and not file[len(TORCH) :].startswith(WRAPPERS):
                library = file[len(TORCH) :]
            if whose == "library" and not inside:
                inside = Line.of(frame)
            frame = frame.f_back
    return CodeLocation(Line("", 0, "step"))
