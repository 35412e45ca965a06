"""What an answer raised, in words, and on which line of the notebook."""

import linecache
import traceback
from collections.abc import Mapping
from typing import Any


def error_summary(error: BaseException) -> str:
    """An error's type and the first line of its message; never raises, whatever its
    __str__ does.
    """
    try:
        first = str(error).strip().partition("\n")[0]
    except Exception:
        first = ""
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def interruption_with_line(
    error: KeyboardInterrupt, notebook: Mapping[str, Any]
) -> KeyboardInterrupt:
    """The interruption of an answer, with a sentence that says where it was."""
    where = notebook_line(error, notebook).strip() or "in code that it calls"
    return KeyboardInterrupt(f"The answer was interrupted {where}. Does a loop never end?")


def notebook_line(error: BaseException, notebook: Mapping[str, Any]) -> str:
    """The innermost line of the notebook that the error went through; "" if there is none.

    notebook: its global variables, by which its frames are known from those of libraries.
    """
    walked = traceback.walk_tb(error.__traceback__)
    frames = [(frame, line) for frame, line in walked if frame.f_globals is notebook]
    if not frames:
        return ""
    frame, line = frames[-1]
    source = linecache.getline(frame.f_code.co_filename, line, frame.f_globals).strip()
    return f"  (at line {line}: {source})" if source else f"  (at line {line})"
