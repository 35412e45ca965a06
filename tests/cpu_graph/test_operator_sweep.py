"""Every operator of torch's test database in the stand-in: the published list is what it does."""

import warnings

import pytest
import torch

from course.paths import ROOT
from cpu_graph import cpu_graphs
from tests.cpu_graph import operator_sweep

pytestmark = pytest.mark.weekly
LIST = ROOT / "cpu_graph" / "OPERATORS.md"


@pytest.fixture(scope="module")
def endings():
    operators = operator_sweep.database()
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of its own operators, such as sparse ones
        for name, operator in operators.items():
            with cpu_graphs():
                found[name] = operator_sweep.attempt(operator)
    return found


def test_no_operator_gives_other_values_or_shapes(endings):
    wrong = {name: ends for name, ends in endings.items() if operator_sweep.kind(ends) == "other"}
    assert wrong == {}


def test_no_operator_fails_without_a_name(endings):
    """An error is one of CUDA's or PyTorch's own, or NotModelled."""
    failed = {name: ends for name, ends in endings.items() if operator_sweep.kind(ends) == "failed"}
    if torch.__version__ < "2.13":  # its generator stays in a capture that was refused
        failed.pop("normal", None)
    assert failed == {}


def test_the_list_is_the_sweeps(endings):
    version = torch.__version__.split("+")[0]
    if f"torch {version}" not in LIST.read_text():
        pytest.skip(f"the list is of another torch than {version}")
    page = LIST.read_text()
    kinds = {name: operator_sweep.kind(ends) for name, ends in endings.items()}
    new = {
        name: endings[name]
        for name, kind in kinds.items()
        if (kind == "same") == (f"`{name}`" in page)
    }
    assert new == {}
    assert page == operator_sweep.page(endings)
