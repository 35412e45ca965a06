"""A training script before and after its capture, on the stand-in."""

import runpy
import sys
from ast import literal_eval
from contextlib import suppress

import pytest
import torch

from course.lessons import lesson_file
from course.paths import ROOT
from course.show_source import diff_of
from cpu_graph import cpu_graphs
from tests.support.notebooks import code

FILE = ROOT / "examples/train_mlp.py"
CHANGES = literal_eval(
    next(
        cell.removeprefix("changes = ")
        for cell in code(lesson_file("capture_own_script"))
        if cell.startswith("changes = ")
    )
)
KINDS = {  # what the lesson's table says
    "1 copy the inputs": "silent",
    "2 warm-up": "silent",  # raises on a GPU: the stand-in has no library to set up
    "3 clone the loss": "silent",
    "4 side stream": "same",
    "5 drop_last": "raises",
    "6 learning rate": "silent",
    "7 capturable": "raises",
    "8 detach": "raises",
}


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    """In a folder of its own, on one thread."""
    monkeypatch.chdir(tmp_path)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def losses_of(line="", instead="", flags=(), file=FILE):
    """The losses of the script on fewer rows, with one of its lines changed."""
    script = file.read_text()
    assert script.count(line) == 1 or not line
    for text, fewer in (("5_000", "660"), ("[4_500, 500]", "[600, 60]"), (line, instead)):
        script = script.replace(text, fewer) if text else script
    names = {"__name__": "train_mlp"}
    exec(compile(script, str(file), "exec"), names)
    with cpu_graphs() as device:
        losses = names["main"](["--quick", *flags])
        return losses, device.counts["graphs"]


@pytest.fixture(scope="module")
def eager_losses(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("eager"))
        losses, replays = losses_of(flags=["--no-graph"])
    assert replays == 0
    return losses


def test_the_graph_trains_as_eager(eager_losses):
    losses, replays = losses_of()
    assert losses == eager_losses and len(losses) == 2 * 9
    assert replays == len(losses) - 3, "all steps but the warm-up"


@pytest.mark.parametrize("change", CHANGES)
def test_without_a_line_it_ends_as_the_lesson_says(change, eager_losses):
    found = "raises"
    with suppress(RuntimeError):
        losses, _ = losses_of(*CHANGES[change])
        found = "same" if losses == eager_losses else "silent"
    assert found == KINDS[change]


def test_every_numbered_line_is_left_out_once():
    numbers = {line.rpartition("# ")[2] for line in FILE.read_text().splitlines()}
    assert {change[0] for change in CHANGES} == {number for number in numbers if number.isdigit()}
    assert CHANGES.keys() == KINDS.keys()


def test_the_script_before_trains_on_the_smaller_batches_too(eager_losses):
    losses, replays = losses_of(file=ROOT / "examples/train_mlp_eager.py")
    assert len(losses) == 2 * 10 and replays == 0
    assert losses[:9] == pytest.approx(eager_losses[:9], rel=1e-3)


def test_it_runs_by_itself(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(sys, "argv", ["train_mlp.py", "--quick"])
    with cpu_graphs():
        runpy.run_path(str(FILE), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["step 50", "epoch 0", "step 100", "epoch 1"]
    saved = torch.load(tmp_path / "train_mlp.pt", weights_only=True, map_location="cpu")
    assert saved.keys() == {"model", "optimizer"}


def test_the_diff_shows_what_changes():
    shown = diff_of("examples/train_mlp_eager.py", "examples/train_mlp.py").data
    assert "-        return loss.item()\n+        return loss.detach()  # 8" in shown
    assert "a script as many people have it" not in shown, "docstrings are left out"
