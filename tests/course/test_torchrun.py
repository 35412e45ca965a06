"""Tasks on several ranks, with gloo on the CPU: what
they give, and that nothing outlives the call.
"""

import importlib.util
import os
import signal
import threading
import time

import pytest

from course.torchrun import run, source
from tests.support.machine import PATIENCE

PIECES = """
import os, signal, time
import torch
import torch.distributed as dist


def join(rank):
    dist.init_process_group("gloo")


def total(rank):
    ranks = torch.tensor([float(rank + 1)])
    dist.all_reduce(ranks)
    return ranks.item()


def fails(rank):
    try:
        raise RuntimeError("the cause\\nand more")
    finally:
        raise RuntimeError("what follows")


def hangs(rank, file, sooner=0):
    left = signal.alarm(sooner) if sooner else 0
    with open(f"{file}{rank}", "w") as out:
        out.write(f"{os.getpid()} {left}")
    while True:
        time.sleep(1)
"""


@pytest.fixture
def join(tmp_path):
    """The piece join, in a file as a cell is one."""
    (tmp_path / "cell.py").write_text(PIECES)
    spec = importlib.util.spec_from_file_location("cell", tmp_path / "cell.py")
    cell = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(cell)
    return cell.join


def told_by_hanging(tmp_path):
    """(process id, seconds that it had left) of each rank that hangs."""
    return [
        tuple(map(int, text.split()))
        for file in tmp_path.glob("pid*")
        if (text := file.read_text())
    ]


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_each_rank_tells_what_its_task_gave(join):
    told = run([join], {"sum": "{'rank': rank, 'sum': total(rank)}"}, seconds=PATIENCE)
    assert told["sum"].ranks == [{"rank": 0, "sum": 3.0}, {"rank": 1, "sum": 3.0}]
    told = run(
        [join], {"failure": "fails(rank)", "typo": "no_such_name"}, ranks=1, seconds=PATIENCE
    )
    assert told["failure"].ranks == [{"raised": "the cause"}]
    assert told["typo"].ranks == [None] and "no_such_name" in told["typo"].log


def test_a_rank_that_hangs_is_ended_by_the_system(join, tmp_path):
    """Here sooner than the call has asked: the machine may be slow until it hangs."""
    told = run(
        [join], {"hang": f"hangs(rank, {str(tmp_path / 'pid')!r}, sooner=1)"}, seconds=PATIENCE
    )
    assert told["hang"].ranks == [None, None]
    hung = told_by_hanging(tmp_path)
    assert len(hung) == 2 and all(0 < left <= PATIENCE and not alive(pid) for pid, left in hung)


def test_an_interruption_leaves_no_process(join, tmp_path):
    def interrupt():
        while len(told_by_hanging(tmp_path)) < 2:
            time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGINT)

    ignored = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # as tests in the background are started
    threading.Thread(target=interrupt, daemon=True).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            run([join], {"hang": f"hangs(rank, {str(tmp_path / 'pid')!r})"}, seconds=PATIENCE)
    finally:
        signal.signal(signal.SIGINT, ignored)
    assert not any(alive(pid) for pid, _ in told_by_hanging(tmp_path))


def test_the_script_is_the_pieces_cells_each_once(join):
    assert "".join(source([join, join])) == PIECES
    with pytest.raises(ValueError, match="run the cells again"):
        source([eval("lambda rank: rank")])
