"""Answers to the exercises of *Shorten a step to its kernel time*: wrong ones, and other right ones (`__right_`)."""


def graph_per_buffer__reads_clones(step, net, buffers):
    pool = torch.cuda.graph_pool_handle()
    with unchanged(net):
        replays = [
            capture_step(step, inputs.clone(), targets.clone(), pool=pool)
            for inputs, targets in buffers
        ]
    return lambda number: replays[number]().clone()


def graph_per_buffer__copies_the_batch(step, net, buffers):
    inputs, targets = buffers[0]
    with unchanged(net):
        replay = capture_step(step, inputs.clone(), targets.clone())
    return lambda number: replay(*buffers[number]).clone()


def graph_per_buffer__only_the_first_buffer(step, net, buffers):
    with unchanged(net):
        replay = capture_step(step, *buffers[0])
    return lambda number: replay().clone()


def graph_per_buffer__a_pool_each(step, net, buffers):
    with unchanged(net):
        replays = [capture_step(step, *buffer) for buffer in buffers]
    return lambda number: replays[number]().clone()


def graph_per_buffer__warm_up_trained(step, net, buffers):
    pool = torch.cuda.graph_pool_handle()
    replays = [capture_step(step, *buffer, pool=pool) for buffer in buffers]
    return lambda number: replays[number]().clone()


def graph_per_buffer__losses_not_cloned(step, net, buffers):
    pool = torch.cuda.graph_pool_handle()
    with unchanged(net):
        replays = [capture_step(step, *buffer, pool=pool) for buffer in buffers]
    return lambda number: replays[number]()


def graph_per_buffer__captures_in_the_call(step, net, buffers):
    def train(number):
        with unchanged(net):
            replay = capture_step(step, *buffers[number])
        return replay().clone()

    return train


def graph_per_buffer__eager(step, net, buffers):
    return lambda number: step(*buffers[number])


def graph_per_buffer__right_by_hand(step, net, buffers):
    weights = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    side_stream = torch.cuda.Stream()
    side_stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side_stream):
        for _ in range(3):
            step(*buffers[0])
    torch.cuda.current_stream().wait_stream(side_stream)

    graphs, losses = [], []
    for buffer in buffers:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=graphs[0].pool() if graphs else None):
            losses.append(step(*buffer))
        graphs.append(graph)
    net.load_state_dict(weights)

    def train(number):
        graphs[number].replay()
        return losses[number].clone()

    return train


def prefetching__no_side_stream(step, net, batch):
    buffers = [[tensor.clone() for tensor in batch] for _ in range(2)]
    with unchanged(net):
        replays = [capture_step(step, *buffer) for buffer in buffers]

    def copy_in(number, batch):
        for static, new in zip(buffers[number % 2], batch, strict=True):
            static.copy_(new)

    def train(batches):
        losses = []
        for number, batch in enumerate(batches):
            copy_in(number, batch)
            losses.append(replays[number % 2]().clone())
        return torch.stack(losses)

    return train


def prefetching__right_with_events(step, net, batch):
    buffers = [[tensor.clone() for tensor in batch] for _ in range(2)]
    with unchanged(net):
        replays = [capture_step(step, *buffer) for buffer in buffers]
    copy_stream = torch.cuda.Stream()

    def copy_in(number, batch):
        for static, new in zip(buffers[number % 2], batch, strict=True):
            static.copy_(new)

    def train(batches):
        losses = []
        main = torch.cuda.current_stream()
        arrived = [torch.cuda.Event() for _ in buffers]
        read = [torch.cuda.Event() for _ in buffers]
        copy_stream.wait_stream(main)
        copy_in(0, batches[0])
        arrived[0].record(main)
        for number in range(len(batches)):
            following = (number + 1) % 2
            if number + 1 < len(batches):
                copy_stream.wait_event(read[following])
                with torch.cuda.stream(copy_stream):
                    copy_in(number + 1, batches[number + 1])
                arrived[following].record(copy_stream)
            main.wait_event(arrived[number % 2])
            losses.append(replays[number % 2]().clone())
            read[number % 2].record(main)
        return torch.stack(losses)

    return train


changed(
    prefetching,
    copy_does_not_wait={"copy_stream.wait_stream(torch.cuda.current_stream())": ""},
    warm_up_trained={
        "with unchanged(net):\n"
        "    replays = [capture_step(step, *buffer) for buffer in buffers]":
            "replays = [capture_step(step, *buffer) for buffer in buffers]",
    },
    right_wait_after_replay={
        "torch.cuda.current_stream().wait_stream(copy_stream)\n"
        "copy_stream.wait_stream(torch.cuda.current_stream())":
            "losses.append(replays[number % 2]().clone())",
        "if number + 1 < len(batches):\n"
        "    with torch.cuda.stream(copy_stream):\n"
        "        copy_in(number + 1, batches[number + 1])\n"
        "losses.append(replays[number % 2]().clone())":
            "if number + 1 < len(batches):\n"
            "    with torch.cuda.stream(copy_stream):\n"
            "        copy_in(number + 1, batches[number + 1])\n"
            "    torch.cuda.current_stream().wait_stream(copy_stream)\n"
            "copy_stream.wait_stream(torch.cuda.current_stream())",
    },
)


def steps_in_one_graph__one_step_each(step, net, inputs, targets):
    with unchanged(net):
        replay = capture_step(step, inputs[0].clone(), targets[0].clone())
    return lambda *stacks: torch.stack(
        [replay(*batch).clone() for batch in zip(*stacks, strict=True)]
    )


def steps_in_one_graph__last_loss(step, net, inputs, targets):
    def steps(inputs, targets):
        return [step(*batch) for batch in zip(inputs, targets, strict=True)][-1]

    with unchanged(net):
        replay = capture_step(steps, inputs, targets)
    return lambda *stacks: replay(*stacks).clone()


def steps_in_one_graph__warm_up_trained(step, net, inputs, targets):
    def steps(inputs, targets):
        return torch.stack([step(*batch) for batch in zip(inputs, targets, strict=True)])

    replay = capture_step(steps, inputs, targets)
    return lambda *stacks: replay(*stacks).clone()


def steps_in_one_graph__losses_not_cloned(step, net, inputs, targets):
    def steps(inputs, targets):
        return torch.stack([step(*batch) for batch in zip(inputs, targets, strict=True)])

    with unchanged(net):
        return capture_step(steps, inputs, targets)


def steps_in_one_graph__eager(step, net, inputs, targets):
    return lambda *stacks: torch.stack([step(*batch) for batch in zip(*stacks, strict=True)])


def steps_in_one_graph__right_losses_written(step, net, inputs, targets):
    losses = torch.zeros(len(inputs), device="cuda")

    def steps(inputs, targets):
        for number in range(len(losses)):
            losses[number].copy_(step(inputs[number], targets[number]))
        return losses

    with unchanged(net):
        replay = capture_step(steps, inputs.clone(), targets.clone())
    return lambda *stacks: replay(*stacks).clone()


changed(
    bf16_steps_in_one_graph,
    autocast_around_the_capture={
        "with torch.autocast('cuda', dtype=torch.bfloat16):\n"
        "    loss = mse_loss(net(batch[0]), batch[1])":
            "loss = mse_loss(net(batch[0]), batch[1])",
        "(net, optimizer):": "(net, optimizer), torch.autocast('cuda', dtype=torch.bfloat16):",
    },
    no_zero_grad={"optimizer.zero_grad()": ""},
    in_float32={
        "with torch.autocast('cuda', dtype=torch.bfloat16):\n"
        "    loss = mse_loss(net(batch[0]), batch[1])":
            "loss = mse_loss(net(batch[0]), batch[1])",
    },
    warm_up_trained={
        "with unchanged(net, optimizer):\n"
        "    replay = capture_step(steps, inputs.clone(), targets.clone())":
            "replay = capture_step(steps, inputs.clone(), targets.clone())",
    },
    losses_not_cloned={
        "with unchanged(net, optimizer):\n"
        "    replay = capture_step(steps, inputs.clone(), targets.clone())\n"
        "return lambda *stacks: replay(*stacks).clone()":
            "with unchanged(net, optimizer):\n"
            "    return capture_step(steps, inputs.clone(), targets.clone())",
    },
)


changed(
    bf16_steps_in_one_graph__as_given,
    right_without_the_cache={
        "('cuda', dtype=torch.bfloat16):": "('cuda', dtype=torch.bfloat16, cache_enabled=False):",
    },
    right_cache_cleared={
        "losses.append(loss.detach())":
            "torch.clear_autocast_cache()\n"
            "losses.append(loss.detach())",
    },
)
