"""preflight's last word: a real capture adds what no rule knew, and takes back what it bore. It is
asked on a GPU, or else on the stand-in."""

import itertools
import random
import sys
from contextlib import nullcontext, suppress

import pytest
import torch

import cpu_graph
from capturable import preflight, real_capture
from capturable.capture_attempt import TruncatedStep
from capturable.findings import Finding, Findings
from capturable.inputs import Call
from tests.support.machine import needs_gpu


@pytest.fixture
def gpu():
    with nullcontext() if torch.cuda.is_available() else cpu_graph.cpu_graphs():
        yield


def verified(step, findings=()):
    """What is left of findings about a step, and added, by a capture."""
    x = torch.ones(3, 4, device="cuda")
    return real_capture.verified(step, Call((x,), {}), Call((x + 1,), {}), (), Findings(findings))


def doubles():
    return lambda x: x * 2


def keeps_its_loss():
    weight, logs = torch.ones(4, device="cuda", requires_grad=True), {"loss": None}

    def step(x):
        logs["loss"] = (x * weight).sum().detach()

    return step


def takes_a_number_of_python():
    return lambda x: x * random.random()


def takes_another_number_each_time():
    """Which no restoring of random states sets back, as a clock's."""
    numbers = itertools.count(1)
    return lambda x: x * next(numbers)


def takes_a_number_that_makes_no_difference():
    numbers = itertools.count(1)
    return lambda x: x + 1e-30 * next(numbers)


def adds_up(moves):
    def make():
        weight = torch.ones(3, 4, device="cuda", requires_grad=True)
        weight.grad = torch.ones(3, 4, device="cuda")

        def step(x):
            if moves:
                weight.grad = weight.grad * 0.5
            return x * 2

        return step

    return make


@pytest.mark.parametrize(
    ("make", "rules", "levels"),
    [
        (doubles, ["sync", "frozen number", "CPU work"], ["note", "note", "fault"]),
        (keeps_its_loss, [], []),
        (takes_a_number_of_python, ["frozen number"], ["fault"]),
        (takes_another_number_each_time, ["frozen number"], ["fault"]),
        (takes_a_number_that_makes_no_difference, ["frozen number"], ["note"]),
        (adds_up(moves=True), ["moved tensor"], ["fault"]),
        (adds_up(moves=False), ["moved tensor"], ["note"]),
    ],
)
def test_what_the_capture_bore_becomes_a_note(gpu, make, rules, levels):
    findings = verified(make(), [Finding(rule, "step:1", "seen", "a fix") for rule in rules])
    assert [(finding.rule, finding.level) for finding in findings] == [
        *zip(rules, levels, strict=True)
    ]


def test_a_replay_that_ends_elsewhere_than_eager_is_a_finding(gpu):
    kept = torch.zeros(3, 4, device="cuda")
    findings = verified(lambda x: kept.add_(x * random.random()))
    assert {finding.rule for finding in findings} == {"replay"}
    assert not kept.any()


def left_alone(x):
    x, side = x + 1, torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = x * 2  # this one
    z = x * 3
    return y, z


def swallows(x):
    y = x * 2
    with suppress(RuntimeError):
        y.sum().item()
    return y * 3


def reads(x):
    y = x * 2
    return y * y.sum().item()  # this one


@pytest.mark.parametrize("step", [left_alone, reads])
def test_the_line_that_breaks_a_capture_is_found(gpu, step):
    (finding,) = verified(step)
    assert finding.rule == "capture" and finding.line.endswith("# this one") and finding.fix
    assert verified(lambda x: x * 2) == []  # the process is well again
    assert sys.exc_info() == (None, None, None)
    with pytest.raises(ValueError) as raised:
        raise ValueError("mine")
    assert raised.value.__context__ is None  # no error of the step is left behind


def test_a_refusal_that_the_step_swallows_is_a_finding(gpu):
    (finding,) = verified(swallows)
    assert finding.rule == "capture" and finding.fix, "on a GPU, the next launch raises"


def test_a_refusal_at_a_line_that_has_a_finding_adds_none(gpu):
    (finding,) = verified(reads)
    known = finding._replace(rule="sync")
    assert verified(reads, [known]) == [known]


def test_a_step_that_ends_early_leaves_its_blocks():
    def step():
        with torch.no_grad():
            with torch.no_grad(), torch.inference_mode():
                rows = [1]
            rows.append(2)
        for number in range(2):
            with torch.no_grad():
                if number:
                    continue
                rows.append(3)
        with torch.no_grad():
            return rows

    whole = TruncatedStep(step)
    whole()
    assert len(whole.lines) > 10
    for stop in range(len(whole.lines)):
        TruncatedStep(step, stop)()
        assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()


def test_verify_needs_a_gpu():
    with pytest.raises(ValueError, match="needs a CUDA GPU"):
        preflight(lambda x: x, torch.ones(3), device="cpu", verify=True)


@needs_gpu
def test_a_wait_that_nothing_sees_is_found_by_the_capture():
    def step(x):
        y = x * 2
        torch._C._cuda_synchronize()  # this one
        return y

    x = torch.ones(3, 4, device="cuda")
    assert not preflight(step, x)
    (finding,) = preflight(step, x, verify=True)
    assert finding.rule == "capture" and finding.line.endswith("# this one")
    # the process is well again
    assert not preflight(lambda x: x * torch.rand_like(x), x, verify=True)


def test_what_preflight_tries_is_no_part_of_the_stand_ins_report():
    with cpu_graph.cpu_graphs() as device:
        model = torch.nn.Linear(4, 4, device="cuda")
        optimizer = torch.optim.AdamW(model.parameters(), capturable=True)
        x = torch.ones(2, 4, device="cuda")

        def step():
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()

        assert not preflight(step)
        assert not device.captures and not device.findings
