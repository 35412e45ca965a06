"""A training script before and after its capture, on the stand-in."""

import ast
import re
import runpy
import sys
from functools import partial

import pytest
import torch

from capturable import compare
from course.lessons import lesson_file
from course.paths import ROOT
from cpu_graph import cpu_graphs
from tests.support.scripts import file_of, names_of

FEWER_ROWS = (("5_000", "660"), ("[4_500, 500]", "[600, 60]"))
LESSON = "capture_own_script"
RATE_ON_THE_CPU = ('map_location="cuda"', 'map_location="cpu"')  # line 11


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """In a folder of its own."""
    monkeypatch.chdir(tmp_path)


def losses_of(*changes, flags=(), script="train_mlp"):
    """The losses of a script on fewer rows, and how many graphs it launches."""
    names = names_of(script, *changes, smaller=FEWER_ROWS)
    with cpu_graphs() as device:
        losses = names["main"](["--quick", *flags])
        return losses, device.launches["graphs"]


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


@pytest.mark.parametrize(("changes", "right"), [((), 9), ([RATE_ON_THE_CPU], 5)])
def test_a_training_goes_on_as_if_it_had_not_stopped(changes, right, eager_losses):
    losses_of(flags=["--stop", "1"])
    losses, replays = losses_of(*changes, flags=["--resume"])
    assert len(losses) == 9 and replays == 6
    assert sum(map(float.__eq__, losses, eager_losses[9:])) == right


def test_a_step_with_two_branches_is_a_graph_for_each():
    """What the table of the lesson advises for a step that does something else at times."""
    batches = torch.randn(12, 2, 8).unbind()

    def losses(wrap):
        torch.manual_seed(0)
        weight = torch.randn(8, device="cuda", requires_grad=True)
        optimizer = torch.optim.AdamW([weight], capturable=True)

        def step(inputs, targets, power):
            optimizer.zero_grad(set_to_none=True)
            loss = (weight * inputs - targets).abs().pow(power).mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        odd, even = wrap(partial(step, power=1)), wrap(partial(step, power=2))
        return [(odd if n % 2 else even)(*batch.cuda()).item() for n, batch in enumerate(batches)]

    with cpu_graphs() as device:
        expected = losses(lambda step: step)
        assert losses(names_of("train_mlp")["GraphedStep"]) == expected
        assert device.launches["graphs"] == 2 * 3, "all calls but three warm-ups of each"


def test_the_script_before_trains_on_the_smaller_batches_too(eager_losses):
    losses, replays = losses_of(script="train_mlp_eager")
    assert len(losses) == 2 * 10 and replays == 0
    assert losses[:9] == pytest.approx(eager_losses[:9], rel=1e-3)


def test_the_table_of_the_lesson_has_the_lines_of_both_scripts():
    before, after = (file_of(name).read_text() for name in ("train_mlp_eager", "train_mlp"))
    lesson = lesson_file(LESSON).read_text(encoding="utf-8").replace('\\"', '"')
    rows = re.findall(r"\| \d* ?\| `(.+?)` \| `(.+?)`[ ,]", lesson)
    assert len(rows) == 6
    for old, new in rows:
        assert old in before and old not in after, old
        assert new in after, new


def test_it_runs_by_itself(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(sys, "argv", ["train_mlp.py", "--quick"])
    with cpu_graphs():
        runpy.run_path(str(file_of("train_mlp")), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["step 50", "epoch 0", "step 100", "epoch 1"]
    saved = torch.load(tmp_path / "train_mlp.pt", weights_only=True, map_location="cpu")
    assert saved.keys() == {"model", "optimizer", "scheduler", "epoch"} and saved["epoch"] == 2


def test_the_scripts_to_copy_open_their_captures_alike():
    modules = [ast.parse(path.read_text()) for path in (ROOT / "examples").glob("*.py")]
    nodes = [node for module in modules for node in module.body]
    copies = [ast.dump(node) for node in nodes if getattr(node, "name", "") == "capturing"]
    assert len(copies) > 5 and len(set(copies)) == 1


def test_the_step_is_that_of_the_script_and_its_graph_equals_it():
    step, script = (ast.dump(_train_step(name)) for name in ("mlp_step", "train_mlp"))
    assert step == script
    names = names_of("mlp_step")
    assert compare(names["make_eager_step"], names["make_graphed_step"], calls=6).difference is None


def test_a_rate_that_is_a_number_is_found_and_named():
    eager = names_of("mlp_step")["make_eager_step"]
    frozen = names_of("mlp_step", ('torch.tensor(1e-3, device="cuda")', "1e-3"))
    found = compare(eager, frozen["make_graphed_step"], calls=6)
    assert found.difference.call == 5 and "lr of AdamW" in str(found)


def _train_step(script):
    nodes = ast.walk(ast.parse(file_of(script).read_text()))
    found = next(node for node in nodes if getattr(node, "name", "") == "train_step")
    found.decorator_list = []
    return found
