"""The blocks of code on the page about loops print what stands below them."""

import io
import re
from contextlib import nullcontext, redirect_stdout
from importlib.util import find_spec

import pytest
import torch

from course.paths import ROOT
from cpu_graph import cpu_graphs
from cpu_graph.errors import SINCE_2_15

PAGE = (ROOT / "docs/loops_in_graphs.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
GPU = torch.cuda.is_available()


def lacks(block):
    """What a block needs and this machine has not."""
    if "cuda.core" in block:
        return "" if GPU and find_spec("cuda.core") else "a CUDA GPU and cuda.core"
    if "pin_memory" in block:
        return "" if GPU else "a CUDA GPU"
    return "" if SINCE_2_15 else "torch 2.15"


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_block_prints_what_it_says(number):
    block = BLOCKS[number]
    if lacks(block):
        pytest.skip(f"needs {lacks(block)}")
    printed = io.StringIO()
    with nullcontext() if GPU else cpu_graphs(), redirect_stdout(printed):
        exec(compile(block, "<page>", "exec"), {})
    assert printed.getvalue().splitlines() == re.findall(r"^# (.*)", block, re.MULTILINE)
