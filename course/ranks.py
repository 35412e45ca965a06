"""Ranks end with the cell that starts them, and with its kernel.

torchrun gives each rank a session of its own, so a kernel that is killed leaves its ranks on the
GPU. Processes are known by a mark in their environment, which they inherit. A watcher outlives the
kernel, and then ends all that have its mark.
"""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from course.paths import ROOT

MARK = "CUDA_GRAPHS_KERNEL"
SHARE = "CUDA_GRAPHS_SHARE_GPU"  # set, ranks may share one GPU
LIMIT = 120  # seconds for a run of ranks that share a GPU: they may wait for each other for ever
LAUNCHER = b"torch.distributed.run"  # in the command
RANK = b"TORCHELASTIC_RUN_ID="  # in the environment of what torchrun starts
TICK = 1.0  # seconds


def start_watcher(shell: Any, limit: float = 0) -> None:
    """Let ranks end with the cell of the shell that starts them, and with a limit after so many
    seconds. All that this process starts from now on ends with it. A second call changes nothing.
    """
    kernel = str(os.getpid())
    if os.environ.get(MARK, "").startswith(f"{kernel}-"):
        return
    mark = f"{kernel}-{time.time_ns()}"
    command = [sys.executable, "-m", "course.ranks", kernel, mark, str(limit)]
    subprocess.Popen(command, cwd=ROOT, start_new_session=True, stdin=subprocess.DEVNULL)
    os.environ[MARK] = mark
    shell.events.register("post_run_cell", end_ranks)


def end_ranks(*_: object) -> None:
    """End the ranks that this kernel has started, with what started them: after each cell."""
    if mark := os.environ.get(MARK):
        kill_marked(mark, LAUNCHER, RANK)


def kill_marked(mark: str, *words: bytes) -> None:
    """Kill the marked processes, and those that they start meanwhile."""
    give_up = time.monotonic() + 10
    while (there := marked_processes(mark, *words)) and time.monotonic() < give_up:
        send_signal(signal.SIGKILL, there)
        time.sleep(0.05)


def marked_processes(mark: str, *words: bytes) -> list[int]:
    """The processes, but this one, that have inherited the mark, and one of the words, if any, in
    their environment or command.
    """
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or is another user's
            environment = (folder / "environ").read_bytes()
            if f"{MARK}={mark}".encode() in environment.split(b"\0"):
                said = environment + (folder / "cmdline").read_bytes()
                if not words or any(word in said for word in words):
                    found.append(int(folder.name))
    return [process for process in found if process != os.getpid()]


def send_signal(number: signal.Signals, processes: list[int]) -> None:
    """Send a signal to processes, which may have ended."""
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, number)


def main(kernel: int, mark: str, limit: float) -> None:
    """The watcher: wait for the kernel's end, then end what it leaves behind."""
    since: dict[int, float] = {}
    while os.getppid() == kernel:
        time.sleep(TICK)
        if limit:
            now = time.monotonic()
            running = marked_processes(mark, LAUNCHER)
            since = {process: since.get(process, now) for process in running}
            if overdue := [process for process, began in since.items() if now - began > limit]:
                send_signal(signal.SIGTERM, overdue)  # torchrun then ends its ranks
                print(
                    f"Ranks that share a GPU were ended after {limit:g} s, their limit. Without "
                    f"{SHARE} in its environment, the lesson plays its recording.",
                    file=sys.stderr,
                    flush=True,
                )
    kill_marked(mark)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], float(sys.argv[3]))
