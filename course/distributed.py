"""Run a lesson's functions on several ranks: PyTorch's torchrun, on a script made of the lesson's
own cells.
"""

import json
import linecache
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

SHARED_GPU = {
    "NCCL_MULTI_RANK_GPU_ENABLE": "1",
    "TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES": "1",
}  # for ranks that share a GPU
LOG_END = 8000  # characters of a log that an error shows
STOPPING = 30  # seconds that torchrun and its ranks get to end by themselves
MAIN = """

def main(task, file, seconds):
    import json, os, pickle, signal, traceback

    signal.alarm(int(seconds))  # no rank lives longer
    join()
    with open(task, "rb") as pickled:
        functions = pickle.load(pickled)
    results = {}
    for name, function in functions.items():
        try:
            results[name] = function()
        except (RuntimeError, TimeoutError) as error:
            traceback.print_exc()  # into the log
            kept = error  # and what the task holds: to free a graph that hangs is to wait for it
            results[name] = {"raised": str(kept.__context__ or kept).splitlines()[0]}
            break
    with open(f"{file}{os.environ['RANK']}.json", "w") as out:
        json.dump(results, out)
    os._exit(0)  # at once: a rank that hangs could not tidy up


if __name__ == "__main__":
    import sys

    main(*sys.argv[1:])
"""


@dataclass
class Told:
    """What a task gave on each rank, and the log of all ranks together."""

    ranks: list[Any]
    log: str


def run(
    script: Iterable[Callable],
    tasks: Mapping[str, Callable | Mapping[str, Callable]],
    ranks: int = 2,
    environment: Mapping[str, str] | None = None,
    seconds: int = 90,
    folder: Path | str = "",
    may_die: bool = False,
) -> dict[str, Told]:
    """Call each task on so many ranks, all tasks at once, and return by name what it gave on each.

    script: functions; the cells that define them, in this order, are the script that torchrun
    starts, as they are now, if a cell has been changed and run again. One of them is join(), which
    makes a rank part of the group. A task is a function of the
    script without arguments, or a functools.partial of one. It gives what JSON can hold; a
    RuntimeError or TimeoutError that it raises counts as {"raised": its first line}. A dict in the
    place of a task holds several, which the same processes call one after the other; those after
    one that raises are not called. Where fewer GPUs are visible than ranks, ranks share a GPU (NCCL
    2.30 or newer). environment: variables for all ranks. folder: where the ranks work, a temporary
    one if not given. may_die: a rank that ends without a result counts as {"raised": the last line
    of the log}.

    No process outlives the call, whatever ends it: the system ends a rank after so many seconds,
    even one that hangs, and at an interruption torchrun is told to stop, which stops its ranks.
    Raises subprocess.TimeoutExpired if torchrun has not ended STOPPING seconds later, and
    RuntimeError with the end of the log where a task has no result on some rank, unless may_die.
    """
    text = "".join([*source(script), MAIN])
    groups = [
        dict(task) if isinstance(task, Mapping) else {name: task} for name, task in tasks.items()
    ]
    with tempfile.TemporaryDirectory() as own:
        Path(own, "train.py").write_text(text, encoding="utf-8")
        jobs: list[subprocess.Popen] = []
        try:
            for number, group in enumerate(groups):
                Path(own, f"{number}.task").write_bytes(pickle.dumps(group))
                files = [f"{own}/train.py", f"{own}/{number}.task", f"{own}/{number}."]
                torchrun = ["torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
                with Path(own, f"{number}.log").open("ab") as log:
                    jobs.append(
                        subprocess.Popen(
                            [sys.executable, "-m", *torchrun, *files, str(seconds)],
                            cwd=folder or own,
                            env=os.environ | _variables(ranks) | (environment or {}),
                            stdout=log,
                            stderr=subprocess.STDOUT,
                            start_new_session=True,  # an interruption reaches us first
                        )
                    )
            for job in jobs:
                job.wait(seconds + STOPPING)
        finally:
            _stop(jobs)
        told: dict[str, Told] = {}
        for number, group in enumerate(groups):
            told |= _told(Path(own), number, group, ranks, may_die)
        return told


def source(pieces: Iterable[Callable]) -> list[str]:
    """The lines of the cells that define the functions, each cell once. Raises ValueError where
    there are none.
    """
    now = vars(sys.modules["__main__"])
    newest = [now.get(piece.__name__, piece) for piece in pieces]
    files = dict.fromkeys(piece.__code__.co_filename for piece in newest)
    cells = {file: linecache.getlines(file) for file in files}
    if lost := [file for file, lines in cells.items() if not lines]:
        raise ValueError(
            f"The source of {lost[0]} is not to be had: run the cells again that define the pieces."
        )
    return [line for lines in cells.values() for line in lines]


def _variables(ranks):
    """The variables that all ranks need."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = len(named.split(",")) if named else torch.cuda.device_count() or ranks
    shared = SHARED_GPU if gpus < ranks else {}
    return {"PYTHONPATH": os.pathsep.join(sys.path)} | shared


def _stop(jobs):
    """End what still runs. torchrun ends its ranks when it is told to stop."""
    for job in jobs:
        job.terminate()
    for job in jobs:
        try:
            job.wait(STOPPING + 10)  # torchrun itself kills ranks that have not ended after 30 s
        except subprocess.TimeoutExpired:
            job.kill()


def _told(own, number, group, ranks, may_die):
    files = [own / f"{number}.{rank}.json" for rank in range(ranks)]
    given = [
        json.loads(file.read_text(encoding="utf-8")) if file.exists() else {} for file in files
    ]
    log = (own / f"{number}.log").read_text(encoding="utf-8", errors="replace")
    died = {"raised": (log.splitlines() or ["no log"])[-1]}
    for name in group:
        if may_die:
            given = [{name: died} | results for results in given]
        if missing := [rank for rank, results in enumerate(given) if name not in results]:
            raise RuntimeError(
                f"{name!r} has no result on ranks {missing}: they ended early, or an earlier task "
                f"of the same processes raised. Results: {given}\nThe log ends:\n{log[-LOG_END:]}"
            )
    return {name: Told([results[name] for results in given], log) for name in group}
