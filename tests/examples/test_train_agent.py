"""A training of an agent as one graph, on the stand-in, with few environments."""

import pytest
import torch

from cpu_graph import cpu_graphs
from examples.train_agent import CartPole
from tests.support.scripts import run_main

SMALL = ["--num-envs", "4", "--num-steps", "2", "--iterations", "10"]
FEWER = (("EPOCHS = 4", "EPOCHS = 1"), ("MINIBATCHES = 4", "MINIBATCHES = 2"))


def log_of(*flags):
    """The log of the script, the seconds apart, and how many graphs it launches."""
    log, replays = run_main("train_agent", smaller=FEWER, arguments=[[*SMALL, *flags]])
    return log.splitlines()[:-1], replays


def test_the_graph_trains_as_eager():
    eager_log, eager_replays = log_of("--eager")
    assert eager_replays == 0 and len(eager_log) == 1
    log, replays = log_of()
    assert log == eager_log
    assert replays == 10 - 3, "all iterations but the warm-up"


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
