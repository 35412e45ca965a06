"""Swing up a pendulum with TD3 on one GPU; two CUDA graphs do all the work.

    python examples/train_agent_off_policy.py            # replays the graphs
    python examples/train_agent_off_policy.py --eager    # the same training without them

One graph plays a step in --num-envs environments, stores it in the replay buffer and trains the
critics on a random batch. The other one trains the actor, in every second iteration. The numbered
lines are those that a graph needs; without them this is an ordinary TD3 script.
"""

import argparse
import copy
import math
import time
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

EPISODE = 200
GAMMA = 0.99
TAU = 0.02
POLICY_DELAY = 2
EXPLORATION_NOISE = 0.3
POLICY_NOISE, NOISE_CLIP = 0.2, 0.5
BUFFER_SIZE = 100_000
WARMUP = 3


class Pendulum:
    """Many Pendulum-v1 environments, with gymnasium's constants; episodes end after 200 steps."""

    def __init__(self, num_envs: int) -> None:
        self.most = torch.tensor([math.pi, 1.0], device="cuda")  # where an episode may begin
        self.state = torch.empty(num_envs, 2, device="cuda").uniform_(-1, 1) * self.most
        self.length = torch.randint(EPISODE, (num_envs,), device="cuda")  # of the episode so far
        self.mean_reward = torch.zeros((), device="cuda")  # of a step, a running mean

    def observe(self) -> Tensor:
        """What the agent sees: cos and sin of the angle, and the velocity, (num_envs, 3)."""
        angle, velocity = self.state.unbind(1)
        return torch.stack([angle.cos(), angle.sin(), velocity], 1)

    def step(self, action: Tensor) -> tuple[Tensor, Tensor]:
        """Apply torques, (num_envs, 1) in [-1, 1]; returns rewards and what the agent sees."""
        angle, velocity = self.state.unbind(1)
        torque = 2 * action.squeeze(1)
        from_top = (angle + math.pi) % (2 * math.pi) - math.pi
        reward = -(from_top.square() + 0.1 * velocity.square() + 0.001 * torque.square())
        velocity = (velocity + 0.05 * (15 * angle.sin() + 3 * torque)).clamp(-8, 8)
        self.state.copy_(torch.stack([angle + 0.05 * velocity, velocity], 1))  # 1. in place
        next_obs = self.observe()

        self.length.add_(1)
        done = self.length >= EPISODE
        fresh = torch.empty_like(self.state).uniform_(-1, 1) * self.most
        self.state.copy_(torch.where(done[:, None], fresh, self.state))  # 2. no mask, no `if`
        self.length.mul_(~done)
        self.mean_reward.lerp_(reward.mean(), 0.01)
        return reward[:, None], next_obs


class ReplayBuffer:
    """The last BUFFER_SIZE steps of the environments."""

    def __init__(self) -> None:
        self.rows = torch.zeros(BUFFER_SIZE, 8, device="cuda")
        self.stored = torch.zeros((), dtype=torch.long, device="cuda")  # rows since the beginning

    def store(self, obs: Tensor, action: Tensor, reward: Tensor, next_obs: Tensor) -> None:
        """Store a row for each environment, over the oldest ones."""
        index = (self.stored + torch.arange(len(obs), device="cuda")) % BUFFER_SIZE
        self.rows[index] = torch.cat([obs, action, reward, next_obs], 1)
        self.stored.add_(len(obs))  # 3. in place

    def sample(self, batch_size: int) -> tuple[Tensor, ...]:
        """Random rows: obs, action, reward and next obs, with 3, 1, 1 and 3 columns."""
        filled = self.stored.clamp(max=BUFFER_SIZE)
        index = (torch.rand(batch_size, device="cuda") * filled).long()  # 4. drawn on the GPU
        return self.rows[index].split([3, 1, 1, 3], 1)


def mlp(n_in: int, *last: nn.Module) -> nn.Sequential:
    """Two hidden layers and one output."""
    hidden = [nn.Linear(n_in, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU()]
    return nn.Sequential(*hidden, nn.Linear(256, 1), *last)


class TD3:
    """Environments, replay buffer, networks and optimizers."""

    def __init__(self, num_envs: int, batch_size: int) -> None:
        self.env = Pendulum(num_envs)
        self.buffer = ReplayBuffer()
        self.batch_size = batch_size
        self.actor = mlp(3, nn.Tanh()).cuda()
        self.critics = nn.ModuleList([mlp(4), mlp(4)]).cuda()
        self.nets = nn.ModuleList([self.actor, self.critics])
        self.target_actor, self.target_critics = self.targets = copy.deepcopy(self.nets)
        adam = partial(torch.optim.Adam, lr=1e-3, capturable=True)  # 5. it counts on the GPU
        self.actor_optimizer = adam(self.actor.parameters())
        self.critic_optimizer = adam(self.critics.parameters())

    def play_and_train_critics(self) -> Tensor:
        """A step in every environment and one of the critics' optimizer; returns the loss."""
        with torch.no_grad():
            obs = self.env.observe()
            action = self.actor(obs)
            action = (action + EXPLORATION_NOISE * torch.randn_like(action)).clamp(-1, 1)
            self.buffer.store(obs, action, *self.env.step(action))

            obs, action, reward, next_obs = self.buffer.sample(self.batch_size)
            noise = (POLICY_NOISE * torch.randn_like(action)).clamp(-NOISE_CLIP, NOISE_CLIP)
            next_action = (self.target_actor(next_obs) + noise).clamp(-1, 1)
            rows = torch.cat([next_obs, next_action], 1)
            values = [critic(rows) for critic in self.target_critics]
            target = reward + GAMMA * torch.min(*values)  # a time limit does not end the future
        self.critic_optimizer.zero_grad(set_to_none=True)
        rows = torch.cat([obs, action], 1)
        loss = sum(F.mse_loss(critic(rows), target) for critic in self.critics)
        loss.backward()
        self.critic_optimizer.step()
        return loss.detach()

    def train_actor(self) -> None:
        """A step of the actor's optimizer, and of the targets towards the networks."""
        obs = self.buffer.sample(self.batch_size)[0]
        self.actor_optimizer.zero_grad(set_to_none=True)
        loss = -self.critics[0](torch.cat([obs, self.actor(obs)], 1)).mean()
        loss.backward(inputs=list(self.actor.parameters()))
        self.actor_optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(self.targets.parameters(), self.nets.parameters(), strict=True):
                slow.lerp_(fast, TAU)  # 6. in place


class Graphed:
    """Calls work eagerly three times, then captures it, and from then on replays the graph."""

    def __init__(self, work: Callable[[], Tensor | None]) -> None:
        self.work = work
        self.calls = 0
        self.graph = torch.cuda.CUDAGraph()

    def __call__(self) -> Tensor | None:
        """Work, or replay it; returns what work returns, which the next replay overwrites."""
        self.calls += 1
        if self.calls <= WARMUP:
            return self.work()
        if self.calls == WARMUP + 1:
            with torch.cuda.graph(self.graph, stream=torch.cuda.current_stream()):
                self.result = self.work()
        self.graph.replay()
        return self.result


def main(line: Sequence[str] | None = None) -> list[Tensor]:
    """Train, log every 500 iterations, and return the loss of each iteration."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num-envs", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--iterations", type=int, default=3000)
    parser.add_argument("--eager", action="store_true")
    options = parser.parse_args(line)

    with torch.cuda.stream(torch.cuda.Stream()):  # 7. everything on one side stream
        return train(options)


def train(options: argparse.Namespace) -> list[Tensor]:
    """Train with the options of main."""
    torch.manual_seed(0)
    td3 = TD3(options.num_envs, options.batch_size)
    step, train_actor = td3.play_and_train_critics, td3.train_actor
    if not options.eager:
        step, train_actor = Graphed(step), Graphed(train_actor)

    losses: list[Tensor] = []
    start = time.perf_counter()
    for number in range(1, options.iterations + 1):
        losses.append(step().clone())  # 8. the next replay overwrites the loss
        if number % POLICY_DELAY == 0:  # an `if` in a graph would be decided once
            train_actor()
        if number % 500 == 0:
            loss = torch.stack(losses[-500:]).mean()
            reward = td3.env.mean_reward
            print(f"iteration {number}: loss {loss:.4f}, mean reward {reward:.3f}")
    torch.cuda.synchronize()
    print(f"{options.iterations} iterations in {time.perf_counter() - start:.1f} s")
    return losses


if __name__ == "__main__":
    main()
