"""The tables of docs/optimizers.md: some of their rows on the stand-in, all of them on a GPU."""

import re
from functools import partial

import pytest
from torch.optim.lr_scheduler import ConstantLR

from benchmarks.optimizers import OPTIMIZERS, SETTINGS, scheduler_table, six_losses, verdict
from course.paths import ROOT
from cpu_graph import cpu_graphs
from tests.support.machine import needs_gpu

PAGE = (ROOT / "docs/optimizers.md").read_text()
ON_THE_STAND_IN = ("Adagrad", "SGD")
pytestmark = pytest.mark.filterwarnings("ignore:This instance was constructed with capturable")


def row(name):
    """The cells of a row of the page."""
    (line,) = re.findall(rf"^\| {name} \|(.*)\|$", PAGE, re.MULTILINE)
    return [cell.strip(" *") for cell in line.split("|")]


def test_the_page_has_every_optimizer():
    assert [name for name in OPTIMIZERS if len(row(name)) == len(SETTINGS)] == list(OPTIMIZERS)


@pytest.mark.parametrize("name", ON_THE_STAND_IN)
def test_the_stand_in_agrees_with_the_page(name):
    with cpu_graphs():
        assert [verdict(name, options) for options in SETTINGS.values()] == row(name)


def test_muon_is_right_while_its_rate_stays():
    constant = partial(ConstantLR, factor=1.0)
    with cpu_graphs():
        losses = [six_losses("Muon", {}, graphed, constant) for graphed in (False, True)]
    assert losses[0] == losses[1]


@needs_gpu
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_page_says_what_this_gpu_does(name):
    assert [verdict(name, options) for options in SETTINGS.values()] == row(name)


@needs_gpu
def test_the_page_says_what_schedulers_leave():
    for name, values in scheduler_table().iterrows():
        assert list(map(str, values)) == row(name)
