"""Answers to the exercises of *Optimizers and mixed precision*: wrong ones, and other right ones (`__right_`)."""


def make_step(net, optimizer, inputs, targets):
    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = mse_loss(net(inputs), targets)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def make_adam(net, rates):
    lr = torch.tensor(rates[0], device="cuda")
    return lr, torch.optim.Adam(net.parameters(), lr=lr, capturable=True)


def train_with_schedule__not_capturable(net, inputs, targets, rates):
    optimizer = torch.optim.Adam(net.parameters(), lr=rates[0])
    with unchanged(net, optimizer):
        replay = capture_step(make_step(net, optimizer, inputs, targets))
    return [replay().clone() for _ in rates]


def train_with_schedule__not_cloned(net, inputs, targets, rates):
    lr, optimizer = make_adam(net, rates)
    with unchanged(net, optimizer):
        replay = capture_step(make_step(net, optimizer, inputs, targets))
    losses = []
    for rate in rates:
        lr.fill_(rate)
        losses.append(replay())
    return losses


def train_with_schedule__nothing_restored(net, inputs, targets, rates):
    lr, optimizer = make_adam(net, rates)
    replay = capture_step(make_step(net, optimizer, inputs, targets))
    losses = []
    for rate in rates:
        lr.fill_(rate)
        losses.append(replay().clone())
    return losses


def train_with_schedule__eager(net, inputs, targets, rates):
    optimizer = torch.optim.Adam(net.parameters())
    step = make_step(net, optimizer, inputs, targets)
    losses = []
    for rate in rates:
        optimizer.param_groups[0]["lr"] = rate
        losses.append(step())
    return losses


def train_with_schedule__right_a_graph_for_each_rate(net, inputs, targets, rates):
    optimizer = torch.optim.Adam(net.parameters(), lr=rates[0], capturable=True)
    replays = []
    with unchanged(net, optimizer):
        for rate in rates:
            optimizer.param_groups[0]["lr"] = rate
            replays.append(capture_step(make_step(net, optimizer, inputs, targets)))
    return [replay().clone() for replay in replays]


changed(
    train_with_schedule__not_cloned,
    rate_is_a_number={
        "lr, optimizer = make_adam(net, rates)":
            "optimizer = torch.optim.Adam(net.parameters(), lr=rates[0], capturable=True)",
        "lr.fill_(rate)": "optimizer.param_groups[0]['lr'] = rate",
        "losses.append(replay())": "losses.append(replay().clone())",
    },
    averages_left={
        "with unchanged(net, optimizer):": "with unchanged(net):",
        "losses.append(replay())": "losses.append(replay().clone())",
    },
    no_warm_up={
        "with unchanged(net, optimizer):": "with unchanged(net):",
        "(make_step(net, optimizer, inputs, targets))":
            "(make_step(net, optimizer, inputs, targets), warmup=0)",
        "losses.append(replay())": "losses.append(replay().clone())",
    },
    right_rates_on_the_gpu={
        "lr, optimizer = make_adam(net, rates)": "_, optimizer = make_adam(net, rates)",
        "for rate in rates:": "for rate in torch.tensor(rates, device='cuda'):",
        "lr.fill_(rate)": "optimizer.param_groups[0]['lr'].copy_(rate)",
        "losses.append(replay())": "losses.append(replay().clone())",
    },
    right_scheduler={
        "with unchanged(net, optimizer):":
            "shares = [rate / rates[0] for rate in rates + rates[-1:]]\n"
            "scheduler = lr_scheduler.LambdaLR(optimizer, shares.__getitem__)\n"
            "with unchanged(net, optimizer):",
        "lr.fill_(rate)": "losses.append(replay().clone())",
        "losses.append(replay())": "scheduler.step()",
    },
    D2_adamw={
        "lr, optimizer = make_adam(net, rates)":
            "lr = torch.tensor(rates[0], device='cuda')\n"
            "optimizer = torch.optim.AdamW(net.parameters(), lr=lr, capturable=True)",
        "losses.append(replay())": "losses.append(replay().clone())",
    },
    right_fused={
        "lr, optimizer = make_adam(net, rates)":
            "lr = torch.tensor(rates[0], device='cuda')\n"
            "optimizer = torch.optim.Adam(net.parameters(), lr=lr, fused=True, capturable=True)",
        "losses.append(replay())": "losses.append(replay().clone())",
    },
)


def on_plateau(net, inputs, targets, lr, fused=True):
    """The replay of a step of SGD, and its scheduler."""
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, fused=fused)
    scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.1, patience=0, threshold=0.2)

    def step():
        optimizer.zero_grad()
        loss = mse_loss(net(inputs), targets)
        loss.backward()
        optimizer.step()
        return loss.detach()

    with unchanged(net, optimizer):
        replay = capture_step(step)
    return replay, scheduler


def train_on_plateau__item_in_every_step(net, inputs, targets, epochs, steps):
    replay, scheduler = on_plateau(net, inputs, targets, torch.tensor(0.1, device="cuda"))
    losses = []
    for _ in range(epochs):
        total = 0.0
        for _ in range(steps):
            losses.append(replay().clone())
            total += losses[-1].item()
        scheduler.step(total / steps)
    return torch.stack(losses)


def train_on_plateau__rate_is_a_number(net, inputs, targets, epochs, steps):
    replay, scheduler = on_plateau(net, inputs, targets, 0.1)
    losses = []
    for _ in range(epochs):
        for _ in range(steps):
            losses.append(replay().clone())
        scheduler.step(torch.stack(losses[-steps:]).mean())
    return torch.stack(losses)


def train_on_plateau__right_one_tensor(net, inputs, targets, epochs, steps):
    replay, scheduler = on_plateau(net, inputs, targets, torch.tensor(0.1, device="cuda"))
    losses = torch.zeros(epochs, steps, device="cuda")
    for epoch in range(epochs):
        for number in range(steps):
            losses[epoch, number] = replay()
        scheduler.step(losses[epoch].mean().item())
    return losses.flatten()


def train_on_plateau__right_sum_on_the_gpu(net, inputs, targets, epochs, steps):
    replay, scheduler = on_plateau(net, inputs, targets, torch.tensor(0.1, device="cuda"))
    total = torch.zeros((), device="cuda")
    losses = []
    for _ in range(epochs):
        total.zero_()
        for _ in range(steps):
            losses.append(replay().clone())
            total += losses[-1]
        scheduler.step(total / steps)
    return torch.stack(losses)


def by_metric(net, inputs, targets, epochs, steps, metric):
    """train_on_plateau, whose scheduler gets metric(the losses of the epoch)."""
    replay, scheduler = on_plateau(net, inputs, targets, torch.tensor(0.1, device="cuda"))
    losses = []
    for _ in range(epochs):
        of_epoch = [replay().clone() for _ in range(steps)]
        scheduler.step(metric(of_epoch))
        losses += of_epoch
    return torch.stack(losses)


def train_on_plateau__D3_last_loss_of_the_epoch(net, inputs, targets, epochs, steps):
    return by_metric(net, inputs, targets, epochs, steps, lambda losses: losses[-1])


def train_on_plateau__right_mean_of_a_cat(net, inputs, targets, epochs, steps):
    def mean(losses):
        return torch.cat([loss[None] for loss in losses]).mean()

    return by_metric(net, inputs, targets, epochs, steps, mean)


changed(
    train_on_plateau__rate_is_a_number,
    not_cloned={
        "(net, inputs, targets, 0.1)": "(net, inputs, targets, torch.tensor(0.1, device='cuda'))",
        "losses.append(replay().clone())": "losses.append(replay())",
    },
    not_fused={
        "replay, scheduler = on_plateau(net, inputs, targets, 0.1)":
            "lr = torch.tensor(0.1, device='cuda')\n"
            "replay, scheduler = on_plateau(net, inputs, targets, lr, fused=False)",
    },
)


def half(
    net,
    inputs,
    targets,
    restored=True,
    dtype=torch.float16,
    update=True,
    unscaled=True,
    clipped=True,
    **options,
):
    """train_in_half with one thing changed."""
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.05, capturable=True, **options)
    scaler = torch.amp.GradScaler(init_scale=2.0**10, growth_interval=4)

    def step(inputs, targets):
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=dtype, enabled=dtype != torch.float32):
            loss = mse_loss(net(inputs), targets)
        scaler.scale(loss).backward()
        if unscaled:
            scaler.unscale_(optimizer)
        if clipped:
            clip_grad_norm_(net.parameters(), 0.5)
        scaler.step(optimizer)
        if update:
            scaler.update()
        return loss.detach()

    with unchanged(net, optimizer, *([scaler] if restored else [])):
        replay = capture_step(step, inputs.clone(), targets.clone())

    def train(inputs, targets):
        return replay(inputs, targets).clone()

    return train, scaler


def train_in_half__scaler_not_restored(net, inputs, targets):
    return half(net, inputs, targets, restored=False, fused=True)


def train_in_half__clipped_while_scaled(net, inputs, targets):
    return half(net, inputs, targets, unscaled=False, fused=True)


def train_in_half__not_clipped(net, inputs, targets):
    return half(net, inputs, targets, clipped=False, fused=True)


def train_in_half__in_float32(net, inputs, targets):
    return half(net, inputs, targets, dtype=torch.float32, fused=True)


def train_in_half__right_state_loaded(net, inputs, targets):
    train, scaler = half(net, inputs, targets, restored=False, fused=True)
    new = torch.amp.GradScaler(init_scale=2.0**10, growth_interval=4)
    scaler.load_state_dict(new.state_dict())
    return train, scaler


changed(
    train_in_half,
    update_outside={
        "scaler.step(optimizer)\n"
        "scaler.update()":
            "optimizer.step()",
    },
)


def prefetcher(step, net, batches, record="after reading", arrive=True, early=False):
    """train_prefetched with one thing changed; record: when the event is recorded."""
    static_batch = [tensor.cuda() for tensor in batches[0]]
    with unchanged(net):
        replay = capture_step(step, *static_batch)
    next_batch = [torch.empty_like(tensor) for tensor in static_batch]
    copy_stream = torch.cuda.Stream()
    event = torch.cuda.Event()

    def start_copy(number):
        if number < len(batches):
            copy_stream.wait_event(event)
            with torch.cuda.stream(copy_stream):
                copy_batch(next_batch, batches[number])

    losses = []
    event.record()
    start_copy(0)
    for number in range(len(batches)):
        if arrive:
            torch.cuda.current_stream().wait_stream(copy_stream)
        if record == "before reading":
            event.record()
        copy_batch(static_batch, next_batch)
        if record == "after reading":
            event.record()
        if early:
            start_copy(number + 1)
        losses.append(replay().clone())
        if record == "after the replay":
            event.record()
        if not early:
            start_copy(number + 1)
    return torch.stack(losses)


def train_prefetched__copy_waits_for_the_replay(step, net, batches):
    return prefetcher(step, net, batches, record="after the replay")


def train_prefetched__recorded_too_soon(step, net, batches):
    return prefetcher(step, net, batches, record="before reading")


def train_prefetched__no_wait_for_arrival(step, net, batches):
    return prefetcher(step, net, batches, arrive=False)


def train_prefetched__batch_asked_for_before_the_replay(step, net, batches):
    return prefetcher(step, net, batches, early=True)


def train_prefetched__right_two_buffers(step, net, batches):
    static_batch = [tensor.cuda() for tensor in batches[0]]
    with unchanged(net):
        replay = capture_step(step, *static_batch)
    buffers = [[torch.empty_like(tensor) for tensor in static_batch] for _ in range(2)]
    read = [torch.cuda.Event() for _ in range(2)]
    for event in read:
        event.record()
    copy_stream = torch.cuda.Stream()

    def start_copy(number):
        if number < len(batches):
            read[number % 2].wait(copy_stream)
            with torch.cuda.stream(copy_stream):
                copy_batch(buffers[number % 2], batches[number])

    losses = []
    start_copy(0)
    for number in range(len(batches)):
        torch.cuda.current_stream().wait_stream(copy_stream)
        copy_batch(static_batch, buffers[number % 2])
        read[number % 2].record()
        losses.append(replay().clone())
        start_copy(number + 1)
    return torch.stack(losses)


def train_prefetched__right_read_on_a_stream_of_its_own(step, net, batches):
    static_batch = [tensor.cuda() for tensor in batches[0]]
    with unchanged(net):
        replay = capture_step(step, *static_batch)
    next_batch = [torch.empty_like(tensor) for tensor in static_batch]
    copy_stream = torch.cuda.Stream()
    read_stream = torch.cuda.Stream()
    main_stream = torch.cuda.current_stream()
    read_stream.wait_stream(main_stream)

    losses = []
    for number in range(len(batches)):
        copy_stream.wait_stream(read_stream)
        with torch.cuda.stream(copy_stream):
            copy_batch(next_batch, batches[number])
        read_stream.wait_stream(copy_stream)
        read_stream.wait_stream(main_stream)
        with torch.cuda.stream(read_stream):
            copy_batch(static_batch, next_batch)
        main_stream.wait_stream(read_stream)
        losses.append(replay().clone())
    return torch.stack(losses)


changed(
    train_prefetched,
    right_as_in_the_example={
        "def start_copy(batch):":
            "has_been_read.record()\n"
            "losses = []\n"
            "for batch in batches:",
        "losses = []\n"
        "has_been_read.record()\n"
        "start_copy(batches[0])\n"
        "for number in range(len(batches)):": "",
        "if number + 1 < len(batches):\n"
        "    start_copy(batches[number + 1])": "",
    },
)
