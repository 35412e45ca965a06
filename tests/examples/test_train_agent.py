"""A training of an agent as one graph, on the stand-in, with few environments."""

import pytest
import torch

from cpu_graph import cpu_graphs
from examples.train_agent import CartPole, Graphed
from tests.support.scripts import ending, numbered_lines, of_the_lesson, run_main

SMALL = ["--num-envs", "4", "--num-steps", "2", "--iterations", "10"]
FEWER = (("EPOCHS = 4", "EPOCHS = 1"), ("MINIBATCHES = 4", "MINIBATCHES = 2"))
# a line left out, and what a script without a graph may have in its place
CHANGES = of_the_lesson("train_agent", "changes")
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


def log_of(*changes, flags=()):
    """The log of the script, the seconds apart, and how many graphs it launches."""
    log, replays = run_main("train_agent", *changes, smaller=FEWER, arguments=[[*SMALL, *flags]])
    return log.splitlines()[:-1], replays


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
    assert ending(lambda: log_of(CHANGES[change])[0], eager_log) == KINDS[change]


def test_every_numbered_line_is_left_out_once():
    assert {change[0] for change in CHANGES} == set(numbered_lines("train_agent"))
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
        assert total.item() == 5 and device.launches["graphs"] == 2
        assert [result.item() for result in results] == [2, 4, 6, 10, 10]
