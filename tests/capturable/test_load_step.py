"""The command meets what people have: packages, arguments, keyword inputs; and says every
failure in a sentence."""

import random
import re
import sys
from pathlib import Path

import pytest
import torch

from capturable.__main__ import main
from course.paths import ROOT
from tests.support.processes import run_python

MODEL = "import torch\n\n\nclass Net(torch.nn.Linear):\n    pass\n"
STEP = "    net = Net(4, 2)\n    return (lambda x: net(x)), (torch.ones(3, 4),)\n"
RELATIVE = f"import torch\n\nfrom .model import Net\n\n\ndef make_step():\n{STEP}"
ABSOLUTE = f"import torch\n\nfrom pkg.model import Net\n\n\ndef make_step():\n{STEP}"


@pytest.fixture
def project(tmp_path, monkeypatch):
    """write(path, text) files in a folder that is the current one; sys.path and what is imported
    there are restored."""

    def write(files):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "argv", sys.argv)
    known = set(sys.modules)
    yield write
    for name in set(sys.modules) - known:
        if str(tmp_path) in (getattr(sys.modules[name], "__file__", None) or str(tmp_path)):
            del sys.modules[name]


def check(*arguments):
    script = ["--", *arguments[1:]] if len(arguments) > 1 else []
    return main(["check", arguments[0], "--device", "cpu", *script])


def refused(capsys, target, *says, arguments=()):
    """The command's one sentence, on standard error, with status 2."""
    assert check(target, *arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert re.fullmatch(r"capturable check: [^\n]+\n", said.err.splitlines(keepends=True)[-1])
    for text in says:
        assert text in said.err, said.err
    return said.err


@pytest.mark.parametrize("target", ["pkg/runs/train.py:make_step", "pkg.runs.train:make_step"])
def test_a_package_loads(project, target):
    files = {"pkg/__init__.py": "", "pkg/model.py": MODEL, "pkg/runs/__init__.py": ""}
    project(files | {"pkg/runs/train.py": RELATIVE.replace(".model", "..model")})
    assert check(target) == 0


def test_the_command_finds_what_lies_in_the_folder_without_numpy_and_pandas(project, tmp_path):
    """Not only python -m, which adds the folder itself."""
    project({"pkg/__init__.py": "", "pkg/model.py": MODEL, "scripts/train.py": ABSOLUTE})
    code = f"import sys; sys.path[:] = [p for p in sys.path if p] + [{str(ROOT)!r}]; "
    code += "sys.modules.update(numpy=None, pandas=None); "
    code += "from capturable.__main__ import main; sys.exit(main())"
    asked = ["check", "scripts/train.py:make_step", "--device", "cpu"]
    done = run_python("-c", code, *asked, folder=tmp_path)
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert done.stdout.startswith("no findings\nChecked on the CPU")


ARGPARSE = """import argparse

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, required=True)
options = parser.parse_args()


class Trainer:
    @staticmethod
    def make():
        return (lambda x: x * options.lr), (torch.ones(3),)
"""


def test_arguments_behind_two_hyphens_are_the_scripts(project, capsys):
    project({"train.py": ARGPARSE})
    assert check("train.py:Trainer.make", "--lr", "0.1") == 0
    capsys.readouterr()
    refused(capsys, "train.py:Trainer.make", "ended the program", "go behind --")


KEYWORDS = """import torch

def make_step():
    batches = [{"x": torch.ones(3), "scale": scale, "mask": torch.ones(3) > 0} for scale in (1.0, 2.0)]
    return lambda x, scale, mask: (x * scale).masked_fill(mask, 0.0), *batches
"""


def test_keyword_inputs(project, capsys):
    project({"train.py": KEYWORDS})
    assert check("train.py:make_step") == 1
    said = capsys.readouterr().out
    assert "inputs['scale']" in said and "aten::mul.Tensor got the number 1.0, then 2.0" in said


@pytest.mark.parametrize(
    "text, says",
    [
        ("import sys\nsys.exit('no data')\n", ["train.py:2", "no data"]),
        ("def make_step(:\n", ["train.py:1", "invalid syntax"]),
        ("raise ValueError('of two\\nlines')\n", ["train.py:1: ValueError: of two lines"]),
        ("def make_step(config):\n    return config\n", ["make_step needs config"]),
        ("make_step = 3\n", ["make_step is no function"]),
        ("make_other = 3\n", ["has no function make_step"]),
        ("def make_step():\n    return 3\n", ["neither a step nor"]),
        ("async def make_step():\n    pass\n", ["make_step is async: name a plain function"]),
        ("def make_step():\n    yield 1\n", ["make_step is a generator"]),
        ("def make_step():\n    return (lambda x: x), 3\n", ["keyword arguments"]),
        (
            "def half():\n    return 1 / 0\ndef make_step():\n    return half()\n",
            ["make_step() failed at", "train.py:2", "ZeroDivisionError"],
        ),
        ("def make_step():\n    return lambda: 1 / 0\n", ["the step failed at", "train.py:2"]),
        (
            "def make_step():\n    it = iter([1])\n    return lambda: next(it)\n",
            ["an iterator ran dry"],
        ),
        ("def make_step():\n    return lambda: exit(3)\n", ["the step ended the program", "3"]),
        (
            "import torch\ndef make_step():\n    return (lambda x: x), (torch.ones(1),), "
            "(torch.ones(1), 2)\n",
            ["other_inputs must match the inputs"],
        ),
    ],
)
def test_every_failure_is_a_sentence_with_status_2(project, capsys, text, says):
    project({"train.py": text})
    refused(capsys, "train.py:make_step", *says)


def test_a_factory_of_compare_and_a_cast_that_backward_takes_back(project, capsys):
    """It returns several batches; and check's own calls are none of the step's."""
    step = "lambda x: (net(x).half() * torch.zeros(2, device='cuda')).float().sum().backward()"
    made = f"net = torch.nn.Linear(4, 2).cuda()\n    return ({step}), *torch.ones(3, 2, 4).cuda()"
    project({"train.py": f"import torch\ndef make_step():\n    {made}\n"})
    assert main(["check", "train.py:make_step"]) == 0, capsys.readouterr()
    assert "Checked on the stand-in" in capsys.readouterr().out


def test_an_error_of_the_stand_ins_is_at_the_steps_line(project, capsys):
    made = "x = torch.ones(3).cuda()\n    return lambda: x + w\n"
    project({"train.py": f"import torch\nw = torch.ones(3)\ndef make_step():\n    {made}"})
    assert main(["check", "train.py:make_step"]) == 2
    assert "the step failed at train.py:5" in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_a_sentence(project, capsys):
    made = "(lambda x: x.cuda()), (torch.ones(1),)"
    project({"train.py": f"import torch\ndef make_step():\n    return {made}\n"})
    refused(capsys, "train.py:make_step", "the step failed at train.py:3", "there is no GPU here")
    assert main(["check", "train.py:make_step", "--device", "cpu", "--verify"]) == 2
    assert "needs a CUDA GPU" in capsys.readouterr().err


def test_names_that_are_nothing_are_told(project, capsys):
    project({"train.py": "make_step = 1\n"})
    for target in ("nothing.py:make", "make", "train.py", "no.module:make", ":make", "train.py:"):
        refused(capsys, target)


def test_a_script_named_as_a_standard_module_replaces_none(project):
    import copy

    text = f"import torch\ndef make_step():\n{STEP}"
    project({"scripts/copy.py": text.replace("Net(", "torch.nn.Linear(")})
    assert check("scripts/copy.py:make_step") == 0
    assert sys.modules["copy"] is copy and sys.path[-1] == str(Path("scripts").resolve())


def test_the_traceback_is_there_for_the_asking(project, capsys):
    project({"train.py": "def make_step():\n    return lambda: 1 / 0\n"})
    assert main(["check", "train.py:make_step", "--device", "cpu", "--traceback"]) == 2
    assert "Traceback" in capsys.readouterr().err


LAZY = """import importlib.util
import sys

import torch

def lazy(name):
    spec = importlib.util.find_spec(name)
    loader = importlib.util.LazyLoader(spec.loader)
    spec.loader = loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    loader.exec_module(module)
    return module

class Proxy:
    def __getattr__(self, name):
        import heavy
        return getattr(heavy, name)

    @property
    def __class__(self):
        import heavy
        return heavy.Thing

other, proxy = lazy("other"), Proxy()

def make_step():
    def step(x):
        return x * 2 if x is not None else (other, proxy)
    return step, (torch.ones(3),)
"""
HEAVY = "import random\nrandom.seed(7)\nopen('imported', 'a').close()\nclass Thing: pass\n"


def test_looking_imports_nothing_and_draws_nothing(project, tmp_path):
    project({"train.py": LAZY, "heavy.py": HEAVY, "other.py": HEAVY})
    state = random.getstate()
    assert check("train.py:make_step") == 0
    assert not (tmp_path / "imported").exists() and random.getstate() == state
