"""The benchmark of an agent: its own logic, and that JAX trains as PyTorch does."""

import sys

import numpy as np
import pandas as pd
import pytest
import torch

from benchmarks import agent
from cpu_graph import cpu_graphs
from examples import train_agent
from examples.train_agent import PPO


def test_without_jax_it_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    monkeypatch.setitem(sys.modules, "jax", None)
    assert agent.main() == 2 and 'pip install "jax[cuda13]"' in capsys.readouterr().err


def test_a_row_holds_times_and_what_is_known_of_a_variant():
    rows = [
        (number, name, 1000 * us + number, 2000 * us)
        for number in range(3)
        for name, us in (("eager", 9), ("JAX", 4))
    ]
    rounds = pd.DataFrame(rows, columns=["round", "variant", "host_us", "step_us"])
    table = agent.rows_of(rounds, {"eager": {"busy ms": 3.216}, "JAX": {"compile s": 4.5}})
    assert list(table.index) == ["eager", "JAX"]
    assert table.loc["JAX", "host ms"] == "4.00 [4.00, 4.00]"
    assert table.loc["eager", "step ms"] == "18.00 [18.00, 18.00]"
    assert table.loc["eager", "busy ms"] == 3.22 and pd.isna(table.loc["JAX", "busy ms"])


class Policy(torch.nn.Module):
    """Pushes to the right if the state, weighted, is positive."""

    def __init__(self, *weights):
        super().__init__()
        self.register_buffer("weights", torch.tensor(weights, device="cuda"))

    def forward(self, obs):
        push = obs @ self.weights
        return torch.stack([-push, push], 1), push


def test_an_agent_passes_if_no_pole_falls(monkeypatch):
    monkeypatch.setattr(agent, "LONGEST_EPISODE", 15)
    with cpu_graphs(), torch.cuda.stream(torch.cuda.Stream()):
        against_the_fall = agent.Exam(Policy(0.0, 0.0, 1.0, 0.3), num_envs=2)
        with_the_fall = agent.Exam(Policy(0.0, 0.0, -1.0, -0.3), num_envs=2)
        assert against_the_fall.passed() and not with_the_fall.passed()
        assert against_the_fall.passed(), "a second exam begins anew"


def test_until_solved_trains_the_same_agent_with_a_graph(monkeypatch):
    monkeypatch.setattr(agent, "NUM_STEPS", 2)
    monkeypatch.setattr(agent, "ITERATIONS", 5)
    monkeypatch.setattr(train_agent, "EPOCHS", 1)
    monkeypatch.setattr(train_agent, "MINIBATCHES", 1)
    asked = []

    def passed(exam):
        asked.append(exam.agent.actor[0].weight.tolist())
        return True

    monkeypatch.setattr(agent.Exam, "passed", passed)
    with cpu_graphs(), torch.cuda.stream(torch.cuda.Stream()):
        found = [agent.until_solved(3, graph)["iterations"] for graph in (False, True)]
    assert found == [5, 5] and asked[0] == asked[1]


@pytest.fixture
def on_the_stand_in():
    with cpu_graphs():
        torch.manual_seed(0)
        ppo = PPO(num_envs=6, num_steps=5, iterations=80)
        ppo.env.state[0] = torch.tensor([0.0, 0.0, 0.25, 0.0])  # fallen
        ppo.env.length[1] = 499
        yield ppo


def arrays_of(net):
    layers = [layer for layer in net if isinstance(layer, torch.nn.Linear)]
    return [(array_of(layer.weight.T), array_of(layer.bias)) for layer in layers]


def array_of(tensor):
    return np.array(tensor.tolist(), dtype=str(tensor.dtype).removeprefix("torch."))


@pytest.mark.weekly  # compiling takes seconds
def test_jax_plays_and_trains_as_pytorch_does(on_the_stand_in):
    jax = pytest.importorskip("jax")
    from benchmarks import agent_jax

    ppo = on_the_stand_in
    env = agent_jax.Env(*map(array_of, (ppo.env.state, ppo.env.length, ppo.env.mean_length)))
    action = torch.tensor([0, 1, 1, 0, 1, 0], device="cuda")
    done = ppo.env.step(action)
    env, jax_done = agent_jax.env_step(env, array_of(action), jax.random.key(0))
    assert done.tolist() == jax_done.tolist() == [True, True, False, False, False, False]
    assert array_of(ppo.env.state)[2:] == pytest.approx(np.array(env.state)[2:], abs=1e-6)
    assert array_of(ppo.env.length).tolist() == env.length.tolist()
    assert ppo.env.mean_length.item() == pytest.approx(env.mean_length.item())

    ppo.rollout()
    played = (ppo.obs, ppo.action, ppo.logprob, ppo.value, ppo.done)
    weights = {name: arrays_of(getattr(ppo.agent, name)) for name in ("actor", "critic")}
    env = env._replace(state=array_of(ppo.env.state))
    expected = ppo.advantages()
    advantages = agent_jax.advantages(weights, env, agent_jax.Played(*map(array_of, played)))
    assert np.array(advantages) == pytest.approx(array_of(expected), abs=1e-5)

    training = agent_jax.begin(6, seed=0)._replace(weights=weights)
    kept = (ppo.obs, ppo.action, ppo.logprob, expected, expected + ppo.value)
    rows = [tensor.flatten(0, 1) for tensor in kept]
    gradient_of = jax.value_and_grad(agent_jax.ppo_loss)
    for _ in range(2):
        ppo.optimizer.zero_grad()
        loss = ppo.loss(ppo.agent, *rows)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(ppo.agent.parameters(), 0.5)
        ppo.optimizer.step()
        jax_loss, gradients = gradient_of(training.weights, *map(array_of, rows))
        training = agent_jax.optimizer_step(training, gradients, agent_jax.LEARNING_RATE)
        assert loss.item() == pytest.approx(jax_loss.item(), rel=1e-5)
