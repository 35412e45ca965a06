"""A script of examples/ on the stand-in, as it is and with some of its lines changed."""

import os
import re
from contextlib import contextmanager, redirect_stdout
from io import StringIO

import pytest
import torch

from course import ranks
from course.lessons import lesson_file
from course.paths import ROOT
from cpu_graph import cpu_graphs
from tests.support.notebooks import code
from tests.support.processes import run_python

GLOO = {  # a script that joins a group of GPUs joins one of processes on the CPU
    "torch.cuda.set_device(device)": "pass",
    "% torch.cuda.device_count()": "",
    '"nccl", device_id=device': '"gloo"',
}


def file_of(script):
    return ROOT / "examples" / f"{script}.py"


def changed_source(script, *changes, smaller=()):
    """The source of a script with texts replaced.

    changes: pairs of a text that the script has once and what takes its place; smaller: the same
    for sizes, which it may have several times.
    """
    source = file_of(script).read_text()
    for text, instead in changes:
        assert source.count(text) == 1, text
        source = source.replace(text, instead)
    for text, fewer in smaller:
        assert text in source, text
        source = source.replace(text, fewer)
    return source


def names_of(script, *changes, smaller=(), name="changed"):
    """What the script defines, changed; name: "__main__" runs it."""
    names = {"__name__": name}
    source = changed_source(script, *changes, smaller=smaller)
    exec(compile(source, str(file_of(script)), "exec"), names)
    return names


def run_main(script, *changes, smaller=(), arguments=()):
    """What its main prints on the stand-in, and how many graphs it launches."""
    names = names_of(script, *changes, smaller=smaller)
    with cpu_graphs() as device, redirect_stdout(StringIO()) as printed:
        names["main"](*arguments)
        return printed.getvalue(), device.launches["graphs"]


def printed_by(script, *changes, smaller=()):
    return run_main(script, *changes, smaller=smaller)[0]


@contextmanager
def single_process_group(**instead):
    """torch.distributed without a group: this process is rank 0; instead: functions by name."""
    nothing = dict.fromkeys(("init_process_group", "destroy_process_group"), lambda *_, **__: None)
    with pytest.MonkeyPatch.context() as patch:
        for name, function in (nothing | {"get_rank": lambda: 0} | instead).items():
            patch.setattr(torch.distributed, name, function)
        patch.setattr("faulthandler.dump_traceback_later", lambda *_, **__: None)
        patch.setenv("LOCAL_RANK", "0")
        yield


def printed_by_two_ranks(file, *arguments):
    """The lines that a script prints as two processes, by torchrun."""
    command = ["torch.distributed.run", "--standalone", "--nproc-per-node=2", str(file), *arguments]
    mark = f"{os.getpid()}-test"
    try:
        run = run_python("-m", *command, **{ranks.MARK: mark})
    finally:
        ranks.kill_marked(mark)
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()


def outcome_of_change(run, right, errors=RuntimeError):
    """How a changed script ends: it "raises", or run returns the "same" as is right or "silent"ly
    something else.
    """
    try:
        return "same" if run() == right else "silent"
    except errors:
        return "raises"


def numbered_lines(script):
    """The numbers, as text, of the lines that the script marks: `# 3` or `# 3. no mask`."""
    return re.findall(r"  # (\d+)(?:\. .*)?$", file_of(script).read_text(), re.MULTILINE)


def dict_in_lesson(lesson, name):
    """The dict that a cell of the lesson, which needs no other, gives this name."""
    names = {}
    exec(next(cell for cell in code(lesson_file(lesson)) if f"{name} = {{" in cell), names)
    return names[name]
