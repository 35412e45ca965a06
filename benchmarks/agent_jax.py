"""The training of examples/train_agent.py in JAX: one jit of the iteration, lax.scan inside.

The same physics, networks, initial weights and hyperparameters; only the random numbers differ.
"""

import time
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax, random

from examples.train_agent import (
    CLIP,
    ENTROPY_COEF,
    EPOCHS,
    GAE_LAMBDA,
    GAMMA,
    LONGEST_EPISODE,
    MAX_GRAD_NORM,
    MINIBATCHES,
    VALUE_COEF,
)

LEARNING_RATE = 2.5e-3
N_HIDDEN = 64
# torch.optim.Adam's defaults; the learning rate is of each iteration
OPTIMIZER = optax.chain(optax.clip_by_global_norm(MAX_GRAD_NORM), optax.scale_by_adam())

Weights = dict[str, list[tuple[Array, Array]]]  # of actor and critic, for each layer


class Env(NamedTuple):
    """The environments; as CartPole's tensors."""

    state: Array  # (num_envs, 4)
    length: Array  # (num_envs,)
    mean_length: Array  # ()


class Training(NamedTuple):
    """All that an iteration changes."""

    env: Env
    weights: Weights
    optimizer_state: optax.OptState
    iterations: Array
    key: Array


class Played(NamedTuple):
    """What a rollout keeps, (num_steps, num_envs); obs has a dimension of 4 more."""

    obs: Array
    action: Array
    logprob: Array
    value: Array
    done: Array


def begin(num_envs: int, seed: int) -> Training:
    """New environments and weights; the weights are drawn as nn.Linear draws them."""
    key, env_key, actor_key, critic_key = random.split(random.key(seed), 4)
    env = Env(
        random.uniform(env_key, (num_envs, 4), minval=-0.05, maxval=0.05),
        jnp.zeros(num_envs, jnp.float32),
        jnp.zeros((), jnp.float32),
    )
    weights = {"actor": new_mlp(actor_key, 2), "critic": new_mlp(critic_key, 1)}
    return Training(
        env,
        weights,
        optimizer_state=OPTIMIZER.init(weights),
        iterations=jnp.zeros((), jnp.int32),
        key=key,
    )


def new_mlp(key: Array, n_out: int) -> list[tuple[Array, Array]]:
    """Weights (n_in, n_out) and biases of three layers."""
    widths = [4, N_HIDDEN, N_HIDDEN, n_out]
    layers = []
    for n_in, n_next in pairwise(widths):
        key, weight_key, bias_key = random.split(key, 3)
        bound = n_in**-0.5
        weight = random.uniform(weight_key, (n_in, n_next), minval=-bound, maxval=bound)
        bias = random.uniform(bias_key, (n_next,), minval=-bound, maxval=bound)
        layers.append((weight, bias))
    return layers


def mlp(layers: list[tuple[Array, Array]], x: Array) -> Array:
    """Layers with tanh between them."""
    for weight, bias in layers[:-1]:
        x = jnp.tanh(x @ weight + bias)
    weight, bias = layers[-1]
    return x @ weight + bias


def agent(weights: Weights, obs: Array) -> tuple[Array, Array]:
    """(batch, 4) -> logits (batch, 2), values (batch,)."""
    return mlp(weights["actor"], obs), mlp(weights["critic"], obs).squeeze(-1)


def env_step(env: Env, action: Array, key: Array) -> tuple[Env, Array]:
    """Push left (0) or right (1); returns the environments, and which episodes ended."""
    _, x_dot, theta, theta_dot = env.state.T
    sin, cos = jnp.sin(theta), jnp.cos(theta)
    push = (20.0 * action - 10.0 + 0.05 * theta_dot**2 * sin) / 1.1
    theta_acc = (9.8 * sin - cos * push) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
    x_acc = push - 0.05 * theta_acc * cos / 1.1
    change = jnp.stack([x_dot, x_acc, theta_dot, theta_acc], 1)
    state = env.state + 0.02 * change
    length = env.length + 1

    fallen = (jnp.abs(state[:, 0]) > 2.4) | (jnp.abs(state[:, 2]) > 0.2095)
    done = fallen | (length >= LONGEST_EPISODE)
    ended = (length * done).sum() / jnp.maximum(done.sum(), 1)
    ended = jnp.where(done.any(), ended, env.mean_length)
    mean_length = env.mean_length + 0.05 * (ended - env.mean_length)

    fresh = random.uniform(key, state.shape, minval=-0.05, maxval=0.05)
    state = jnp.where(done[:, None], fresh, state)
    return Env(state, length * ~done, mean_length), done


def chosen(logits: Array, action: Array) -> Array:
    """The log-probabilities of the actions, (batch,)."""
    return jnp.take_along_axis(jax.nn.log_softmax(logits), action[:, None], 1).squeeze(1)


def rollout(weights: Weights, env: Env, key: Array, num_steps: int) -> tuple[Env, Played]:
    """Play num_steps steps in every environment."""

    def play(env, key):
        action_key, env_key = random.split(key)
        logits, value = agent(weights, env.state)
        action = random.categorical(action_key, logits)
        new_env, done = env_step(env, action, env_key)
        played = Played(env.state, action, chosen(logits, action), value, done)
        return new_env, played

    return lax.scan(play, env, random.split(key, num_steps))


def advantages(weights: Weights, env: Env, played: Played) -> Array:
    """Generalised advantage estimates, (num_steps, num_envs); every step's reward is 1."""

    def back(later, step):
        next_value, advantage = later
        value, done = step
        alive = 1 - done.astype(jnp.float32)
        error = 1 + GAMMA * next_value * alive - value
        advantage = error + GAMMA * GAE_LAMBDA * alive * advantage
        return (value, advantage), advantage

    next_value = agent(weights, env.state)[1]
    last = (next_value, jnp.zeros_like(next_value))
    return lax.scan(back, last, (played.value, played.done), reverse=True)[1]


def ppo_loss(
    weights: Weights, obs: Array, action: Array, logprob: Array, advantage: Array, target: Array
) -> Array:
    """The clipped loss of a minibatch."""
    logits, value = agent(weights, obs)
    logprobs = jax.nn.log_softmax(logits)
    ratio = jnp.exp(chosen(logits, action) - logprob)
    advantage = (advantage - advantage.mean()) / (advantage.std(ddof=1) + 1e-8)
    clipped = jnp.clip(ratio, 1 - CLIP, 1 + CLIP)
    policy_loss = -jnp.minimum(ratio * advantage, clipped * advantage).mean()
    entropy = -(jnp.exp(logprobs) * logprobs).sum(-1).mean()
    value_loss = ((value - target) ** 2).mean()
    return policy_loss + VALUE_COEF * value_loss - ENTROPY_COEF * entropy


def optimizer_step(training: Training, gradients: Weights, lr: Array) -> Training:
    """Clip the gradients' norm and take a step of Adam."""
    updates, state = OPTIMIZER.update(gradients, training.optimizer_state)
    weights = jax.tree.map(lambda weight, update: weight - lr * update, training.weights, updates)
    return training._replace(weights=weights, optimizer_state=state)


def iteration(training: Training, num_steps: int, iterations: int) -> tuple[Training, Array]:
    """A rollout and an update; returns what it has changed, and the mean loss.

    The learning rate falls to 0 within `iterations`.
    """
    key, play_key, order_key = random.split(training.key, 3)
    env, played = rollout(training.weights, training.env, play_key, num_steps)
    advantage = advantages(training.weights, env, played)
    columns = (played.obs, played.action, played.logprob, advantage, advantage + played.value)
    rows = [column.reshape(-1, *column.shape[2:]) for column in columns]
    lr = LEARNING_RATE * jnp.maximum(0.0, 1 - training.iterations / iterations)

    def minibatch(training, index):
        batch = [row[index] for row in rows]
        loss, gradients = jax.value_and_grad(ppo_loss)(training.weights, *batch)
        return optimizer_step(training, gradients, lr), loss

    def epoch(training, key):
        order = random.permutation(key, len(rows[0]))
        return lax.scan(minibatch, training, order.reshape(MINIBATCHES, -1))

    training = training._replace(env=env, key=key, iterations=training.iterations + 1)
    training, losses = lax.scan(epoch, training, random.split(order_key, EPOCHS))
    return training, losses.mean()


class JaxPPO:
    """A compiled iteration and its state; compile_seconds is what compiling took."""

    def __init__(self, num_envs: int, num_steps: int, iterations: int) -> None:
        self.training = begin(num_envs, seed=0)
        step = partial(iteration, num_steps=num_steps, iterations=iterations)
        start = time.perf_counter()
        self.compiled: Any = jax.jit(step, donate_argnums=0).lower(self.training).compile()
        self.compile_seconds = time.perf_counter() - start

    def iteration(self) -> Array:
        """A rollout and an update; returns the mean loss, which may still be computed."""
        self.training, loss = self.compiled(self.training)
        return loss

    def wait(self) -> None:
        """Wait for the last iteration."""
        jax.block_until_ready(self.training)
