"""Scenarios: a rollout, normalised observations, a delayed update."""

import copy
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn

from exercises.answers.graph_use import call_answer, raise_symptom
from exercises.answers.tensors import are_close, are_equal, copy_tensors
from exercises.answers.wrong import EVERY_TIME_THE_FIRST, Wrong
from exercises.scenarios.common import draw_int, require_replay
from exercises.scenarios.eager import descend
from exercises.scenarios.rules import call_with_one_graph, unmodified
from exercises.scenarios.warm_ups import require_no_draws, require_untrained

SAME_START = (
    "Every play begins where the first one began.",
    "The next play continues where the last one ended: leave the state to the graph.",
)
FROZEN_STATISTICS = (
    "Every call normalises with the statistics of the same moment: mean and variance do not follow "
    "the observations.",
    "Change them in place: a replay reads and writes the tensors of the capture.",
)
WARM_STATISTICS = (
    "The statistics already contain observations when the first call comes.",
    "The warm-up has updated them: put them back in place.",
)
EVERY_CALL = (
    "The actor is trained in every call.",
    "What Python decides is recorded once: decide between replays.",
)
NEVER = ("The actor is never trained.", EVERY_CALL[1])
OFF_BY_ONE = (
    "The actor is trained in the right rhythm, but not in the calls delay, 2 * delay, ...",
    "Count the calls from 1.",
)


class Cart:
    """Environments whose state changes in place."""

    def __init__(self, state: Tensor) -> None:
        self.state = state.clone()

    def step(self, action: Tensor) -> Tensor:
        """Push, and begin again at zero where the first number leaves its range."""
        self.state.mul_(1.1).add_(action[:, None] - 0.4)
        done = self.state[:, 0].abs() > 2
        self.state.mul_(~done[:, None])
        return done


def judge_graph_rollout(answer: Callable) -> None:
    """Four rollouts of a few steps, with random actions."""
    num_steps = draw_int(2, 5)
    start = torch.randn(draw_int(), 4, device="cuda")
    weight = torch.randn(4, device="cuda")

    def act(obs):
        return (obs @ weight + torch.randn(len(obs), device="cuda") > 0).float()

    random = torch.cuda.get_rng_state()
    env = Cart(start)
    expected = [_roll_out(act, env, num_steps) for _ in range(4)]
    torch.cuda.set_rng_state(random)
    from_the_start = [_roll_out(act, Cart(start), num_steps) for _ in range(4)]
    torch.cuda.set_rng_state(random)

    env = Cart(start)
    with require_no_draws():
        play = call_with_one_graph(answer, act, env, num_steps)
        if not are_equal(env.state, start):
            raise Wrong(
                "The environments have moved before the first play.",
                "Put their state back in place after the warm-up.",
            )
    used = call_answer(play, [()] * 4)
    used.require_launches(graphs=4, operators=12)
    last_states = [
        (after[0][:1].expand_as(obs), dones) for (obs, dones), after in pairwise(expected)
    ]
    if are_close(used.given[:-1], last_states):
        raise Wrong(
            "The observations of a play are all the same state, its last one.",
            "Clone the state before the step changes it.",
        )
    used.require_results(expected, {SAME_START: from_the_start})


def _roll_out(act, env, num_steps):
    """The observations and dones of an eager rollout."""
    observations, dones = [], []
    for _ in range(num_steps):
        observations.append(env.state.clone())
        dones.append(env.step(act(env.state)))
    return torch.stack(observations), torch.stack(dones)


def judge_graph_normalized_policy(answer: Callable) -> None:
    """A linear policy, and five batches of observations."""
    policy = nn.Linear(4, 2).cuda().requires_grad_(False)
    batches = list(3 * torch.randn(5, draw_int(3, 7), 4, device="cuda") + 1)
    sample = torch.randn_like(batches[0])
    normalized = partial(_normalized_policy_outputs, policy, sample, batches)
    expected = normalized()
    with unmodified("sample", sample):
        used = call_answer(answer(policy, sample), batches)
    require_replay(used.seen)
    for warm_up in range(12):
        raise_symptom(used.given, [(FROZEN_STATISTICS, normalized(warm_up, frozen=True))])
        if warm_up:
            raise_symptom(used.given, [(WARM_STATISTICS, normalized(warm_up))])
    never = [policy(batch) for batch in batches]
    used.require_results(expected, {"The observations are not normalised.": never})
    used.require_launches(graphs=len(batches), operators=20)


def _normalized_policy_outputs(policy, sample, batches, warm_up=0, frozen=False):
    """The results of an eager policy, whose statistics have seen the sample warm_up times.

    frozen: every batch finds the statistics of that moment.
    """
    mean, var = torch.zeros(4, device="cuda"), torch.ones(4, device="cuda")
    results = []
    for number, obs in enumerate([sample] * warm_up + batches):
        new_mean, new_var = mean.lerp(obs.mean(0), 0.1), var.lerp(obs.var(0), 0.1)
        results.append(policy((obs - new_mean) / (new_var + 1e-5).sqrt()))
        if not frozen or number < warm_up:
            mean, var = new_mean, new_var
    return results[warm_up:]


class Learner:
    """A critic, its target and an actor, and the two steps that train them."""

    def __init__(self, net: nn.ModuleDict) -> None:
        self.net = net

    def critic_step(self, obs: Tensor) -> Tensor:
        """Train the critic; returns its loss."""
        critic, target = self.net["critic"], self.net["target"]
        wanted = obs.sum(1, keepdim=True) + 0.5 * target(obs).detach()
        return descend(critic, (critic(obs) - wanted).square().mean(), 0.05)

    def actor_step(self, obs: Tensor) -> None:
        """Train the actor, and move the target towards the critic."""
        actor, critic, target = (self.net[name] for name in ("actor", "critic", "target"))
        descend(actor, (actor(obs) - critic(obs).detach()).square().mean(), 0.05)
        with torch.no_grad():
            for slow, fast in zip(target.parameters(), critic.parameters(), strict=True):
                slow.lerp_(fast, 0.3)


def judge_graph_delayed_update(answer: Callable) -> None:
    """Seven batches; the actor is trained in every second or third call."""
    delay, rows = draw_int(2, 4), draw_int()
    net = nn.ModuleDict({name: nn.Linear(4, 1) for name in ("actor", "critic", "target")}).cuda()
    batches = list(torch.randn(7, rows, 4, device="cuda"))
    trained = partial(_train_learner, net, batches)
    expected, weights = trained(lambda call: call % delay == 0)
    wrong = {EVERY_CALL: trained(lambda call: True), NEVER: trained(lambda call: False)}
    wrong[OFF_BY_ONE] = trained(lambda call: call % delay == 1)

    own = copy.deepcopy(net)
    learner = Learner(own)
    first = torch.randn(rows, 4, device="cuda")
    with require_untrained(own):
        train = answer(own, learner.critic_step, learner.actor_step, delay, first)
    with unmodified("batch", first):
        used = call_answer(train, batches)
    for said, (losses, ends) in wrong.items():
        if are_close(used.given, losses) and are_close(own.state_dict(), ends):
            raise Wrong(said)
    first_always = partial(_train_learner, net, [first] * 7, lambda call: call % delay == 0)
    used.require_results(expected, {EVERY_TIME_THE_FIRST: lambda: first_always()[0]})
    if not are_close(own.state_dict(), weights):
        raise Wrong("The losses are right, but the weights of actor and target are not.")
    used.require_only_replays()
    if used.counts["operators"] > 30:
        raise Wrong(
            f"{used.counts['operators']} operators ran outside of the graphs in 7 calls.",
            "Both steps belong into graphs.",
        )


def _train_learner(net, batches, acts):
    """The losses of an eager training, and its weights; acts(call): is the actor trained?"""
    learner = Learner(copy.deepcopy(net))
    losses = []
    for call, obs in enumerate(batches, 1):
        losses.append(learner.critic_step(obs))
        if acts(call):
            learner.actor_step(obs)
    return losses, copy_tensors(learner.net.state_dict())
