"""Every operator of torch's test database in the stand-in: the published list is what it does."""

import re
import warnings

import pytest
import torch

from course.paths import ROOT
from cpu_graph import cpu_graphs
from tests.cpu_graph import operator_sweep

LIST = ROOT / "cpu_graph" / "OPERATORS.md"
STALE = "run `python -m tests.cpu_graph.operator_sweep`, which writes cpu_graph/OPERATORS.md"
VERSION = torch.__version__.split("+")[0]
of_this_torch = pytest.mark.skipif(
    f"torch {VERSION}" not in LIST.read_text(), reason=f"another torch than {VERSION} has its list"
)


def ends(operators):
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of its own operators, such as sparse ones
        for name, operator in operators.items():
            with cpu_graphs():
                found[name] = operator_sweep.attempt(operator)
    return found


@pytest.fixture(scope="module")
def endings():
    return ends(operator_sweep.database())


def misplaced(endings):
    """The operators that the list has elsewhere than where they end."""
    sections = re.split(r"^## ", LIST.read_text(), flags=re.MULTILINE)
    places = {section.partition("\n")[0]: section for section in sections[1:]}
    listed = {name: place for place, text in places.items() for name in re.findall("`(.+?)`", text)}
    now = {name: operator_sweep.KINDS[operator_sweep.kind(of)][0] for name, of in endings.items()}
    return {
        name: place for name, place in now.items() if listed.get(name, "The same").lower() != place
    }


@of_this_torch
def test_the_list_has_what_the_tables_of_the_stand_in_name():
    """A new row of cpu_graph/tables.py shows here; the weekly sweep tries every operator."""
    tables = (ROOT / "cpu_graph/tables.py").read_text()
    named = {text or operator for text, operator in re.findall(r'"(\w+)"|aten\.(\w+)', tables)}
    database = operator_sweep.database()
    few = {name: one for name, one in database.items() if name.replace(".", "_") in named}
    assert len(few) > 20 and not misplaced(ends(few)), STALE


@pytest.mark.weekly
def test_no_operator_gives_other_results_or_fails_without_a_name(endings):
    """An error is one of CUDA's or PyTorch's own, or NotModelled."""
    kinds = {name: operator_sweep.kind(ends) for name, ends in endings.items()}
    wrong = {name: endings[name] for name, kind in kinds.items() if kind in ("other", "failed")}
    if torch.__version__ < "2.13":  # its generator stays in a capture that was refused
        wrong.pop("normal", None)
    assert wrong == {}


@pytest.mark.weekly
@of_this_torch
def test_the_list_is_the_sweeps(endings):
    assert not misplaced(endings), STALE
    assert LIST.read_text() == operator_sweep.page(endings), STALE
