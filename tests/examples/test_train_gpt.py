"""The scripts to copy: they run by themselves, and the lessons that end with them say the same."""

import ast
import re
import subprocess
import sys

import nbformat
import pytest
import torch

from course.lessons import lesson_file
from course.paths import ROOT
from course.recordings.cells import python
from cpu_graph import cpu_graphs
from examples import train_gpt

SIZES = {"width": 64, "layers": 1, "context": 16, "rows": 2, "parts": 2, "every": 2, "steps": 4}
TINY = [f"--{name}={size}" for name, size in SIZES.items()]


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    """In a folder of its own, on one thread; no GPU is used."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def plain(function):
    """A definition without its docstring and types."""
    for node in ast.walk(function):
        if isinstance(node, ast.FunctionDef):
            node.returns = None
            node.body = node.body[isinstance(ast.get_docstring(node), str) :]
        elif isinstance(node, ast.arg):
            node.annotation = None
    return ast.unparse(function)


def definitions(source):
    return {node.name: plain(node) for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)}


def test_a_resumed_training_is_the_one_that_went_on():
    straight = train_gpt.main(TINY)
    assert train_gpt.main([*TINY, "--until", "2"]) + train_gpt.main([*TINY, "--resume"]) == straight
    assert len(straight) == 4 and all(loss > 0 for loss in straight)


def test_the_graph_trains_as_eager():
    with cpu_graphs() as device:
        straight = train_gpt.main(TINY)
        assert device.counts["graphs"] == 4 + 2  # steps, evaluations
        halves = train_gpt.main([*TINY, "--until", "2"]) + train_gpt.main([*TINY, "--resume"])
        before = device.counts["graphs"]
        assert train_gpt.main([*TINY, "--eager"]) == straight == halves
        assert device.counts["graphs"] == before


def test_it_runs_by_itself(tmp_path):
    command = [sys.executable, str(ROOT / "examples" / "train_gpt.py"), *TINY]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.splitlines()
    assert [re.match(r"(\d): loss \d\.\d{4}, test \d\.\d{4}, [\d.]+ s$", line)[1] for line in said[:2]] == ["2", "4"]
    assert len("\n".join(said[2:])) >= 300


def test_a_batch_hangs_on_its_number_alone():
    ids = torch.arange(1000)
    one, again, other = (train_gpt.draw(ids, (2, 3, 8), number) for number in (5, 5, 6))
    assert one.shape == (2, 3, 9) and torch.equal(one, again) and not torch.equal(one, other)
    assert (one.diff() == 1).all()


def test_the_lesson_trains_as_the_script():
    cells = nbformat.read(lesson_file("train_language_model"), as_version=4).cells
    own = definitions("\n".join(python(cell.source) for cell in cells if cell.cell_type == "code"))
    script = definitions((ROOT / "examples" / "train_gpt.py").read_text())
    both = own.keys() & script.keys()
    assert "train_step" in both and {name: own[name] for name in both} == {name: script[name] for name in both}
