"""A training on several ranks: on the stand-in next to a second rank that is given."""

from contextlib import redirect_stdout
from io import StringIO

import pytest
import torch

from cpu_graph import cpu_graphs
from exercises.scenarios.train_on_several_gpus import pretend_second_rank
from tests.support.scripts import names_of, single_process_group

SMALLER = {"4096": "32", "2048": "16", "1024": "16", "512": "8", "256": "4", "640": "8"}


def log_of(*flags, bad=0.0):
    """What rank 0 of two prints, and how many graphs it replays; bad: what the other one adds to
    the flag of bad batches.
    """
    names = names_of("train_ddp", smaller=SMALLER.items())
    group = single_process_group(all_reduce=lambda flag: flag.add_(bad))
    with cpu_graphs() as device, group, redirect_stdout(StringIO()) as printed:
        torch.manual_seed(2)
        others = [torch.randn_like(weight) / 10 for weight in names["make_model"]().parameters()]
        with pretend_second_rank(others):
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
