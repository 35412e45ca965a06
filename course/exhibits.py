"""The failure gallery's tools: show a failure as it really appears, assert it, and assert its mend."""

import gc
import inspect
import signal
import subprocess
import sys
import textwrap
import traceback
import warnings
from contextlib import contextmanager

import pandas as pd

CUDA_ERRORS = {  # as cudaGetErrorString words them; torch gives the text, not the number
    700: "an illegal memory access was encountered",
    900: "operation not permitted when stream is capturing",
    901: "operation failed due to a previous error during capture",
    904: "capturing stream has unjoined work",
    905: "dependency created on uncaptured work in another stream",
    906: "operation would make the legacy stream depend on a capturing blocking stream",
    907: "operation not permitted on an event last recorded in a capturing stream",
}
ALWAYS_THE_SAME = ("CUDA kernel errors might", "For debugging consider", "Compile with `TORCH_USE")
PRELUDE = 'import sys, torch; exec(compile(sys.stdin.read(), "alone.py", "exec"), {"torch": torch})'

_shown, _spare = {}, []


@contextmanager
def fails(title, says, error="RuntimeError", where=""):
    """Catch what the block raises or warns, assert its type and text, and show it as it appears.

    says: a part of the message, or the number of a CUDA error, which torch raises as AcceleratorError.
    error: the exact name of its type; a Warning's name asserts a warning. where: a regular expression
    for the code that raises it, by which capturable.explain tells apart failures with one message.
    Raises AssertionError if anything else happens.
    """
    says, error = (CUDA_ERRORS[says], "AcceleratorError") if says in CUDA_ERRORS else (says, error)
    told = None
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            yield
        except Exception as raised:
            told = _tell(raised)
    if error.endswith("Warning"):
        told = told or next((_tell(warning.message) for warning in warned if says in str(warning.message)), None)
    gc.collect()  # what a traceback kept alive may hold graphs
    kind, text, appears, whole = told or ("nothing", "", "", "")
    assert kind == error and says in text, f"{title!r}: expected {error}, {says!r}, not {kind}: {text}"
    _show(title, "loud", says, appears, traceback=whole)


def silent(title, symptom, got, wrong, right):
    """Assert that got is the wrong value, where right would be right, and show both."""
    got = _plain(got)
    assert got == wrong != right, f"{title!r}: expected the wrong value {wrong}, not {got}"
    _show(title, "silent", symptom, f"gives {got}, and {right} would be right", right=right)


def alone(title, says, function, where=""):
    """Run a function without arguments in a process of its own, and assert that it dies saying so.

    For what would take this process's CUDA context along. The function may use torch and nothing
    else from outside. Shows the last words and the exit code. where: as in fails.
    """
    says = CUDA_ERRORS.get(says, says)
    if not _spare:
        start_spare()
    process = _spare.pop()
    start_spare()  # for the next one
    source = textwrap.dedent(inspect.getsource(function)) + f"\n{function.__name__}()\n"
    try:
        last_words = process.communicate(source, timeout=120)[1]
    finally:
        process.kill()
    lines = [line for line in last_words.splitlines() if not line.startswith(("frame #", "Exception raised from"))]
    ending = signal.Signals(-process.returncode).name if process.returncode < 0 else process.returncode
    found = next((line for line in lines if says in line), "nothing of the kind")
    assert process.returncode and says in found, f"{title!r}: expected {says!r} and a failure, not:\n{last_words}"
    _show(title, "loud", says, f"{found.strip()}\nexit: {ending}", traceback="\n".join(lines))


def start_spare():
    """Start a process that imports torch and waits, without GPU memory, for alone() to use it."""
    pipe = subprocess.PIPE
    _spare.append(subprocess.Popen([sys.executable, "-c", PRELUDE], stdin=pipe, stdout=pipe, stderr=pipe, text=True))


def mended(got, right=None):
    """Assert that the mended code of the exhibit shown last gives the right value, and show it."""
    exhibit, got = list(_shown.values())[-1], _plain(got)
    right = exhibit["right"] if right is None else right
    assert got == right, f"{exhibit['exhibit']!r}, mended: expected {right}, not {got}"
    exhibit["mended"] = True
    print(f"mended: {got}")


def shown():
    """Everything shown so far, a row each: exhibit, kind, says, message, traceback, mended."""
    return pd.DataFrame(list(_shown.values())).drop(columns="right")


def _show(title, kind, says, message, right=None, traceback=""):
    row = {"exhibit": title, "kind": kind, "says": says, "message": message, "traceback": traceback}
    _shown.pop(title, None)  # a cell run again comes last
    _shown[title] = row | {"mended": False, "right": right}
    print(message)


def _tell(error):
    """Type and text of the first error of a chain, the chain as it appears, and its traceback."""
    chain = _chain(error)
    appears = "\n".join(map(_as_it_appears, chain))
    return type(chain[0]).__name__, str(chain[0]), appears, "".join(traceback.format_exception(error))


def _chain(error):
    """The error and those during whose handling it was raised, first things first."""
    return ([] if error.__context__ is None else _chain(error.__context__)) + [error]


def _as_it_appears(error):
    lines = [line for line in str(error).splitlines() if line and not line.startswith(ALWAYS_THE_SAME)]
    return f"{type(error).__name__}: " + "\n".join(lines)


def _plain(value):
    return value.tolist() if hasattr(value, "tolist") else value
