"""An answer that never ends, or grows without end, is stopped.

A loop inside of C, such as sum(itertools.repeat(0)), lets nothing else of the process run: it can
be neither stopped nor told, and the kernel has to be restarted.
"""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

SECONDS = 120.0  # of an answer; compiling a kernel takes one of them
GRACE = 10.0  # seconds more, after which one that does not stop is told what helps
MIB = 4096  # that an answer may add to the process


ENDLESS = "The answer does not let itself be stopped: restart the kernel."


class AnswerStopped(BaseException):
    """An answer was stopped; no `except Exception` of its own keeps that from the check."""


@contextmanager
def limit_time_and_memory(seconds: float = SECONDS, mib: int = MIB) -> Iterator[None]:
    """Stop the block after this time, or when it takes this much more memory.

    Raises Stopped with a sentence. Memory is limited on Linux, and time in the main thread, where a
    notebook's cells run; elsewhere nothing is.
    """
    try:
        with _memory_limit(mib), _time_limit(seconds):
            yield
    except (MemoryError, RuntimeError) as error:
        if said := out_of_memory_message(error, mib):
            raise AnswerStopped(said) from None
        raise


def out_of_memory_message(error: BaseException, mib: int = MIB) -> str:
    """A sentence if the error says that memory ran out, as Python or as torch says it; else ""."""
    if not isinstance(error, MemoryError) and "can't allocate memory" not in str(error):
        return ""
    return (
        f"it was stopped: it took more than {mib / 1024:g} GiB of memory. Does something grow "
        "without an end?"
    )


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        raise AnswerStopped(
            f"it was stopped: it ran for more than {seconds:g} seconds. Does a loop never end?"
        )

    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "SIGALRM"):
        yield
        return
    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1)  # again, if the answer catches the first
    telling = threading.Timer(seconds + GRACE, print, [ENDLESS], {"flush": True})
    telling.daemon = True
    telling.start()
    try:
        yield
    finally:
        telling.cancel()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _memory_limit(mib: int) -> Iterator[None]:
    if sys.platform != "linux":
        yield
        return
    import resource  # here, because Windows has none

    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = _private_memory_bytes() + mib * 2**20
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _private_memory_bytes() -> int:
    """What counts for RLIMIT_DATA: the process's private writable memory."""
    status = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    line = next(line for line in status if line.startswith("VmData:"))
    return int(line.split()[1]) * 1024
