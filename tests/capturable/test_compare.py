"""compare: what differs between an eager step and one with graphs is found, and nothing else."""

import pytest

from capturable import compare
from tests.capturable import compared_pairs as pairs


def compared(name, **options):
    eager, graphed = (getattr(pairs, f"{kind}_{name}") for kind in ("eager", "graphed"))
    return compare(eager, graphed, calls=6, **pairs.OPTIONS.get(name, {}), **options)


@pytest.mark.parametrize("name", pairs.WRONG)
def test_what_differs_is_found_with_its_cause(name):
    kind, cause = pairs.WRONG[name]
    found = compared(name)
    assert found.difference, str(found)
    assert found.difference.kind == kind
    assert cause in "\n".join(found.causes)


@pytest.mark.parametrize("name", pairs.RIGHT)
def test_right_steps_are_equal(name):
    found = compared(name)
    assert found.equal, str(found)
    assert "1 graph" in found.counted
