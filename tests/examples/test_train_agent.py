"""A training of an agent as one graph, on the stand-in, with few environments."""

import runpy
import sys
from contextlib import redirect_stdout, suppress
from io import StringIO

import pytest
import torch

from course.paths import ROOT
from cpu_graph import cpu_graphs
from examples.train_agent import CartPole, Graphed

FILE = ROOT / "examples/train_agent.py"
SMALL = ["--num-envs", "4", "--num-steps", "2", "--iterations", "10"]
# what a script without a graph may have in the place of each numbered line
CHANGES = {
    "1 state in place": (
        "self.state.add_(change, alpha=0.02)",
        "self.state = self.state + 0.02 * change",
    ),
    "2 running mean in place": (
        "self.mean_length.lerp_(",
        "self.mean_length = self.mean_length.lerp(",
    ),
    "3 no mask": (
        "self.state.copy_(torch.where(done[:, None], fresh, self.state))",
        "if done.any(): self.state[done] = fresh[done]",
    ),
    "4 rate as a tensor": ('torch.tensor(2.5e-3, device="cuda")', "2.5e-3"),
    "5 order drawn on the GPU": (', device="cuda")  # 5.', ").cuda()  # 5."),
    "6 loss stays on the GPU": ("loss.detach()", "loss.detach().cpu()"),
    "7 side stream": ("with torch.cuda.stream(torch.cuda.Stream()):", "if True:"),
    "8 clone the loss": ("iteration().clone()", "iteration()"),
}
KINDS = {
    "1 state in place": "silent",
    "2 running mean in place": "silent",
    "3 no mask": "raises",
    "4 rate as a tensor": "silent",
    "5 order drawn on the GPU": "raises",
    "6 loss stays on the GPU": "raises",
    "7 side stream": "raises",
    "8 clone the loss": "silent",
}


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def log_of(line="", instead="", flags=()):
    """The log of the script with one of its lines changed, the seconds apart."""
    script = FILE.read_text()
    assert script.count(line) == 1 or not line
    fewer = (("EPOCHS = 4", "EPOCHS = 1"), ("MINIBATCHES = 4", "MINIBATCHES = 2"))
    for text, other in ((line, instead), *fewer):
        script = script.replace(text, other) if text else script
    names = {"__name__": "train_agent"}
    exec(compile(script, str(FILE), "exec"), names)
    with cpu_graphs() as device, redirect_stdout(StringIO()) as printed:
        names["main"]([*SMALL, *flags])
        replays = device.counts["graphs"]
    return printed.getvalue().splitlines()[:-1], replays


@pytest.fixture(scope="module")
def eager_log():
    log, replays = log_of(flags=["--eager"])
    assert replays == 0 and len(log) == 1
    return log


def test_the_graph_trains_as_eager(eager_log):
    log, replays = log_of()
    assert log == eager_log
    assert replays == 10 - 3, "all iterations but the warm-up"


@pytest.mark.parametrize("change", CHANGES)
def test_without_a_line_it_ends_as_the_lesson_says(change, eager_log):
    found = "raises"
    with suppress(RuntimeError):
        log, _ = log_of(*CHANGES[change])
        found = "same" if log == eager_log else "silent"
    assert found == KINDS[change]


def test_every_numbered_line_is_left_out_once():
    comments = [line.rpartition("  # ")[2] for line in FILE.read_text().splitlines()]
    numbers = {comment[0] for comment in comments if comment[:1].isdigit()}
    assert {change[0] for change in CHANGES} == numbers
    assert CHANGES.keys() == KINDS.keys()


def test_a_pole_falls_and_its_episode_begins_again():
    with cpu_graphs():
        env = CartPole(3)
        env.state[0, 2] = 0.3  # rad: fallen
        env.state[1] = 0
        env.length[1] = 499
        done = env.step(torch.tensor([1, 0, 1], device="cuda"))
        assert done.tolist() == [True, True, False]
        assert env.length.tolist() == [0, 0, 1]
        assert env.state[:2].abs().max() <= 0.05
        assert env.mean_length.item() == pytest.approx(0.05 * (1 + 500) / 2)


def test_a_push_accelerates_cart_and_pole():
    with cpu_graphs():
        env = CartPole(1)
        env.state.zero_()
        env.step(torch.tensor([1], device="cuda"))
        # gymnasium's CartPole-v1 from a state of zeros
        assert env.state[0].tolist() == pytest.approx([0, 0.195122, 0, -0.292683], abs=1e-6)


def test_graphed_gives_the_same_tensor_from_the_fourth_call_on():
    with cpu_graphs() as device:
        side_stream = torch.cuda.Stream()
        with torch.cuda.stream(side_stream):
            total = torch.zeros(1, device="cuda")
            add = Graphed(lambda: total.add_(1) * 2)
            results = [add() for _ in range(5)]
        side_stream.synchronize()
        assert total.item() == 5 and device.counts["graphs"] == 2
        assert [result.item() for result in results] == [2, 4, 6, 10, 10]


def test_it_runs_by_itself(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["train_agent.py", *SMALL])
    with cpu_graphs():
        runpy.run_path(str(FILE), run_name="__main__")
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith("iteration 10: loss ") and last.startswith("10 iterations in ")
