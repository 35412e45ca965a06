"""preflight finds the fault of each judged step at its line, by its rule, and nothing in the
others."""

import linecache

import pytest
import torch

from capturable import preflight
from capturable.rules import RULES
from tests.capturable import unseen_steps  # noqa: F401  which adds its steps to STEPS
from tests.capturable.judged_steps import STEPS
from tests.support.machine import needs_gpu

SEEN = [name for name, kind in STEPS.items() if kind.on_cpu]
UNSEEN = [name for name, kind in STEPS.items() if not kind.on_cpu]


def judge(name, device):
    torch.manual_seed(0)
    torch.distributions.Distribution.set_default_validate_args(True)  # as it comes
    case = STEPS[name].make(device)
    others = {"other_inputs": case.others, "other_kwargs": case.other_kwargs}
    return preflight(case.step, *case.inputs, kwargs=case.kwargs, **others, device=device)


def assert_judged(name, device):
    found, rules = judge(name, device), STEPS[name].rules
    assert set(rules) <= RULES.keys()
    if not rules:
        assert not found.faults, found
        return
    lines = [
        f for f in found.faults if linecache.getline(f.file, f.number).rstrip().endswith("# here")
    ]
    assert any(finding.rule in rules for finding in lines), found


@pytest.mark.parametrize("name", SEEN)
def test_a_step_is_judged_on_the_cpu(name):
    assert_judged(name, "cpu")


@needs_gpu
@pytest.mark.parametrize("name", STEPS)
def test_a_step_is_judged_on_a_gpu(name):
    assert_judged(name, "cuda")


@pytest.mark.parametrize("name", UNSEEN)
def test_what_a_cpu_cannot_show_is_named_in_the_report(name):
    found = judge(name, "cpu")
    assert not found.faults and "copies of tensors kept on the CPU, side" in str(found.report)
