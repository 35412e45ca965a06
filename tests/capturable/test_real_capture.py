"""preflight's last word: a real capture adds what no rule knew, and takes back what it bore."""

import itertools
import random
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import torch

import cpu_graph
from capturable import capture_attempt, preflight, real_capture, user_lines
from capturable.capture_attempt import Attempt, Until
from capturable.findings import Finding, Findings
from capturable.inputs import Call
from capturable.user_lines import Line
from tests.support.machine import needs_gpu

X = torch.linspace(-1, 1, 12).reshape(3, 4)


@pytest.fixture(autouse=True)
def no_stream(monkeypatch, request):
    """Where captured() is replaced there is neither a capture nor a stream for it."""
    if not torch.cuda.is_available() and "stand_in" not in request.fixturenames:
        monkeypatch.setattr(torch.cuda, "Stream", lambda: None)
        monkeypatch.setattr(real_capture, "warm_up", lambda step, _: step())


class Replay:
    """A graph of Python: what runs at its replay."""

    def __init__(self, replay):
        self.replay = replay


def judged(monkeypatch, step, attempt, findings=(), inputs=(X,), others=(X,)):
    monkeypatch.setattr(real_capture, "captured", lambda *_: attempt)
    return verified(step, tuple(x.clone() for x in inputs), others, findings)


def verified(step, inputs, others, findings=()):
    return real_capture.verified(step, Call(inputs, {}), Call(others, {}), (), Findings(findings))


def test_a_refusal_that_no_rule_knows_becomes_a_finding(monkeypatch):
    line = Line(__file__, 7, "step")
    error = RuntimeError("CUDA error: operation not permitted when stream is capturing")
    (finding,) = judged(monkeypatch, lambda x: x, Attempt(None, None, error, line))
    assert finding.rule == "capture" and finding.number == 7 and "not permitted" in finding.found
    assert finding.fix
    known = Finding("sync", "step:7", "a wait", "a fix", "fault", __file__, 7)
    assert judged(monkeypatch, lambda x: x, Attempt(None, None, error, line), [known]) == [known]


def test_what_the_capture_bore_becomes_a_note(monkeypatch):
    out = torch.zeros(3, 4)
    findings = [
        Finding(rule, "step:1", "seen", "a fix") for rule in ("sync", "frozen number", "CPU work")
    ]
    static = X.clone()
    good = Attempt(Replay(lambda: out.copy_(static * 2)), out)
    monkeypatch.setattr(real_capture, "captured", lambda *_: good)
    judged = verified(lambda x: x * 2, (static,), (X + 1,), findings)
    assert [finding.level for finding in judged] == ["note", "note", "fault"]
    assert "the real capture passed" in judged[0].found and "where eager ends" in judged[1].found


def test_a_replay_that_ends_elsewhere_than_eager_is_a_finding(monkeypatch):
    out, kept = torch.zeros(3, 4), torch.zeros(3, 4)

    def step(x):
        kept.add_(x)
        return x * 2

    (finding,) = judged(
        monkeypatch, step, Attempt(Replay(lambda: kept.add_(1)), out), others=(X + 1,)
    )[:1]
    assert finding.rule == "replay" and kept.sum() == 0
    frozen = [Finding("frozen number", "step:1", "seen", "a fix")]
    found = judged(monkeypatch, step, Attempt(Replay(lambda: None), out), frozen, others=(X + 1,))
    assert found == frozen


def test_the_line_after_which_a_step_no_longer_captures_is_found(monkeypatch):
    broken = []

    def step(x):
        x = x + 1
        for _ in range(20):
            x = x * 2
        broken.append(x)  # this one
        for _ in range(20):
            x = x * 2
        return x

    def attempt(step, *_):
        broken.clear()
        step()
        return Attempt(None, None, RuntimeError("lost") if broken else None)

    monkeypatch.setattr(real_capture, "captured", attempt)
    monkeypatch.setattr(capture_attempt, "captured", attempt)
    (finding,) = verified(step, (X.clone(),), (X,))
    assert finding.line.endswith("broken.append(x)  # this one") and "lost" in finding.found


def test_a_number_of_the_capture_is_told_by_the_first_replay(monkeypatch):
    """It is that of the second eager run, so that the last outputs are alike."""
    out = torch.zeros(3, 4)
    static = X.clone()
    random_state = random.getstate()
    numbers = [random.random() for _ in range(3)]  # of what makes the state, and of two runs
    random.setstate(random_state)
    monkeypatch.setattr(
        real_capture,
        "captured",
        lambda *_: Attempt(Replay(lambda: out.copy_(static * numbers[2])), out),
    )
    findings = Findings([Finding("frozen number", "step:1", "seen", "a fix")])
    judged = verified(lambda x: x * random.random(), (static,), (X,), findings)
    assert [finding.level for finding in judged] == ["fault"]


def test_a_number_that_differs_each_time_stays_a_finding(monkeypatch):
    """Such as a clock's: replays lie as near to eager as eager to itself."""
    out, static = torch.zeros(3, 4), X.clone()
    ticks = iter(range(1, 100))
    good = Attempt(Replay(lambda: out.copy_(static * 1.03)), out)
    monkeypatch.setattr(real_capture, "captured", lambda *_: good)
    findings = [Finding("frozen number", "step:1", "seen", "a fix")]
    judged = verified(lambda x: x * (1 + next(ticks) / 100), (static,), (X,), findings)
    assert [finding.level for finding in judged] == ["fault"]


@pytest.mark.parametrize(("moves", "level"), [(True, "fault"), (False, "note")])
def test_a_moved_tensor_stays_a_finding_where_a_gradient_moves(monkeypatch, moves, level):
    weight = torch.ones(3, 4, requires_grad=True)
    weight.grad = torch.ones(3, 4)

    def step(x):
        if moves:
            weight.grad = weight.grad * 0.5
        return x * 2

    out, static = torch.zeros(3, 4), X.clone()
    good = Attempt(Replay(lambda: out.copy_(static * 2)), out)
    monkeypatch.setattr(real_capture, "captured", lambda *_: good)
    findings = [Finding("moved tensor", "step:1", "seen", "a fix")]
    (finding,) = verified(step, (static,), (X + 1,), findings)
    assert finding.level == level and weight.grad.eq(1).all()


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

    whole = Until(step)
    whole()
    assert len(whole.lines) > 10
    for stop in range(len(whole.lines)):
        Until(step, stop)()
        assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()


@pytest.fixture
def stand_in(monkeypatch):
    """Captures on the CPU, whose own code is no user's."""
    if torch.cuda.is_available():
        pytest.skip("there is a GPU for it")
    monkeypatch.setattr(
        user_lines, "LIBRARIES", (*user_lines.LIBRARIES, str(Path(cpu_graph.__file__).parent))
    )
    user_lines.origin.cache_clear()
    with cpu_graph.cpu_graphs():
        yield
    monkeypatch.undo()
    user_lines.origin.cache_clear()


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
        y.sum().item()  # this one
    return y * 3


def reads(x):
    y = x * 2
    return y * y.sum().item()  # this one


@pytest.mark.parametrize("step", [left_alone, swallows, reads])
def test_the_line_that_breaks_a_capture_is_found(stand_in, step):
    x = torch.ones(3, 4, device="cuda")
    (finding,) = verified(step, (x,), (x + 1,))
    assert finding.rule == "capture" and finding.line.endswith("# this one")
    assert verified(lambda x: x * 2, (x,), (x + 1,)) == []  # the process is well again
    assert sys.exc_info() == (None, None, None)
    with pytest.raises(ValueError) as raised:
        raise ValueError("mine")
    assert raised.value.__context__ is None  # no error of the step is left behind


def test_replays_take_back_a_number_that_makes_no_difference(stand_in):
    x, frozen = (
        torch.ones(3, 4, device="cuda"),
        Findings([Finding("frozen number", "step:1", "seen", "a fix")]),
    )
    numbers = itertools.count(1)  # which no restoring of random states sets back
    levels = [
        verified(step, (x.clone(),), (x + 1,), frozen)[0].level
        for step in (lambda x: x + 1e-30 * next(numbers), lambda x: x * next(numbers))
    ]
    assert levels == ["note", "fault"]


def keeps_its_loss(device):
    weight, logs = torch.ones(4, device=device, requires_grad=True), {"loss": None}

    def step(x):
        logs["loss"] = (x * weight).sum().detach()

    return step


def test_a_result_that_is_kept_in_a_dictionary_is_that_of_the_replay(stand_in):
    x = torch.ones(3, 4, device="cuda")
    assert verified(keeps_its_loss("cuda"), (x,), (x + 1,)) == []


def test_verify_needs_a_gpu():
    with pytest.raises(ValueError, match="needs a CUDA GPU"):
        preflight(lambda x: x, X, device="cpu", verify=True)


@needs_gpu
def test_a_wait_that_nothing_sees_is_found_by_the_capture():
    def step(x):
        y = x * 2
        torch._C._cuda_synchronize()  # this one
        return y

    assert not preflight(step, X.cuda())
    (finding,) = preflight(step, X.cuda(), verify=True)
    assert finding.rule == "capture" and finding.line.endswith("# this one")
    assert not preflight(
        lambda x: x * torch.rand_like(x), X.cuda(), verify=True
    )  # the process is well again


@needs_gpu
def test_a_stream_left_alone_is_found_by_bisection(monkeypatch):
    monkeypatch.setattr("capturable.streams.Joins.left", lambda joins: None)  # as if no rule knew
    side = torch.cuda.Stream()

    def step(x):
        x = x + 1
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            y = x * 2
        z = x * 3
        return y, z

    (finding,) = preflight(step, X.cuda(), verify=True)
    assert finding.rule == "capture"
    assert any(text in finding.line for text in ("wait_stream", "y = x * 2", "stream(side)"))
