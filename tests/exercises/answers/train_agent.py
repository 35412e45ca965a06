"""Answers to the exercises of *Train an agent*: wrong ones, and other right ones (`__right_`)."""


def clones(results):
    return tuple(result.clone() for result in results)


def graph_rollout__a_replay_for_each_step(act, env, num_steps):
    def step():
        return env.state.clone(), env.step(act(env.state))

    with unchanged(env.state):
        replay = capture_step(step)

    def play():
        obs, dones = zip(*[clones(replay()) for _ in range(num_steps)], strict=True)
        return torch.stack(obs), torch.stack(dones)

    return play


changed(
    graph_rollout,
    eager={"in replay()": "in play()"},
    state_back_numbers_not={
        "with unchanged(env.state):\n    replay = capture_step(play)":
            "start = env.state.clone()\n"
            "replay = capture_step(play)\n"
            "env.state.copy_(start)",
    },
    kept_output={"tuple((result.clone() for result in replay()))": "replay()"},
    from_the_start_again={
        "return lambda: tuple((result.clone() for result in replay()))":
            "start = env.state.clone()\n"
            "def again():\n"
            "    env.state.copy_(start)\n"
            "    return clones(replay())\n"
            "return again",
    },
    right_state_stacked={"env.state.clone()": "torch.cat([env.state])"},
)


def graph_normalized_policy__not_normalised(policy, sample):
    replay = capture_step(policy, sample.clone())
    return lambda obs: replay(obs).clone()


changed(
    graph_normalized_policy,
    never_updated={
        "mean.lerp_(obs.mean(0), 0.1)": "new_mean = mean.lerp(obs.mean(0), 0.1)",
        "var.lerp_(obs.var(0), 0.1)": "new_var = var.lerp(obs.var(0), 0.1)",
        "(obs - mean) / (var + 1e-05)": "(obs - new_mean) / (new_var + 1e-05)",
    },
    only_the_mean_restored={"unchanged(mean, var)": "unchanged(mean)"},
    right_reset_by_hand={
        "with unchanged(mean, var):\n    replay = capture_step(step, sample.clone())":
            "replay = capture_step(step, sample.clone())\n"
            "mean.zero_()\n"
            "var.fill_(1)",
    },
)


def graph_delayed_update__right_critic_and_both(net, critic_step, actor_step, delay, batch):
    def both(batch):
        loss = critic_step(batch)
        actor_step(batch)
        return loss

    static = batch.clone()
    with unchanged(net):
        graphs = [capture_step(critic_step, static), capture_step(both, static)]
    calls = [0]

    def train(batch):
        calls[0] += 1
        return graphs[calls[0] % delay == 0](batch).clone()

    return train


changed(
    graph_delayed_update,
    never={"calls % delay == 0": "False"},
    from_the_first_call={"calls += 1": "", "return loss": "calls += 1\n…"},
    actor_on_the_old_batch={"train_actor(batch)": "train_actor()"},
    actor_eager={"train_actor(batch)": "actor_step(batch)"},
    eager={
        "train_critic(batch).clone()": "critic_step(batch)",
        "train_actor(batch)": "actor_step(batch)",
    },
)
