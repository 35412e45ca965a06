"""capturable as a tool: commands, exit status, JSON, loops of others, alone with torch."""

import json

import pandas as pd
import pytest
import torch
from torch import nn

import capturable
from capturable import assert_capturable, watch
from capturable.__main__ import main
from capturable.findings import Finding, Findings
from tests.support.library_models import models_of
from tests.support.processes import run_python, unpacked_wheel

SCRIPT = """
import torch

def make_bad():
    model = torch.nn.Linear(4, 2)

    def step(x):
        print("stepping")
        return model(x) * x.sum().item()  # a value read

    return step, (torch.ones(3, 4),), (torch.zeros(3, 4),)

def make_good():
    return torch.nn.Linear(4, 2), [torch.ones(3, 4)]

def make_raising():
    def step():
        raise ZeroDivisionError("of the step")
    return step

def make_alone():
    x = torch.ones(3)
    return lambda: x * 2
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


def run(*arguments):
    return main(["check", *map(str, arguments), "--device", "cpu"])


@pytest.mark.parametrize(
    "name, status", [("make_bad", 1), ("make_good", 0), ("make_alone", 0), ("make_raising", 2)]
)
def test_check_has_an_exit_status(script, name, status, capsys):
    assert run(f"{script}:{name}") == status
    said = capsys.readouterr()
    assert {0: "no findings", 1: "sync: a tensor's value is read", 2: ""}[status] in said.out
    assert status != 2 or "of the step" in said.err


def test_json_is_alone_on_standard_output(script, capsys):
    assert run(f"{script}:make_bad", "--json") == 1
    said = json.loads(capsys.readouterr().out)
    assert said["version"] == capturable.__version__ and said["report"]["device"] == "cpu"
    assert said["report"]["torch"] == torch.__version__ and said["report"]["operators"] > 3
    row = next(row for row in said["findings"] if row["rule"] == "sync")
    assert row["file"] == str(script) and row["line"].endswith("# a value read")
    assert SCRIPT.splitlines()[row["number"] - 1].endswith("# a value read")


def test_findings_are_shown_as_text_and_a_table():
    rows = ("path", "step:1", "a branch", "a fix"), ("hook", "step:2", "a hook", "none", "note")
    findings = Findings(Finding(*row) for row in rows)
    assert "path: a branch" in repr(findings) and "hook (note)" in repr(findings)
    assert list(pd.DataFrame(findings).rule) == ["path", "hook"]
    assert [f.rule for f in findings.faults] == ["path"]
    assert repr(Findings()) == "no findings"


def test_a_test_fails_with_the_findings_as_its_message():
    x, positive = torch.ones(3), lambda x: x[x > 0]
    assert_capturable(lambda x: x * 2, x, x + 1, device="cpu")
    assert_capturable(lambda *, x: x * 2, {"x": x}, {"x": x + 1}, device="cpu")
    with pytest.raises(AssertionError) as raised:
        assert_capturable(lambda x, n: x * n, (x, 2), (x, 3), device="cpu")
    said = str(raised.value).splitlines()
    assert said[0] == "2 findings: 2 frozen"
    assert any(line.strip().startswith("fix: make it a GPU tensor") for line in said)
    assert "capturable/testing.py" not in str(raised.getrepr(style="short"))
    assert_capturable(positive, x, ignore=["sync"], device="cpu")
    with pytest.raises(ValueError, match="there is no rule snyc"):
        assert_capturable(positive, x, ignore=["snyc"], device="cpu")


def test_the_package_installs_by_itself(tmp_path):
    """It is imported from where its wheel was unpacked."""
    there = unpacked_wheel(tmp_path, "capturable")
    code = "import capturable.restore, capturable.rules; from capturable.__main__ import main; "
    code += "print(capturable.__file__); main()"
    message = "CUDA error: capturing stream has unjoined work"
    done = run_python("-c", code, "explain", message, folder=there)
    assert done.stdout.startswith(f"{there}/capturable/__init__.py\nUnjoined side"), done.stderr


def loop(steps, bad=False, keep=False):
    """A training loop that watch does not own."""
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    seen, average = 0, torch.zeros(())
    for _ in range(steps):
        x = torch.tensor([[1.0, 2.0, 3.0, 4.0]])  # between the steps
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        if keep:
            average = average * 0.9 + loss.detach()  # of the step before
        if bad and loss.item() > -1:  # a value read
            seen += 1
        optimizer.step()
        print(loss.item(), seen)  # after the step
    return [parameter.tolist() for parameter in model.parameters()]


def test_watch_judges_steps_of_a_loop_and_changes_nothing():
    torch.manual_seed(0)
    alone = loop(5)
    torch.manual_seed(0)
    with watch(device="cpu") as findings:
        watched = loop(5)
    assert findings == [] and watched == alone
    with watch(device="cpu") as findings:
        loop(5, bad=True)
    (finding,) = findings
    assert finding.rule == "sync" and finding.line.endswith("# a value read")
    with watch(device="cpu") as findings:
        loop(5, keep=True)
    (finding,) = findings
    assert finding.rule == "moved tensor" and finding.line.endswith("# of the step before")


def test_watch_says_so_if_it_saw_too_little():
    with pytest.warns(RuntimeWarning, match="saw 2 steps"), watch(device="cpu") as findings:
        loop(2)
    assert "watch saw 2 steps, and needs 3: nothing was compared." in str(findings)
    with pytest.raises(ZeroDivisionError), watch(device="cpu"):
        loop(2)
        raise ZeroDivisionError
    assert torch.ones(2).add(1).tolist() == [2, 2]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 2)

    def forward(self, x, labels):
        loss = nn.functional.mse_loss(self.inner(x), labels)
        return {"loss": loss, "logits": self.inner(x)}


def test_watch_a_trainer_of_transformers(tmp_path):
    transformers = models_of("transformers")
    pytest.importorskip("accelerate")
    arguments = transformers.TrainingArguments(
        str(tmp_path), max_steps=4, use_cpu=True, report_to=[], save_strategy="no"
    )
    data = [{"x": torch.ones(4), "labels": torch.ones(2)}] * 16
    trainer = transformers.Trainer(Model(), arguments, train_dataset=data)
    with watch(device="cpu") as findings:
        trainer.train()
    rules = {finding.rule for finding in findings}
    assert "optimizer" in rules, findings  # AdamW without capturable=True
