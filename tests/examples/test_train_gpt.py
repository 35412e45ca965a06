"""The training to copy: it runs by itself, in graphs as eagerly, and no checkpoint loses a
weight.
"""

import ast
import re

import pytest
import torch

from course.lessons import lesson_file
from course.paths import ROOT
from course.recordings.cells import python
from course.recordings.statements import nested_lists_of
from cpu_graph import cpu_graphs
from examples import train_gpt
from examples.train_gpt import (
    GPT,
    CheckpointError,
    GPTConfig,
    load_checkpoint,
    make_optimizer,
    make_scheduler,
)
from tests.support.notebooks import code
from tests.support.processes import run_python

SIZES = {"n_embd": 64, "n_head": 2, "n_layer": 2, "block_size": 16}
BATCH = {"micro_batch": 2, "gradient_accumulation_steps": 2}
STEPS = {"eval_interval": 2, "max_steps": 8}


def options(**changes):
    return [f"--{name}={value}" for name, value in (SIZES | BATCH | STEPS | changes).items()]


def train(name, *flags, **changes):
    return train_gpt.main([*options(checkpoint=name, **changes), *flags])


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """In a folder of its own; no GPU is used, and no text is written at the end."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(train_gpt, "generate", lambda model, tokens: tokens)


def test_a_resumed_training_is_the_one_that_went_on():
    straight = train("straight.pt")
    assert train("halves.pt", stop_after=3) + train("halves.pt", "--resume") == straight
    assert len(straight) == 8 and all(loss > 0 for loss in straight)


def test_the_graph_trains_as_eager():
    with cpu_graphs() as device:
        straight = train("straight.pt")
        assert device.launches["graphs"] == 5 + 3, "three steps and one evaluation warm up"
        halves = train("halves.pt", stop_after=4) + train("halves.pt", "--resume")
        before = device.launches["graphs"]
        eager = train("eager.pt", "--eager")
        assert eager == straight == halves
        assert device.launches["graphs"] == before
        first = train("graph_first.pt", stop_after=4)
        first += train("graph_first.pt", "--eager", "--resume")
        assert first == eager


def test_dropout_and_evaluation_reach_the_losses():
    with cpu_graphs():
        assert train("some.pt") != train("none.pt", dropout=0.0)


def test_a_step_adds_up_the_gradients_of_its_micro_batches():
    """Four windows in one micro-batch, or in two: the same gradients, up to rounding, and the same
    loss.
    """
    gradients, losses = [], []
    data = torch.arange(400) % 7
    for shape in ((1, 4, 16), (2, 2, 16)):
        torch.manual_seed(0)
        model = GPT(GPTConfig(7, **SIZES, dropout=0.0))
        batch = train_gpt.get_batch(data, 3, (4, 16)).unflatten(0, shape[:2])
        losses.append(train_gpt.train_step(model, make_optimizer(model), batch))
        gradients.append(torch.cat([weight.grad.flatten() for weight in model.parameters()]))
    assert torch.allclose(*losses, rtol=1e-3)
    assert (gradients[0] - gradients[1]).norm() < 2e-2 * gradients[0].norm()


@pytest.mark.weekly
def test_it_runs_by_itself(tmp_path):
    done = run_python(ROOT / "examples" / "train_gpt.py", *options(max_steps=4), folder=tmp_path)
    said = done.stdout.splitlines()
    losses = re.compile(r"(\d): loss \d\.\d{4}, val loss \d\.\d{4}, \d+\.\d s$")
    assert [losses.match(line)[1] for line in said[:2]] == ["2", "4"]
    assert len("\n".join(said[2:])) >= 300


@pytest.fixture
def saved():
    """A checkpoint after two steps, as its file, and as the dict in it."""
    train("saved.pt", max_steps=2)
    return torch.load("saved.pt", weights_only=True)


def load(checkpoint, **changes):
    """What load_checkpoint says of a changed checkpoint, into a training that must stay as
    it was.
    """
    torch.save(checkpoint, "changed.pt")
    model = GPT(GPTConfig(**(checkpoint["config"] | changes)))
    optimizer = make_optimizer(model)
    scheduler = make_scheduler(optimizer, 8)
    before = [weight.detach().clone() for weight in model.parameters()]
    with pytest.raises(CheckpointError) as raised:
        load_checkpoint(train_gpt.Path("changed.pt"), model, optimizer, scheduler)
    assert all(map(torch.equal, before, model.parameters())) and not optimizer.state
    return str(raised.value)


KEY = "blocks.0.mlp.up.weight"


def rename_weight(checkpoint):
    checkpoint["model"][f"module.{KEY}"] = checkpoint["model"].pop(KEY)
    return f"missing: model {KEY}; unexpected: model module.{KEY}"


def swap_names(checkpoint):
    names = checkpoint["optimizer"]["param_groups"][0]["param_names"]
    names[0], names[1] = names[1], names[0]
    return "unexpected: optimizer 0 position_embedding.weight step"


def cut_weight(checkpoint):
    checkpoint["model"][KEY] = checkpoint["model"][KEY][:5]
    return f"model {KEY} is torch.float32 (5, 64) in the file and torch.float32 (256, 64) here"


BROKEN = (rename_weight, swap_names, cut_weight)


@pytest.mark.parametrize("change", BROKEN, ids=lambda change: change.__name__)
def test_a_checkpoint_that_does_not_fit_is_refused_and_says_which_key(saved, change):
    message = change(saved)
    assert message in load(saved)


@pytest.mark.parametrize(
    "size, value", [("n_layer", 3), ("n_embd", 32), ("block_size", 8), ("vocab_size", 9)]
)
def test_a_checkpoint_of_other_sizes_says_which(saved, size, value):
    said = load(saved, **{size: value})
    assert f"{size} is {saved['config'][size]} in the file and {value} here" in said


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", None])
def test_a_file_that_is_no_checkpoint_is_refused(content, saved, tmp_path):
    whole = (tmp_path / "saved.pt").read_bytes()
    (tmp_path / "saved.pt").write_bytes(whole[: len(whole) // 2] if content is None else content)
    with pytest.raises(CheckpointError, match=r"saved.pt cannot be read as a checkpoint: \S"):
        train("saved.pt", "--resume")


def test_without_a_checkpoint_there_is_nothing_to_resume():
    with pytest.raises(CheckpointError, match="There is no none.pt: train without --resume first"):
        train("none.pt", "--resume")


def test_a_training_does_not_overwrite_an_earlier_one(saved, tmp_path, capsys):
    before = (tmp_path / "saved.pt").read_bytes()
    with pytest.raises(SystemExit):
        train("saved.pt")
    assert "saved.pt exists: resume it with --resume" in capsys.readouterr().err
    assert (tmp_path / "saved.pt").read_bytes() == before


def test_an_interrupted_save_leaves_the_earlier_checkpoint(saved, tmp_path, monkeypatch):
    before = (tmp_path / "saved.pt").read_bytes()

    def interrupted(content, path):
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(torch, "save", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train("saved.pt", "--resume", max_steps=4)
    assert (tmp_path / "saved.pt").read_bytes() == before


def test_options_that_changed_are_told(saved, capsys):
    train("saved.pt", "--resume", max_steps=4, micro_batch=3)
    said = capsys.readouterr().out
    assert "--micro_batch was 2 until step 2 and is 3 from here on." in said
    assert "--max_steps was 2" in said


def test_a_finished_training_says_so(saved, capsys):
    assert train("saved.pt", "--resume", max_steps=2) == []
    assert "saved.pt has 2 steps: to go on, give more by --max_steps." in capsys.readouterr().out


def test_a_checkpoint_of_a_gpu_goes_on_without_one():
    """The stand-in's device counts as a CPU here, so the file is relabelled: dropout is not
    resumed, and it says so.
    """
    straight = train("straight.pt", dropout=0.0)
    train("saved.pt", dropout=0.0, stop_after=4)
    checkpoint = torch.load("saved.pt", weights_only=True)
    checkpoint["rng_state"] = {"cuda": checkpoint["rng_state"].pop("cpu")}
    torch.save(checkpoint, "saved.pt")
    with pytest.warns(UserWarning, match="was saved on cuda: on cpu dropout draws other numbers"):
        assert train("saved.pt", "--resume", dropout=0.0) == straight[4:]


WRONG = {
    "--micro_batch=0": "argument --micro_batch: 0 is not 1 or more",
    "--eval_interval=-1": "argument --eval_interval: -1 is not 1 or more",
    "--checkpoint=a/b.pt": "There is no folder a for the checkpoint",
}


@pytest.mark.parametrize("flag", WRONG)
def test_a_wrong_option_is_refused_in_a_sentence(flag, capsys):
    with pytest.raises(SystemExit):
        train_gpt.main([flag])
    assert WRONG[flag] in capsys.readouterr().err


def test_heads_divide_the_width():
    with pytest.raises(ValueError, match="n_embd 64 is not divisible by n_head 3"):
        GPTConfig(7, n_embd=64, n_head=3)


def functions(source):
    """Each function, without its docstring and types."""
    nodes = ast.parse(source).body
    return {node.name: nested_lists_of(node) for node in nodes if isinstance(node, ast.FunctionDef)}


def test_the_lesson_trains_as_the_script():
    own = functions("\n".join(map(python, code(lesson_file("train_language_model")))))
    script = functions((ROOT / "examples" / "train_gpt.py").read_text())
    both = own.keys() & script.keys()
    assert "train_step" in both
    assert {name: own[name] for name in both} == {name: script[name] for name in both}
