"""Tasks on several ranks, with gloo on the CPU: what they give, and that nothing outlives
the call.
"""

import os
import signal
import sys
import threading
import time
from functools import partial
from types import SimpleNamespace

import pytest

from course.distributed import run, source
from tests.support.machine import PATIENCE

PIECES = """
import os, signal, time
import torch
import torch.distributed as dist


def join():
    dist.init_process_group("gloo")


def total(what="sum"):
    ranks = torch.tensor([float(dist.get_rank() + 1)])
    dist.all_reduce(ranks)
    return {"rank": dist.get_rank(), what: ranks.item(), "seen": os.environ.get("SEEN")}


def places():
    names = ("CUDA_VISIBLE_DEVICES", "NCCL_MULTI_RANK_GPU_ENABLE")
    return [os.environ.get(name, "") for name in names]


def process():
    return os.getpid()


def no_such_name():
    return no_such


def fails():
    try:
        raise RuntimeError("the cause\\nand more")
    finally:
        raise RuntimeError("what follows")


def hangs(file, sooner=0):
    left = signal.alarm(sooner) if sooner else 0
    with open(f"{file}{dist.get_rank()}", "w") as out:
        out.write(f"{os.getpid()} {left}")
    while True:
        time.sleep(1)
"""


@pytest.fixture
def cell(tmp_path, monkeypatch):
    """The functions of PIECES, defined in __main__ and in a file, as a cell's are."""
    (tmp_path / "cell.py").write_text(PIECES)
    names = {"__name__": "__main__"}
    exec(compile(PIECES, tmp_path / "cell.py", "exec"), names)
    for name in ("join", "total", "places", "process", "no_such_name", "fails", "hangs"):
        monkeypatch.setattr(sys.modules["__main__"], name, names[name], raising=False)
    return SimpleNamespace(**names)


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


def test_each_rank_tells_what_its_task_gave(cell):
    tasks = {"sum": partial(cell.total, what="all")}
    told = run([cell.join], tasks, environment={"SEEN": "1"}, seconds=PATIENCE)
    assert told["sum"].ranks == [{"rank": rank, "all": 3.0, "seen": "1"} for rank in (0, 1)]


@pytest.mark.weekly
def test_a_rank_that_fails_tells_its_cause(cell):
    told = run([cell.join], {"failure": cell.fails}, ranks=1, seconds=PATIENCE)
    assert told["failure"].ranks == [{"raised": "the cause"}]
    assert "RuntimeError: what follows" in told["failure"].log


@pytest.mark.weekly
def test_a_rank_without_a_result_shows_the_log(cell):
    tasks = {"failure": cell.fails, "typo": cell.no_such_name}
    with pytest.raises(RuntimeError, match=r"'typo' has no result on ranks \[0(.|\n)*no_such"):
        run([cell.join], tasks, ranks=1, seconds=PATIENCE)


@pytest.mark.weekly
def test_a_rank_that_may_die_counts_as_one_that_raised(cell):
    tasks = {"typo": cell.no_such_name, "failure": cell.fails}
    told = run([cell.join], tasks, ranks=1, seconds=PATIENCE, may_die=True)
    assert list(told["typo"].ranks[0]) == ["raised"]
    assert told["failure"].ranks == [{"raised": "the cause"}]


@pytest.mark.weekly
def test_ranks_share_the_gpu_where_there_is_only_one(cell, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    told = run([cell.join], {"places": cell.places}, seconds=PATIENCE)
    assert told["places"].ranks == [["3", "1"]] * 2
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    told = run([cell.join], {"places": cell.places}, seconds=PATIENCE)
    assert told["places"].ranks == [["3,5", ""]] * 2


@pytest.mark.weekly
def test_a_dict_of_tasks_shares_its_processes_until_one_raises(cell):
    group = {"one": cell.process, "two": cell.process, "failed": cell.fails}
    told = run([cell.join], {"group": group}, seconds=PATIENCE)
    assert list(told) == list(group)
    assert told["one"].ranks == told["two"].ranks and len(set(told["one"].ranks)) == 2
    assert [rank["raised"] for rank in told["failed"].ranks] == ["the cause"] * 2
    with pytest.raises(RuntimeError, match=r"'after' has no result(.|\n)*the cause"):
        run([cell.join], {"group": {"failed": cell.fails, "after": cell.total}}, seconds=PATIENCE)


@pytest.mark.weekly
def test_a_rank_that_hangs_is_ended_by_the_system(cell, tmp_path):
    """Here sooner than the call has asked: the machine may be slow until it hangs."""
    task = partial(cell.hangs, str(tmp_path / "pid"), sooner=1)
    with pytest.raises(RuntimeError, match="'hang' has no result"):
        run([cell.join], {"hang": task}, seconds=PATIENCE)
    hung = told_by_hanging(tmp_path)
    assert len(hung) == 2 and all(0 < left <= PATIENCE and not alive(pid) for pid, left in hung)


@pytest.mark.weekly
def test_an_interruption_leaves_no_process(cell, tmp_path):
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
            task = partial(cell.hangs, str(tmp_path / "pid"))
            run([cell.join], {"hang": task}, seconds=PATIENCE)
    finally:
        signal.signal(signal.SIGINT, ignored)
    assert not any(alive(pid) for pid, _ in told_by_hanging(tmp_path))


def test_the_script_is_the_pieces_cells_each_once(cell):
    assert "".join(source([cell.join, cell.total])) == PIECES
    with pytest.raises(ValueError, match="run the cells again"):
        source([eval("lambda rank: rank")])
