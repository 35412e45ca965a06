"""A step's preflight as a test:

from capturable import assert_capturable

def test_the_step_can_be_captured():
    assert_capturable(step, batch, other_batch)
"""

from collections.abc import Callable, Iterable
from typing import Any

from capturable.accepted import without
from capturable.load_step import Made, batch_of


def assert_capturable(
    step: Callable,
    batch: Any = (),
    other: Any = None,
    *,
    ignore: Iterable[str] = (),
    **options: Any,
) -> None:
    """Raise an AssertionError whose message is the findings, if a capture would refuse or freeze
    something.

    batch, other: a tuple of arguments, a dict of keyword arguments, or one tensor. ignore: names of
    rules. options: as for preflight. ValueError for a rule that there is not.
    """
    __tracebackhide__ = True
    made = Made(step, *batch_of(batch), *(() if other is None else batch_of(other)))
    findings = without(made.preflight(**options), ignore)
    if findings.faults:
        raise AssertionError(str(findings))
