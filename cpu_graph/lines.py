"""The line of the program that a launch comes from."""

import sys
import sysconfig
from functools import cache
from pathlib import Path

import torch

# of Python, of what is installed, and of the stand-in itself
NOT_THE_PROGRAMS = tuple(
    {f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    | {f"{Path(__file__).parent}/", f"{Path(torch.__file__).parent}/", "<frozen "}
)


@cache
def of_the_program(code):
    """Whether a code object is the program's own."""
    return not code.co_filename.startswith(NOT_THE_PROGRAMS)


def users_frame():
    """The innermost frame that is the program's own, or None."""
    frame = sys._getframe(1)
    while frame is not None and not of_the_program(frame.f_code):
        frame = frame.f_back
    return frame


def users_line():
    """(file, line) of the innermost frame that is the program's own, or None."""
    frame = users_frame()
    return frame and (frame.f_code.co_filename, frame.f_lineno)


def shown(line):
    """train.py:31 for a line of the program."""
    return f"{Path(line[0]).name}:{line[1]}" if line else "a line that is not known"
