"""Faults that check did not see once are found, in three programs of each kind."""

import pytest

from capturable import preflight
from tests.capturable import more_steps as steps


def made(make):
    given = make()
    return given if isinstance(given, tuple) else (given, *steps.batches())


@pytest.mark.parametrize(("make", "rule", "words"), steps.STEPS)
def test_the_fault_is_named(make, rule, words):
    step, batch, other = made(make)
    found = preflight(step, *batch, other_inputs=other, device="cpu")
    assert any(f.rule == rule and words in f"{f.line} {f.found} {f.fix}" for f in found), str(found)


def test_a_key_that_the_step_adds_is_no_fault():
    step, batch, other = steps.of_dicts("h")()
    found = preflight(step, *batch, other_inputs=other, device="cpu")
    assert not [finding for finding in found if "['y']" in finding.line]


@pytest.mark.parametrize(("make", "operator"), steps.AT_FIRST)
def test_a_first_call_that_differs_is_seen_without_a_warmup(make, operator):
    step, batch, other = made(make)
    assert not preflight(step, *batch, other_inputs=other, device="cpu").faults
    step, batch, other = made(make)
    found = preflight(step, *batch, other_inputs=other, device="cpu", warmup=0)
    assert [f for f in found if f.rule == "path" and operator in f.found], str(found)
