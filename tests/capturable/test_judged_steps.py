"""preflight finds the fault of each judged step at its line, by its rule, and nothing in the
others."""

import linecache

import pytest
import torch

from capturable import preflight
from capturable.rules import RULES
from cpu_graph import cpu_graphs
from tests.capturable.judged_steps import STEPS, an_output_under_the_name_of_an_input
from tests.support.machine import needs_gpu

SEEN = [name for name, kind in STEPS.items() if kind.on_cpu]
UNSEEN = [name for name, kind in STEPS.items() if not kind.on_cpu]


def judge(make, device):
    torch.manual_seed(0)
    torch.distributions.Distribution.set_default_validate_args(True)  # as it comes
    case = make(device)
    return preflight(case.step, *case.inputs, other_inputs=case.other_inputs, device=device)


def names_the_fault(finding, kind):
    if kind.words:
        told = kind.words in f"{finding.line} {finding.found} {finding.fix}"
    else:
        told = linecache.getline(finding.file, finding.number).rstrip().endswith("# here")
    return told and finding.rule in kind.rules


def assert_judged(name, device):
    kind = STEPS[name]
    findings = judge(kind.make, device)
    assert set(kind.rules) <= RULES.keys()
    if kind.rules:
        assert any(names_the_fault(finding, kind) for finding in findings.faults), findings
    else:
        assert not findings.faults, findings


@pytest.mark.parametrize("name", SEEN)
def test_a_step_is_judged_on_the_cpu(name):
    assert_judged(name, "cpu")


@needs_gpu
@pytest.mark.parametrize("name", STEPS)
def test_a_step_is_judged_on_a_gpu(name):
    assert_judged(name, "cuda")


@pytest.mark.parametrize("name", UNSEEN)
def test_what_a_cpu_cannot_show_is_named_in_the_report(name):
    findings = judge(STEPS[name].make, "cpu")
    assert not findings.faults
    assert "copies of tensors kept on the CPU, side" in str(findings.report)


def test_a_key_that_the_step_adds_is_no_fault():
    findings = judge(an_output_under_the_name_of_an_input, "cpu")
    assert not [finding for finding in findings if "['y']" in finding.line]


def test_a_first_call_that_differs_is_seen_without_a_warmup():
    def make():
        tables = {}

        def step(x):
            if "positions" not in tables:
                tables["positions"] = torch.arange(4.0)
            return x + tables["positions"]

        return step

    x = torch.ones(2, 4)
    assert not preflight(make(), x, other_inputs=(x * 2,), device="cpu").faults
    findings = preflight(make(), x, other_inputs=(x * 2,), device="cpu", warmup=0)
    assert [f for f in findings if f.rule == "path" and "arange" in f.found], findings


@pytest.mark.parametrize("before", [False, True])
def test_an_input_that_requires_a_gradient_before_the_step_or_by_it_is_a_note(before):
    x, other = (torch.ones(2, 4, requires_grad=before) for _ in range(2))
    (note,) = preflight(lambda x: x.requires_grad_() * 2, x, other_inputs=(other,), device="cpu")
    assert (note.rule, note.level, note.line) == ("inputs", "note", "inputs[0]")


def test_a_step_that_is_graphed_already_is_told_once_and_not_run():
    with cpu_graphs():
        x = torch.ones(2, 4, device="cuda")
        graphed = torch.cuda.make_graphed_callables(torch.nn.Linear(4, 4).cuda(), (x,))
        (finding,) = preflight(lambda x: graphed(x) + 1, x)
    assert finding.rule == "graph" and "make_graphed_callables" in finding.found
