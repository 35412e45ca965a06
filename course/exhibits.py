"""The failure gallery's tools: show a failure as it really appears, assert it, and assert
its fix.
"""

import gc
import inspect
import signal
import subprocess
import sys
import textwrap
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pandas as pd
from IPython.display import Markdown

from capturable.causes import CauseEntry, cuda_errors, standard_cause_name
from capturable.explain import entries
from course.lesson import current
from course.lessons import lesson_file
from course.recordings.recording import RecordingError

CUDA_ERRORS = cuda_errors()  # torch gives the text, not the number
ALWAYS_THE_SAME = (  # lines of CUDA's messages, which the lesson shows once
    "CUDA kernel errors might",
    "For debugging consider",
    "Compile with `TORCH_USE",
    "For more detailed",
    "Search for `cudaError",
    "The CUDA driver logged these messages",
)
TRACEBACK_IN_A_MESSAGE = "    "  # how torch's check of input liveness indents them
PRELUDE = 'import sys, torch; exec(compile(sys.stdin.read(), "alone.py", "exec"), {"torch": torch})'

_shown, _spare = {}, []


@contextmanager
def fails(
    title: str,
    says: str | int | tuple,
    error: str = "RuntimeError",
    until: str = "",
    since: str = "",
) -> Iterator[None]:
    """Catch what the block raises or warns, assert its type and text, and show it as it appears.

    says: a part of the message, or the number of a CUDA error, which torch raises as
    AcceleratorError; or a tuple of them, where torch's versions differ. error: the exact name of
    the type; a Warning's asserts a warning. until: the first version that need not raise. since:
    the first version that raises; an older one must not. Else raises AssertionError.
    """
    told = None
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            yield
        except Exception as raised:
            told = _error_parts(raised)
    if error.endswith("Warning"):
        fitting = (warning.message for warning in warned if str(says) in str(warning.message))
        told = told or next(map(_error_parts, fitting), None)
    gc.collect()  # what a traceback kept alive may hold graphs
    texts = says if isinstance(says, tuple) else (says,)
    known = {
        CUDA_ERRORS.get(one, one): "AcceleratorError" if one in CUDA_ERRORS else error
        for one in texts
    }
    if until and not told and (version := _torch_version_if_at_least(until)):
        _add_entry(title, "loud", next(iter(known)), f"nothing: torch {version} runs it")
        return
    if since and not told and not _torch_version_if_at_least(since):
        version = sys.modules["torch"].__version__
        _add_entry(title, "loud", next(iter(known)), f"nothing: torch {version} has no such check")
        return
    kind, text, appears, whole = told or ("nothing", "", "", "")
    found = next((part for part, name in known.items() if kind == name and part in text), None)
    assert found, f"{title!r}: expected {known}, not {kind}: {text}"
    _add_entry(title, "loud", found, appears, traceback=whole)


def silent(
    title: str, symptom: str, got: object, wrong: object, right: object, cured_by: str = ""
) -> None:
    """Assert that got is the wrong value, where right would be right, and show both.

    cured_by: what gives the right value on this machine, if anything; then that one is asserted.
    """
    got = _to_python_value(got)
    if cured_by:
        assert got == right, f"{title!r}: {cured_by} should give {right}, not {got}"
        _add_entry(title, "silent", symptom, f"gives {got}: {cured_by} is right", right=right)
        return
    assert got == wrong != right, f"{title!r}: expected the wrong value {wrong}, not {got}"
    _add_entry(title, "silent", symptom, f"gives {got}, and {right} would be right", right=right)


def fails_in_process(title: str, says: str | int | tuple, function: Callable[[], object]) -> None:
    """Run a function without arguments in a process of its own, and assert that it dies saying so.

    For what would take this process's CUDA context along. The function may use torch and nothing
    else from outside. Shows the last words and the exit code. says: as in fails.
    """
    known = [CUDA_ERRORS.get(one, one) for one in (says if isinstance(says, tuple) else (says,))]
    if not _spare:
        start_spare()
    process = _spare.pop()
    start_spare()  # for the next one
    source = textwrap.dedent(inspect.getsource(function)) + f"\n{function.__name__}()\n"
    try:
        last_words = process.communicate(source, timeout=120)[1]
    finally:
        process.kill()
    lines = [
        line
        for line in last_words.splitlines()
        if not line.startswith(("frame #", "Exception raised from"))
    ]
    ending = (
        signal.Signals(-process.returncode).name if process.returncode < 0 else process.returncode
    )
    said, line = next(
        ((part, line) for line in lines for part in known if part in line), (None, "")
    )
    assert process.returncode and said, (
        f"{title!r}: expected {known} and a failure, not:\n{last_words}"
    )
    _add_entry(title, "loud", said, f"{line.strip()}\nexit: {ending}", traceback="\n".join(lines))


def start_spare() -> None:
    """Start a process that imports torch and waits, without GPU memory, until
    fails_in_process() uses it.
    """
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    _spare.append(subprocess.Popen([sys.executable, "-c", PRELUDE], **pipes, text=True))  # type: ignore[call-overload]


def assert_fixed(got: object, right: object = None) -> None:
    """Assert that the fixed code of the exhibit shown last gives the right value, and show it."""
    exhibit, got = list(_shown.values())[-1], _to_python_value(got)
    right = exhibit["right"] if right is None else right
    assert got == right, f"{exhibit['exhibit']!r}, fixed: expected {right}, not {got}"
    exhibit["fixed"] = True
    print(f"fixed: {got}")


def shown_exhibits() -> pd.DataFrame:
    """Everything shown so far, a row each: exhibit, kind, says, message, traceback, fixed."""
    return pd.DataFrame(list(_shown.values())).drop(columns="right")


def index(exhibits: pd.DataFrame) -> Markdown:
    """The gallery's index: what one sees (exhibits: from shown), the exhibit, the lesson that
    teaches the fix.
    """
    known = {entry.title: entry for entry in entries()}
    rows = ["| what you see | entry | lesson |", "|---|---|---|"]
    for one in exhibits.itertuples():
        if one.kind == "silent" or one.message.startswith("nothing: "):  # it runs here
            sight = one.says
        else:
            sight = one.message.splitlines()[0].replace("|", " ")
        sight = sight.replace("<", "&lt;")
        entry = known[one.exhibit]
        if entry.index_note:
            sight += f" ({entry.index_note})"
        lesson = entry.lesson
        link = f"[{lesson.replace('_', ' ')}]({lesson_file(lesson).name})" if lesson else "here"
        heading = standard_cause_name(entry)
        rows.append(f"| {sight} | [{heading}](#{heading.replace(' ', '-')}) | {link} |")
    return Markdown("\n".join(rows))


def recorded_index() -> Markdown:
    """The index as the open lesson's recording has it, before anything has run."""
    try:
        exhibits = current().recording.value("exhibits")
    except RecordingError:  # the first recording is being made
        return Markdown("")
    return index(exhibits)


def index_of_causes(*names: str) -> Markdown:
    """The causes that these lessons treat (names without numbers): what one sees, the cause, the
    lesson. A cause links to its heading there.
    """
    rows = ["| message or symptom | cause | lesson |", "|---|---|---|"]
    for name in names:
        causes = (one for one in entries() if one.lesson == name and not one.exhibit)
        rows += [_cause_row(entry) for entry in causes]
    return Markdown("\n".join(rows))


def _cause_row(entry: CauseEntry) -> str:
    """A row of index_of_causes."""
    first = entry.messages[0].replace("<", "&lt;")
    file = lesson_file(entry.lesson).name
    heading = entry.heading.replace(" ", "-")
    link = f"{file}#{heading}" if heading else file
    lesson = f"[{entry.lesson.replace('_', ' ')}]({file})"
    return f"| {first} | [{standard_cause_name(entry)}]({link}) | {lesson} |"


def _torch_version_if_at_least(version):
    """The running version of torch (which compares "2.9" < "2.13") if it is not older than version,
    else "".
    """
    return running if (running := sys.modules["torch"].__version__) >= version else ""


def _add_entry(title, kind, says, message, right=None, traceback=""):
    row = {"exhibit": title, "kind": kind, "says": says, "message": message, "traceback": traceback}
    _shown.pop(title, None)  # a cell run again comes last
    _shown[title] = row | {"fixed": False, "right": right}
    print(message)


def _error_parts(error):
    """Type and text of the first error of a chain, the chain as it appears, and its traceback.

    Error 901 behind another error is left out: every capture that fails ends with it.
    """
    chain = [error]
    while chain[0].__context__ is not None:
        chain.insert(0, chain[0].__context__)
    told = chain[:1] + [later for later in chain[1:] if CUDA_ERRORS[901] not in str(later)]
    appears = "\n".join(map(_as_it_appears, told))
    return (
        type(chain[0]).__name__,
        str(chain[0]),
        appears,
        "".join(traceback.format_exception(error)),
    )


def _as_it_appears(error):
    lines = [
        line
        for line in str(error).splitlines()
        if line and not line.startswith((*ALWAYS_THE_SAME, TRACEBACK_IN_A_MESSAGE))
    ]
    return f"{type(error).__name__}: " + "\n".join(lines)


def _to_python_value(value):
    return value.tolist() if hasattr(value, "tolist") else value
