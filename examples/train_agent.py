"""Train CartPole with PPO on one GPU; a whole iteration is one CUDA graph.

    python examples/train_agent.py              # replays a graph
    python examples/train_agent.py --eager      # the same training without one
    python examples/train_agent.py --compile    # compiled kernels in the graph

An iteration plays --num-steps steps in --num-envs environments and then trains the agent on them.
The environments are tensors, so nothing in it needs a value on the CPU. The numbered lines are
those that a graph needs; without them this is an ordinary PPO script.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

LONGEST_EPISODE = 500
GAMMA, GAE_LAMBDA = 0.99, 0.95
CLIP = 0.2
VALUE_COEF = 0.01
ENTROPY_COEF = 0.01
EPOCHS = 4
MINIBATCHES = 4
MAX_GRAD_NORM = 0.5
WARMUP = 3


class CartPole:
    """Many CartPole-v1 environments; an episode that ends begins again in the same step.

    The physics are those of Barto, Sutton and Anderson (1983), with gymnasium's constants.
    """

    def __init__(self, num_envs: int) -> None:
        self.state = torch.empty(num_envs, 4, device="cuda").uniform_(-0.05, 0.05)
        self.length = torch.zeros(num_envs, device="cuda")  # of the episode so far
        self.mean_length = torch.zeros((), device="cuda")  # of ended episodes, a running mean

    def step(self, action: Tensor) -> Tensor:
        """Push left (0) or right (1), (num_envs,); returns which episodes ended, (num_envs,)."""
        _, x_dot, theta, theta_dot = self.state.unbind(1)
        sin, cos = theta.sin(), theta.cos()
        push = (20.0 * action - 10.0 + 0.05 * theta_dot.square() * sin) / 1.1
        theta_acc = (9.8 * sin - cos * push) / (0.5 * (4 / 3 - 0.1 * cos.square() / 1.1))
        x_acc = push - 0.05 * theta_acc * cos / 1.1
        change = torch.stack([x_dot, x_acc, theta_dot, theta_acc], 1)
        self.state.add_(change, alpha=0.02)  # 1. in place: the next replay continues from here
        self.length.add_(1)

        fallen = (self.state[:, 0].abs() > 2.4) | (self.state[:, 2].abs() > 0.2095)
        done = fallen | (self.length >= LONGEST_EPISODE)
        ended = (self.length * done).sum() / done.sum().clamp(min=1)
        ended = torch.where(done.any(), ended, self.mean_length)
        self.mean_length.lerp_(ended, 0.05)  # 2. in place too

        fresh = torch.empty_like(self.state).uniform_(-0.05, 0.05)
        self.state.copy_(torch.where(done[:, None], fresh, self.state))  # 3. no mask, no `if`
        self.length.mul_(~done)
        return done


class Agent(nn.Module):
    """The logits of the two actions, and the value of a state."""

    def __init__(self, n_hidden: int = 64) -> None:
        super().__init__()
        self.actor = self._mlp(n_hidden, 2)
        self.critic = self._mlp(n_hidden, 1)

    def _mlp(self, n_hidden: int, n_out: int) -> nn.Sequential:
        return nn.Sequential(
            nn.Linear(4, n_hidden),
            nn.Tanh(),
            nn.Linear(n_hidden, n_hidden),
            nn.Tanh(),
            nn.Linear(n_hidden, n_out),
        )

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """(batch, 4) -> logits (batch, 2), values (batch,)."""
        return self.actor(obs), self.critic(obs).squeeze(-1)


def ppo_loss(
    agent: Agent, obs: Tensor, action: Tensor, logprob: Tensor, advantage: Tensor, target: Tensor
) -> Tensor:
    """The clipped loss of a minibatch; all but obs (batch, 4) have the shape (batch,)."""
    logits, value = agent(obs)
    logprobs = F.log_softmax(logits, -1)
    new_logprob = logprobs.gather(1, action[:, None]).squeeze(1)
    ratio = (new_logprob - logprob).exp()
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    policy_loss = -torch.min(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage).mean()
    entropy = -(logprobs.exp() * logprobs).sum(-1).mean()
    return policy_loss + VALUE_COEF * F.mse_loss(value, target) - ENTROPY_COEF * entropy


class PPO:
    """Environments, agent and optimizer; iteration() plays and trains once."""

    def __init__(self, num_envs: int, num_steps: int, iterations: int) -> None:
        self.env = CartPole(num_envs)
        self.agent = Agent().cuda()
        self.loss = ppo_loss
        lr = torch.tensor(2.5e-3, device="cuda")  # 4. a rate that changes is a tensor
        self.optimizer = torch.optim.Adam(self.agent.parameters(), lr=lr, capturable=True)
        self.scheduler = torch.optim.lr_scheduler.LinearLR(self.optimizer, 1.0, 0.0, iterations)

        shape = (num_steps, num_envs)
        self.obs = torch.zeros(*shape, 4, device="cuda")
        self.action = torch.zeros(shape, dtype=torch.long, device="cuda")
        self.logprob = torch.zeros(shape, device="cuda")
        self.value = torch.zeros(shape, device="cuda")
        self.done = torch.zeros(shape, device="cuda")

    def compile(self) -> None:
        """Compile the parts that launch many small kernels."""
        parts = ((self.env, "step"), (self, "act"), (self, "advantages"), (self, "loss"))
        for owner, name in parts:
            setattr(owner, name, torch.compile(getattr(owner, name), dynamic=False))

    def act(self, obs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Draw an action for each environment; returns it, its log-probability and the value."""
        logits, value = self.agent(obs)
        noise = torch.empty_like(logits).exponential_()
        action = (logits.softmax(-1) / noise).argmax(-1)
        logprob = F.log_softmax(logits, -1).gather(1, action[:, None]).squeeze(1)
        return action, logprob, value

    @torch.no_grad()
    def rollout(self) -> None:
        """Play num_steps steps in every environment, and keep them."""
        for step in range(len(self.obs)):
            self.obs[step] = self.env.state
            action, logprob, value = self.act(self.env.state)
            self.action[step] = action
            self.logprob[step] = logprob
            self.value[step] = value
            self.done[step] = self.env.step(action)

    @torch.no_grad()
    def advantages(self) -> Tensor:
        """Generalised advantage estimates, (num_steps, num_envs); every step's reward is 1."""
        next_value = self.agent(self.env.state)[1]
        advantage = torch.zeros_like(next_value)
        advantages = torch.empty_like(self.value)
        for step in reversed(range(len(self.obs))):
            alive = 1 - self.done[step]
            error = 1 + GAMMA * next_value * alive - self.value[step]
            advantage = error + GAMMA * GAE_LAMBDA * alive * advantage
            advantages[step] = advantage
            next_value = self.value[step]
        return advantages

    def update(self) -> Tensor:
        """Train on what was played; returns the mean loss."""
        advantages = self.advantages()
        played = (self.obs, self.action, self.logprob, advantages, advantages + self.value)
        rows = [tensor.flatten(0, 1) for tensor in played]
        losses = []
        for _ in range(EPOCHS):
            order = torch.randperm(len(rows[0]), device="cuda")  # 5. drawn on the GPU
            for index in order.chunk(MINIBATCHES):
                self.optimizer.zero_grad(set_to_none=True)
                loss = self.loss(self.agent, *[row[index] for row in rows])
                loss.backward()
                nn.utils.clip_grad_norm_(self.agent.parameters(), MAX_GRAD_NORM)
                self.optimizer.step()
                losses.append(loss.detach())  # 6. read later, not here
        return torch.stack(losses).mean()

    def iteration(self) -> Tensor:
        """A rollout and an update; returns the mean loss."""
        self.rollout()
        return self.update()


class Graphed:
    """Calls work eagerly three times, then captures it, and from then on replays the graph.

    Arguments must be the same tensors in every call. A replay overwrites the last results.
    """

    def __init__(self, work: Callable) -> None:
        self.work = work
        self.calls = 0
        self.graph = torch.cuda.CUDAGraph()

    def __call__(self, *tensors: Tensor) -> Any:
        """Work, or replay it; returns what work returns."""
        self.calls += 1
        if self.calls <= WARMUP:
            return self.work(*tensors)
        if self.calls == WARMUP + 1:
            with torch.cuda.graph(self.graph, stream=torch.cuda.current_stream()):
                self.results = self.work(*tensors)
        self.graph.replay()
        return self.results


def main(line: Sequence[str] | None = None) -> list[Tensor]:
    """Train, log every ten iterations, and return each iteration's loss."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num-envs", type=int, default=512)
    parser.add_argument("--num-steps", type=int, default=32)
    parser.add_argument("--iterations", type=int, default=80)
    parser.add_argument("--eager", action="store_true")
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args(line)

    with torch.cuda.stream(torch.cuda.Stream()):  # 7. everything on one side stream
        return train(options)


def train(options: argparse.Namespace) -> list[Tensor]:
    """Train with the options of main."""
    torch.manual_seed(0)
    ppo = PPO(options.num_envs, options.num_steps, options.iterations)
    if options.compile:
        ppo.compile()
    iteration = ppo.iteration if options.eager else Graphed(ppo.iteration)

    losses: list[Tensor] = []
    start = time.perf_counter()
    for number in range(1, options.iterations + 1):
        losses.append(iteration().clone())  # 8. the next replay overwrites the loss
        ppo.scheduler.step()
        if number % 10 == 0:
            loss = torch.stack(losses[-10:]).mean()
            length = ppo.env.mean_length
            print(f"iteration {number}: loss {loss:.4f}, mean length of episodes {length:.1f}")
    torch.cuda.synchronize()
    print(f"{options.iterations} iterations in {time.perf_counter() - start:.1f} s")
    return losses


if __name__ == "__main__":
    main()
