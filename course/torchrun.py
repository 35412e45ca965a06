"""Run a lesson's tasks on several ranks: PyTorch's
torchrun, on a script made of the lesson's own cells.
"""

import json
import linecache
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STOPPING = 30  # seconds that torchrun and its ranks get to end by themselves
MAIN = """

def main(task, file, seconds):
    import json, os, signal

    signal.alarm(int(seconds))  # no rank lives longer
    rank = int(os.environ["LOCAL_RANK"])
    join(rank)
    try:
        result = eval(task, globals() | {"rank": rank})
    except (RuntimeError, TimeoutError) as error:
        kept = error  # and with it what the task holds: to free a graph that hangs is to wait for it
        result = {"raised": str(kept.__context__ or kept).splitlines()[0]}
    with open(f"{file}{rank}.json", "w") as out:
        json.dump(result, out)
    os._exit(0)  # at once: a rank that hangs could not tidy up


if __name__ == "__main__":
    import sys

    main(*sys.argv[1:])
"""


@dataclass
class Told:
    """What a task gave on each rank (None where it gave
    nothing), and the log of all ranks together.
    """

    ranks: list[Any]
    log: str


def run(
    pieces: Iterable[Callable],
    tasks: dict[str, str],
    ranks: int = 2,
    seconds: int = 90,
    folder: Path | str = "",
) -> dict[str, Told]:
    """Evaluate each task, an expression that may use rank, on so many ranks; all tasks run at once.

    pieces: functions; the cells that define them, in this order, are the script. One of them is
    join(rank), which makes the rank part of the group. A task gives what JSON can hold; a
    RuntimeError or TimeoutError that it raises counts as {"raised": its first line}. folder: where
    the ranks work, a temporary one if not given.

    No process outlives the call, whatever ends it: the system ends a rank after so many seconds,
    even one that hangs, and at an interruption torchrun is told to stop, which stops its ranks.
    Raises subprocess.TimeoutExpired if torchrun has not ended STOPPING seconds later.
    """
    script = "".join([*source(pieces), MAIN])
    with tempfile.TemporaryDirectory() as own:
        Path(own, "train.py").write_text(script, encoding="utf-8")
        jobs: list[subprocess.Popen] = []
        try:
            for number, task in enumerate(tasks.values()):
                jobs.append(_start(Path(own), number, task, ranks, seconds, folder or own))
            for job in jobs:
                job.wait(seconds + STOPPING)
        finally:
            _stop(jobs)
        return {name: _told(Path(own), number, ranks) for number, name in enumerate(tasks)}


def source(pieces: Iterable[Callable]) -> list[str]:
    """The lines of the cells that define the functions, each
    cell once. Raises ValueError where there are none.
    """
    files = dict.fromkeys(piece.__code__.co_filename for piece in pieces)
    cells = {file: linecache.getlines(file) for file in files}
    if lost := [file for file, lines in cells.items() if not lines]:
        raise ValueError(
            f"The source of {lost[0]} is not to be had: run the cells again that define the pieces."
        )
    return [line for lines in cells.values() for line in lines]


def _start(own, number, task, ranks, seconds, folder):
    """torchrun in a session of its own, so that an interruption reaches us first."""
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc-per-node={ranks}",
    ]
    command += [str(own / "train.py"), task, str(own / f"{number}."), str(seconds)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with (own / f"{number}.log").open("wb") as log:
        return subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _stop(jobs):
    """End what still runs. torchrun ends its ranks when it is told to stop."""
    for job in jobs:
        job.terminate()
    for job in jobs:
        try:
            job.wait(STOPPING + 10)  # torchrun itself kills ranks that have not ended after 30 s
        except subprocess.TimeoutExpired:
            job.kill()


def _told(own, number, ranks):
    files = [own / f"{number}.{rank}.json" for rank in range(ranks)]
    given = [
        json.loads(file.read_text(encoding="utf-8")) if file.exists() else None for file in files
    ]
    return Told(given, (own / f"{number}.log").read_text(encoding="utf-8", errors="replace"))
