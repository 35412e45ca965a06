"""Answers to the exercises of *Train an agent*: wrong ones, and other right ones (`__right_`)."""


def rollout_step(act, env, num_steps):
    """Plays, and returns what it played."""

    def play():
        obs, dones = [], []
        for _ in range(num_steps):
            obs.append(env.state.clone())
            dones.append(env.step(act(env.state)))
        return torch.stack(obs), torch.stack(dones)

    return play


def clones(results):
    return tuple(result.clone() for result in results)


def graph_rollout__eager(act, env, num_steps):
    return rollout_step(act, env, num_steps)


def graph_rollout__warm_up_kept(act, env, num_steps):
    replay = capture_step(rollout_step(act, env, num_steps))
    return lambda: clones(replay())


def graph_rollout__state_back_numbers_not(act, env, num_steps):
    start = env.state.clone()
    replay = capture_step(rollout_step(act, env, num_steps))
    env.state.copy_(start)
    return lambda: clones(replay())


def graph_rollout__kept_output(act, env, num_steps):
    with unchanged(env.state):
        return capture_step(rollout_step(act, env, num_steps))


def graph_rollout__from_the_start_again(act, env, num_steps):
    with unchanged(env.state):
        replay = capture_step(rollout_step(act, env, num_steps))
    start = env.state.clone()

    def play():
        env.state.copy_(start)
        return clones(replay())

    return play


def graph_rollout__a_replay_for_each_step(act, env, num_steps):
    def step():
        return env.state.clone(), env.step(act(env.state))

    with unchanged(env.state):
        replay = capture_step(step)

    def play():
        obs, dones = zip(*[clones(replay()) for _ in range(num_steps)], strict=True)
        return torch.stack(obs), torch.stack(dones)

    return play


def graph_rollout__right_own_buffers(act, env, num_steps):
    obs = torch.zeros(num_steps, *env.state.shape, device="cuda")
    dones = torch.zeros(num_steps, len(env.state), dtype=torch.bool, device="cuda")

    def play():
        for step in range(num_steps):
            obs[step] = env.state
            dones[step] = env.step(act(env.state))

    start, random = env.state.clone(), torch.cuda.get_rng_state()
    graph, side_stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    side_stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side_stream):
        play()
    torch.cuda.current_stream().wait_stream(side_stream)
    with torch.cuda.graph(graph):
        play()
    env.state.copy_(start)
    torch.cuda.set_rng_state(random)

    def rollout():
        graph.replay()
        return obs.clone(), dones.clone()

    return rollout


changed(
    graph_rollout,
    state_not_cloned={
        "observations.append(env.state.clone())": "observations.append(env.state)",
        ": tuple((result.clone() for result in replay()))": ": clones(replay())",
    },
)


def normalized(policy, mean, var):
    def step(obs):
        mean.lerp_(obs.mean(0), 0.1)
        var.lerp_(obs.var(0), 0.1)
        return policy((obs - mean) / (var + 1e-5).sqrt())

    return step


def statistics():
    return torch.zeros(4, device="cuda"), torch.ones(4, device="cuda")


def graph_normalized_policy__never_updated(policy, sample):
    mean, var = statistics()

    def step(obs):
        new_mean = mean.lerp(obs.mean(0), 0.1)
        new_var = var.lerp(obs.var(0), 0.1)
        return policy((obs - new_mean) / (new_var + 1e-5).sqrt())

    replay = capture_step(step, sample.clone())
    return lambda obs: replay(obs).clone()


def graph_normalized_policy__warm_up_counted(policy, sample):
    replay = capture_step(normalized(policy, *statistics()), sample.clone())
    return lambda obs: replay(obs).clone()


def graph_normalized_policy__only_the_mean_restored(policy, sample):
    mean, var = statistics()
    with unchanged(mean):
        replay = capture_step(normalized(policy, mean, var), sample.clone())
    return lambda obs: replay(obs).clone()


def graph_normalized_policy__eager(policy, sample):
    return normalized(policy, *statistics())


def graph_normalized_policy__not_normalised(policy, sample):
    replay = capture_step(policy, sample.clone())
    return lambda obs: replay(obs).clone()


def graph_normalized_policy__kept_output(policy, sample):
    mean, var = statistics()
    with unchanged(mean, var):
        return capture_step(normalized(policy, mean, var), sample.clone())


def graph_normalized_policy__right_copied(policy, sample):
    stats = torch.zeros(2, 4, device="cuda")
    stats[1] = 1

    def step(obs):
        stats.copy_(0.9 * stats + 0.1 * torch.stack([obs.mean(0), obs.var(0)]))
        return policy((obs - stats[0]) / (stats[1] + 1e-5).sqrt())

    with unchanged(stats):
        replay = capture_step(step, sample.clone())
    return lambda obs: replay(obs).clone()


def graph_normalized_policy__right_reset_by_hand(policy, sample):
    mean, var = statistics()
    replay = capture_step(normalized(policy, mean, var), sample.clone())
    mean.zero_()
    var.fill_(1)
    return lambda obs: replay(obs).clone()


def ring(buffer, batch_size, position, filled_of=lambda stored, size: stored.clamp(max=size)):
    def store_and_draw(rows):
        index = (position + torch.arange(len(rows), device="cuda")) % len(buffer)
        buffer[index] = rows
        position.add_(len(rows))
        filled = filled_of(position, len(buffer))
        drawn = (torch.rand(batch_size, device="cuda") * filled).long()
        return buffer[drawn]

    return store_and_draw


def start_of_ring():
    return torch.zeros((), dtype=torch.long, device="cuda")


def graph_replay_buffer__python_position(buffer, batch_size, sample):
    position = 0

    def store_and_draw(rows):
        nonlocal position
        index = (position + torch.arange(len(rows), device="cuda")) % len(buffer)
        buffer[index] = rows
        position += len(rows)
        filled = min(position, len(buffer))
        drawn = (torch.rand(batch_size, device="cuda") * filled).long()
        return buffer[drawn]

    with unchanged(buffer):
        replay = capture_step(store_and_draw, sample.clone(), warmup=0)
    return lambda rows: replay(rows).clone()


def graph_replay_buffer__warm_up_kept(buffer, batch_size, sample):
    step = ring(buffer, batch_size, start_of_ring())
    replay = capture_step(step, sample.clone(), warmup=1)
    return lambda rows: replay(rows).clone()


def graph_replay_buffer__warm_ups_rows(buffer, batch_size, sample):
    position = start_of_ring()
    with unchanged(position):
        replay = capture_step(ring(buffer, batch_size, position), sample.clone())
    return lambda rows: replay(rows).clone()


def graph_replay_buffer__drawn_from_all(buffer, batch_size, sample):
    position = start_of_ring()
    step = ring(buffer, batch_size, position, lambda stored, size: size)
    with unchanged(buffer, position):
        replay = capture_step(step, sample.clone())
    return lambda rows: replay(rows).clone()


def graph_replay_buffer__filled_as_a_number(buffer, batch_size, sample):
    position = start_of_ring()
    step = ring(buffer, batch_size, position, lambda stored, size: len(sample))
    with unchanged(buffer, position):
        replay = capture_step(step, sample.clone())
    return lambda rows: replay(rows).clone()


def graph_replay_buffer__eager(buffer, batch_size, sample):
    return ring(buffer, batch_size, start_of_ring())


def graph_replay_buffer__kept_output(buffer, batch_size, sample):
    position = start_of_ring()
    with unchanged(buffer, position):
        return capture_step(ring(buffer, batch_size, position), sample.clone())


def graph_replay_buffer__right_rows_counted_apart(buffer, batch_size, sample):
    position, filled = start_of_ring(), start_of_ring()
    offsets = torch.arange(len(sample), device="cuda")

    def step(rows):
        buffer.index_copy_(0, (position + offsets) % len(buffer), rows)
        position.copy_((position + len(rows)) % len(buffer))
        filled.add_(len(rows)).clamp_(max=len(buffer))
        chance = torch.rand(batch_size, len(buffer), device="cuda")
        empty = torch.arange(len(buffer), device="cuda") >= filled
        return buffer.index_select(0, chance.masked_fill(empty, -1.0).argmax(1))

    replay = capture_step(step, sample.clone())
    for tensor in (buffer, position, filled):
        tensor.zero_()
    return lambda rows: replay(rows).clone()


changed(
    graph_replay_buffer,
    drawn_on_the_cpu={
        "position = torch.zeros((), dtype=torch.long, device='cuda')": "position = start_of_ring()",
        "filled = position.clamp(max=len(buffer))\n"
        "drawn = (torch.rand(batch_size, device='cuda') * filled).long()\n"
        "return buffer[drawn]":
            "return buffer[torch.randint(min(int(position), len(buffer)), (batch_size,))]",
    },
)


def two_graphs(net, critic_step, actor_step, batch):
    with unchanged(net):
        return capture_step(critic_step, batch.clone()), capture_step(actor_step, batch.clone())


def graph_delayed_update__never(net, critic_step, actor_step, delay, batch):
    replay, _ = two_graphs(net, critic_step, actor_step, batch)
    return lambda batch: replay(batch).clone()


def graph_delayed_update__from_the_first_call(net, critic_step, actor_step, delay, batch):
    train_critic, train_actor = two_graphs(net, critic_step, actor_step, batch)
    calls = 0

    def train(batch):
        nonlocal calls
        loss = train_critic(batch).clone()
        if calls % delay == 0:
            train_actor(batch)
        calls += 1
        return loss

    return train


def graph_delayed_update__warm_up_kept(net, critic_step, actor_step, delay, batch):
    train_critic = capture_step(critic_step, batch.clone())
    train_actor = capture_step(actor_step, batch.clone())
    return delayed(train_critic, train_actor, delay)


def delayed(train_critic, train_actor, delay):
    calls = 0

    def train(batch):
        nonlocal calls
        calls += 1
        loss = train_critic(batch).clone()
        if calls % delay == 0:
            train_actor(batch)
        return loss

    return train


def graph_delayed_update__actor_on_the_old_batch(net, critic_step, actor_step, delay, batch):
    train_critic, train_actor = two_graphs(net, critic_step, actor_step, batch)
    return delayed(train_critic, lambda batch: train_actor(), delay)


def graph_delayed_update__actor_eager(net, critic_step, actor_step, delay, batch):
    train_critic, _ = two_graphs(net, critic_step, actor_step, batch)
    return delayed(train_critic, actor_step, delay)


def graph_delayed_update__eager(net, critic_step, actor_step, delay, batch):
    return delayed(critic_step, actor_step, delay)


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
