"""Off-policy training in two graphs, on the stand-in, with few environments."""

from contextlib import redirect_stdout
from io import StringIO

import pytest
import torch

from cpu_graph import cpu_graphs
from examples.train_agent_off_policy import Pendulum
from tests.support.scripts import names_of

ITERATIONS = 40
SMALLER = (("BUFFER_SIZE = 100_000", "BUFFER_SIZE = 50"), ("256", "8"))


def losses_of(*flags):
    """The losses of the script, and how many graphs it launches."""
    names = names_of("train_agent_off_policy", smaller=SMALLER)
    sizes = ["--num-envs=4", "--batch-size=8", f"--iterations={ITERATIONS}"]
    with cpu_graphs() as device, redirect_stdout(StringIO()):
        losses = names["main"]([*sizes, *flags])
        return [loss.item() for loss in losses], device.launches["graphs"]


def test_the_graphs_train_as_eager():
    eager_losses, eager_replays = losses_of("--eager")
    assert eager_replays == 0 and len(set(eager_losses)) == ITERATIONS
    losses, replays = losses_of()
    assert losses == eager_losses
    assert replays == (ITERATIONS - 3) + (ITERATIONS // 2 - 3), "all calls but the warm-ups"


def test_a_torque_accelerates_the_pendulum_and_an_episode_ends():
    with cpu_graphs():
        env = Pendulum(2)
        env.state.copy_(torch.tensor([[0.5, 1.0], [0.0, 0.0]]))
        env.length.copy_(torch.tensor([0, 199]))
        reward, next_obs = env.step(torch.tensor([[1.0], [0.0]], device="cuda"))
        # gymnasium's Pendulum-v1 from the angle 0.5 and the velocity 1, with a torque of 2
        assert reward.squeeze(1).tolist() == pytest.approx([-0.354, 0])
        velocity = 1 + 0.05 * (15 * 0.479426 + 3 * 2)
        assert env.state[0].tolist() == pytest.approx([0.5 + 0.05 * velocity, velocity])
        assert next_obs[1].tolist() == [1, 0, 0], "what was seen before the new episode"
        assert env.state[1].abs().min() > 0 and env.length.tolist() == [1, 0]
