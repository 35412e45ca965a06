"""Lines: where in the user's code a program is.

The user's code is what lies neither in torch nor in the standard library nor among installed packages.
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

TORCH = str(Path(torch.__file__).parent)
OURS = str(Path(__file__).parent) + os.sep
INSTALLED = tuple(sysconfig.get_path(name) for name in ("purelib", "platlib"))
LIBRARIES = (TORCH, *INSTALLED, *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib")))
WRAPPERS = ("utils/_", "_compile.py", "_dynamo/", "_ops.py")  # of torch, which stand in front of everything


class Line(NamedTuple):
    """A line of code: file, number and the function around it."""

    file: str
    number: int
    function: str

    @classmethod
    def of(cls, frame: FrameType) -> "Line":
        """The line that a frame runs."""
        return cls(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)

    def __str__(self):
        """function:number and the text, where the number counts from the top of its file or cell."""
        return f"{self.function}:{self.number}  {linecache.getline(self.file, self.number).strip()}".rstrip()


@functools.cache
def is_users(file: str, module: str = "") -> bool:
    """Whether a source file, and the module made of it, are the user's own."""
    if file.startswith("<"):  # generated code, or that of python -c
        return module == "__main__"
    return not (file.startswith((*LIBRARIES, OURS)) or is_installed(file))


def is_installed(file: str) -> bool:
    """Whether a source file belongs to an installed package."""
    return "site-packages" in file or "dist-packages" in file or file.startswith(INSTALLED)


def runs_users(frame: FrameType) -> bool:
    """Whether a frame runs the user's own code."""
    return is_users(frame.f_code.co_filename, frame.f_globals.get("__name__", ""))


class Here(NamedTuple):
    """Where the program is: the innermost line of the user's code, the innermost file of torch before it, and
    the innermost line of another library's before it, or None."""

    line: Line
    library: str = ""
    inside: Line | None = None


def here(thread: int | None) -> Here:
    """Where a thread of this process is, by its id; None for this thread alone.

    On autograd's threads there is no line of the user's; then it is that at which thread waits in backward().
    """
    for frame in (sys._getframe(1), sys._current_frames().get(thread)):
        library, inside = "", None
        while frame:
            file = frame.f_code.co_filename
            if runs_users(frame):
                return Here(Line.of(frame), library, inside)
            part = file[len(TORCH) + 1 :] if file.startswith(TORCH) else ""
            if not library and not part.startswith(WRAPPERS):
                library = part
            if not part and not inside and is_installed(file) and not file.startswith(OURS):
                inside = Line.of(frame)
            frame = frame.f_back
    return Here(Line("", 0, "step"))
