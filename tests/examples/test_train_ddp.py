"""A training on several ranks: on the stand-in next to a second rank that is given, and in eager
mode on two ranks, on the CPU.
"""

from contextlib import redirect_stdout
from io import StringIO

import pytest
import torch

from cpu_graph import cpu_graphs
from exercises.answers.graph_use import Wrong
from exercises.scenarios.train_on_several_gpus import two_ranks
from tests.support.scripts import (
    a_group,
    changed,
    ending,
    names_of,
    numbered_lines,
    of_the_lesson,
)

SMALLER = {"4096": "32", "2048": "16", "1024": "16", "512": "8", "256": "4", "640": "8"}


LEFT_OUT = of_the_lesson("train_on_several_gpus", "left_out")
CHANGED = of_the_lesson("train_on_several_gpus", "changed")
KINDS = {  # on the stand-in, of rank 0 next to another rank whose gradients are given
    "1 side stream": "raises",
    "2 eleven steps of warm-up": "raises",
    "3 all-reduce of the flag": "same",  # here no batch of the other rank is bad
    "4 as many replays on every rank": "same",  # rank 0 takes them all: no other rank to wait for
    "5 limit": "same",
    "6 reset": "same",  # on a GPU the end waits for the graph
}


def log_of(*flags, bad=0.0, changes=()):
    """What rank 0 of two prints, and how many graphs it replays; bad: what the other one adds to
    the flag of bad batches.
    """
    names = names_of("train_ddp", *changes, smaller=SMALLER.items())
    group = a_group(all_reduce=lambda flag: flag.add_(bad))
    with cpu_graphs() as device, group, redirect_stdout(StringIO()) as printed:
        torch.manual_seed(2)
        others = [torch.randn_like(weight) / 10 for weight in names["make_model"]().parameters()]
        with two_ranks(others):
            names["main"](list(flags))
        return printed.getvalue(), device.launches["graphs"]


@pytest.fixture(scope="module")
def eager_log():
    """Of a training that skips no step."""
    log, replays = log_of("--no-graph")
    assert replays == 0
    return log


def test_the_graph_trains_as_eager(eager_log):
    assert log_of("--graph") == (eager_log, 5)


def test_a_bad_batch_of_another_rank_skips_the_step(eager_log):
    log, _ = log_of("--graph", bad=1.0)
    names = names_of("train_ddp", smaller=SMALLER.items())
    with cpu_graphs():
        weights = names["make_model"]().parameters()
        checksum = sum(int(weight.detach().view(torch.int32).sum()) for weight in weights)
    untrained = f"weights {checksum % 2**32:08x}\n"
    assert log.endswith(untrained) and not eager_log.endswith(untrained)


@pytest.mark.parametrize("change", KINDS)
def test_without_a_line_it_ends_as_the_lesson_says(change, eager_log):
    found = ending(
        lambda: log_of(changes=[LEFT_OUT[change]])[0], eager_log, errors=(Wrong, RuntimeError)
    )
    assert found == KINDS[change]


def test_every_numbered_line_is_left_out_once():
    assert sorted(numbered_lines("train_ddp")) == [change[0] for change in LEFT_OUT]
    assert LEFT_OUT.keys() == KINDS.keys()
    for change in CHANGED.values():
        assert changed("train_ddp", change)
