"""Off-policy training in two graphs, on the stand-in, with few environments."""

from contextlib import redirect_stdout
from io import StringIO

import pytest
import torch

from cpu_graph import cpu_graphs
from examples.train_agent_off_policy import Pendulum
from tests.support.scripts import names_of, numbered_lines, outcome_of_change

ITERATIONS = 40
SMALLER = (("BUFFER_SIZE = 100_000", "BUFFER_SIZE = 50"), ("256", "8"))
# what a script without a graph may have in the place of each numbered line, and how it then ends
CHANGES = {
    "1 state in place": (
        "self.state.copy_(torch.stack([angle + 0.05 * velocity, velocity], 1))",
        "self.state = torch.stack([angle + 0.05 * velocity, velocity], 1)",
        "silent",
    ),
    "2 no mask": (
        "self.state.copy_(torch.where(done[:, None], fresh, self.state))",
        "if done.any(): self.state[done] = fresh[done]",
        "raises",
    ),
    "3 position in place": (
        "self.stored.add_(len(obs))",
        "self.stored = self.stored + len(obs)",
        "raises",  # later: replays read freed memory, and an index is out of bounds
    ),
    "4 index drawn on the GPU": (
        '(torch.rand(batch_size, device="cuda") * filled).long()',
        'torch.randint(int(filled), (batch_size,), device="cuda")',
        "raises",
    ),
    "5 capturable": (", capturable=True", "", "raises"),
    "6 targets in place": ("slow.lerp_(fast, TAU)", "slow.data = slow.lerp(fast, TAU)", "silent"),
    "7 side stream": ("with torch.cuda.stream(torch.cuda.Stream()):", "if True:", "raises"),
    "8 clone the loss": ("step().clone()", "step()", "silent"),
}


def losses_of(*changes, flags=(), iterations=ITERATIONS):
    """The losses of the script, and how many graphs it launches."""
    names = names_of("train_agent_off_policy", *changes, smaller=SMALLER)
    sizes = ["--num-envs=4", "--batch-size=8", f"--iterations={iterations}"]
    with cpu_graphs() as device, redirect_stdout(StringIO()):
        losses = names["main"]([*sizes, *flags])
        return [loss.item() for loss in losses], device.launches["graphs"]


@pytest.fixture(scope="module")
def eager_losses():
    losses, replays = losses_of(flags=["--eager"])
    assert replays == 0 and len(set(losses)) == ITERATIONS
    return losses


def test_the_graphs_train_as_eager(eager_losses):
    losses, replays = losses_of()
    assert losses == eager_losses
    assert replays == (ITERATIONS - 3) + (ITERATIONS // 2 - 3), "all calls but the warm-ups"


@pytest.mark.parametrize("change", CHANGES)
def test_without_a_line_it_ends_as_expected(change, eager_losses):
    *line, kind = CHANGES[change]
    assert outcome_of_change(lambda: losses_of(line)[0], eager_losses) == kind


def test_every_numbered_line_is_left_out_once():
    assert {change[0] for change in CHANGES} == set(numbered_lines("train_agent_off_policy"))


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
