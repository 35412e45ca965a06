"""Tasks on several ranks, with gloo on the CPU: what they give, and that nothing outlives the call."""

import importlib.util
import os
import signal
import threading
import time

import pytest

from course.torchrun import run, source

PIECES = """
import os, time
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


def hangs(rank, file):
    with open(f"{file}{rank}", "w") as out:
        out.write(str(os.getpid()))
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


def pids(tmp_path):
    return [int(file.read_text() or 0) for file in tmp_path.glob("pid*")]


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_each_rank_tells_what_its_task_gave(join, tmp_path):
    tasks = {"sum": "total(rank)", "failure": "fails(rank)", "own": "{'rank': rank}", "typo": "no_such_name"}
    told = run([join], tasks | {"hang": f"hangs(rank, {str(tmp_path / 'pid')!r})"}, seconds=20)
    assert told["sum"].ranks == [3.0, 3.0] and told["own"].ranks == [{"rank": 0}, {"rank": 1}]
    assert told["failure"].ranks == 2 * [{"raised": "the cause"}]
    assert told["typo"].ranks == [None, None] and "no_such_name" in told["typo"].log
    assert told["hang"].ranks == [None, None], "the system ends a rank that takes longer"
    assert len(pids(tmp_path)) == 2 and not any(map(alive, pids(tmp_path)))


def test_an_interruption_leaves_no_process(join, tmp_path):
    def interrupt():
        while len(pids(tmp_path)) < 2 or not all(pids(tmp_path)):
            time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        run([join], {"hang": f"hangs(rank, {str(tmp_path / 'pid')!r})"}, seconds=600)
    assert not any(map(alive, pids(tmp_path)))


def test_the_script_is_the_pieces_cells_each_once(join):
    assert "".join(source([join, join])) == PIECES
    with pytest.raises(ValueError, match="run the cells again"):
        source([eval("lambda rank: rank")])
