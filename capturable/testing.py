"""A step's preflight as a test:

from capturable import assert_capturable

def test_the_step_can_be_captured():
    assert_capturable(step, batch, other_batch)
"""

from collections.abc import Callable, Iterable
from typing import Any

from capturable.ignored_findings import without_rules
from capturable.load_step import LoadedStep, args_and_kwargs


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
    made = LoadedStep(
        step, *args_and_kwargs(batch), *(() if other is None else args_and_kwargs(other))
    )
    findings = without_rules(made.preflight(**options), ignore)
    if findings.faults:
        raise AssertionError(str(findings))
