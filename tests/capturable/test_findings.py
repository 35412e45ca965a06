"""What findings say: places first, libraries apart, comments accepted, and what
was not seen."""

import linecache
import sys
import threading
import time

import pytest
import torch
from torch import nn

from capturable import Finding, preflight, user_lines, watch
from capturable.__main__ import main
from capturable.rules import ALL, KINDS, RULES, SLUGS, markdown
from tests.support.project import ROOT

X = torch.linspace(-1, 1, 12).reshape(3, 4)


def reads(x):
    return x * x.sum().item()


def test_a_finding_begins_with_file_and_line_as_editors_open_them():
    found = preflight(reads, X.clone(), device="cpu")
    first, code, rule, fix = str(found[0]).splitlines()
    number = reads.__code__.co_firstlineno + 1
    assert first == f"tests/capturable/test_findings.py:{number} in reads"
    assert code.strip() == "return x * x.sum().item()"
    assert rule.strip().startswith("sync: ") and fix.strip().startswith("fix: ")
    assert str(Finding("inputs", "inputs[0]", "a shape", "a fix")).splitlines()[0] == "inputs[0]"


def test_the_last_line_says_what_was_looked_at_and_what_was_not():
    found = preflight(lambda x: x * 2, X.clone(), device="cpu")
    assert str(found).splitlines()[0] == "no findings"
    seen, last = str(found).splitlines()[-2:]
    assert seen == "Checked on the CPU, in place of a GPU: 1 operator, 3 runs."
    for text in ("copies of tensors kept", "verify", "other_inputs", "paths that did not run"):
        assert text in last
    varied = preflight(lambda x: x * 2, X.clone(), other_inputs=(X,), device="cpu", warmup=3)
    assert "other_inputs" not in str(varied.report) and varied.report.runs == 5


@pytest.fixture
def library(tmp_path, monkeypatch):
    """An installed module with three faults and a loop."""
    (tmp_path / "lib.py").write_text(
        "import torch\n\n"
        "def forward(model, x):\n"
        "    y = model(x)\n"
        "    y = y * y.sum().item()\n"
        "    keep = y[y > 0]\n"
        "    return y.mean() + keep.mean() * float(y.max())\n\n"
        "def train(model, optimizer, steps):\n"
        "    for _ in range(steps):\n"
        "        optimizer.zero_grad()\n"
        "        forward(model, torch.ones(3, 4)).backward()\n"
        "        optimizer.step()\n"
    )
    (tmp_path / "lib-1.0.dist-info").mkdir()  # as pip install --target leaves it
    monkeypatch.syspath_prepend(tmp_path)
    caches = user_lines.owner_of_file, user_lines._pip_target_folders
    for cache in caches:
        cache.cache_clear()
    import lib

    yield lib
    for cache in caches:
        cache.cache_clear()
    del sys.modules["lib"]


def test_each_line_of_a_library_is_a_finding_of_its_own(library):
    model = nn.Linear(4, 2)
    found = preflight(lambda x: library.forward(model, x), X.clone(), device="cpu")
    places = [finding.inside.rpartition("/")[2] for finding in found if finding.rule == "sync"]
    assert places == ["lib.py:5 in forward", "lib.py:6 in forward", "lib.py:7 in forward"]
    assert {finding.file for finding in found} == {__file__}
    assert "called from tests/capturable/test_findings.py" in str(found)


@pytest.mark.parametrize("capturable", [False, True])
def test_watch_shows_every_line_of_a_librarys_loop(library, capturable):
    """An optimizer with capturable=True steps on the CPU, too."""
    model = nn.Linear(4, 2)
    with watch(device="cpu") as found:
        library.train(model, torch.optim.AdamW(model.parameters(), capturable=capturable), 4)
    lines = {(finding.rule, finding.inside.rpartition(":")[2]) for finding in found}
    assert {("sync", "5 in forward"), ("sync", "6 in forward"), ("sync", "7 in forward")} <= lines
    assert [line for line in lines if line[0] == "optimizer"] == (
        [] if capturable else [("optimizer", "13 in train")]
    )


SCRIPT = """import torch

kept = {"n": 0}

def make_step():
    def step(x):
        print("a step")  # capturable: ignore
        kept["n"] += 1  # capturable: ignore[cpu-work]
        return x * x.sum().item()  # capturable: ignore[CPU work, path]
    return step, (torch.ones(3),)
"""


def check(*arguments):
    return main(["check", "train.py:make_step", "--device", "cpu", *arguments])


def test_a_comment_accepts_a_finding(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)
    linecache.checkcache()
    assert check() == 1
    said = capsys.readouterr().out
    assert "    sync: " in said and "    CPU work: " not in said and "2 ignored by comments" in said
    assert "Warning" not in said
    (tmp_path / "train.py").write_text(SCRIPT.replace("cpu-work", "cpu-wrok, sync"))
    linecache.checkcache()
    assert check() == 1
    warning = "train.py:8: there is no rule cpu-wrok to ignore"
    assert f"Warning: {warning}." in capsys.readouterr().out


def test_refusals_come_before_what_freezes_and_a_summary_before_both(library):
    kept = {"n": 0}

    def step(x):
        kept["n"] += 1
        library.forward(nn.Identity(), x)
        return x.sum().item() * x

    found = preflight(step, X.clone(), device="cpu")
    text = str(found)
    heads = [line for line in text.splitlines() if line.startswith(("Refused", "Frozen", "Note"))]
    assert text.startswith(found.summary)
    assert [head.split(":")[0] for head in heads] == ["Refused", "Frozen"]
    assert found.summary.startswith(f"{len(found)} findings: 4 refused, ")
    refused = text[text.index("Refused") : text.index("Frozen")]
    assert refused.index("return x.sum()") < refused.index("lib.py:5 in forward")
    assert [f.number for f in found] == sorted(f.number for f in found)  # the list is by lines


def test_a_thread_that_ran_before_the_step_is_none_of_its():
    done = threading.Event()

    def chatter():
        while not done.is_set():
            print(end="")
            time.sleep(0.001)

    thread = threading.Thread(target=chatter)
    thread.start()
    try:
        assert not preflight(lambda x: x.relu() + 1, X.clone(), device="cpu")
    finally:
        done.set()
        thread.join()


def test_the_advice_for_an_averaged_model_is_not_an_optimizers():
    model = nn.Linear(4, 4)
    average = torch.optim.swa_utils.AveragedModel(model)
    found = preflight(lambda x: average.update_parameters(model), X.clone(), device="cpu")
    assert {finding.rule for finding in found.faults} <= {"sync", "CPU work"}
    assert all("capturable=True" not in finding.fix for finding in found)


def test_the_rules_are_whole_and_their_page_is_made_of_them():
    assert len(RULES) == len(SLUGS) == len(ALL)
    for rule in ALL:
        assert rule.kind in KINDS and rule.why.endswith(".") and rule.example and rule.fix
    assert (ROOT / "capturable/RULES.md").read_text() == markdown(), (
        "run python -m capturable rules > capturable/RULES.md"
    )
