"""Answers to the exercises of *Make code capturable*: wrong ones, and other right ones (`__right_`)."""


def entropy__unsafe_where(p):
    return -torch.where(p > 0, p * p.log(), 0).sum()


def entropy__without_history(p):
    return -(p * torch.where(p > 0, p, 1).detach().log()).sum()


def entropy__sign_lost(p):
    return (p * torch.where(p > 0, p, 1).log()).sum()


def entropy__right_filled_mask(p):
    return -(p * p.masked_fill(p <= 0, 1).log()).sum()


def entropy__right_mask_added(p):
    return -(p * (p + (p == 0)).log()).sum()


def entropy__right_both_safe(p):
    safe = torch.where(p > 0, p, 1)
    return -torch.where(p > 0, safe * safe.log(), 0).sum()


def entropy__D12_clamped_to_a_thousandth(p):
    return -(p * p.clamp(min=1e-3).log()).sum()


def ramp__moved_tensor(steps):
    done = torch.zeros((), device="cuda")

    def scaled(x):
        nonlocal done
        done = done + 1
        return x * (done / steps).clamp(max=1)

    return scaled


def ramp__one_call_late(steps):
    done = torch.zeros((), device="cuda")

    def scaled(x):
        factor = (done / steps).clamp(max=1)
        done.add_(1)
        return x * factor

    return scaled


def ramp__right_factor_itself(steps):
    factor = torch.zeros((), device="cuda")
    return lambda x: x * factor.add_(1 / steps).clamp_(max=1)


def ramp__D13_moved_in_a_dict(steps):
    state = {"done": torch.zeros((), device="cuda")}

    def scaled(x):
        state["done"] = state["done"] + 1
        return x * (state["done"] / steps).clamp(max=1)

    return scaled


changed(
    ramp,
    without_end={"return x * (done / steps).clamp(max=1)": "return x * (done / steps)"},
    value_read={"* (done / steps).clamp(max=1)": "* min(1.0, done.item() / steps)"},
)


changed(
    ramp__as_given,
    right_augmented={
        "done = 0": "done = torch.zeros((), device='cuda')",
        "return x * min(1.0, done / steps)": "return x * (done / steps).clamp(max=1)",
    },
)


def logger__first_row_skipped(log):
    row = torch.zeros(1, dtype=torch.int64, device="cuda")

    def write(loss):
        row.add_(1).remainder_(len(log))
        log[row] = loss
        return log

    return write


def logger__right_where(log):
    rows = torch.arange(len(log), device="cuda")
    row = torch.zeros((), dtype=torch.int64, device="cuda")

    def write(loss):
        log.copy_(torch.where(rows == row, loss, log))
        row.add_(1).remainder_(len(log))
        return log

    return write


changed(
    logger__as_given,
    moved_row={
        "row = 0": "row = torch.zeros(1, dtype=torch.int64, device='cuda')",
        "log[row] = loss.item()": "log[row] = loss",
    },
)


changed(
    logger,
    row_stands_still={"row.add_(1).remainder_(len(log))": ""},
    right_index_copy={
        "log[row] = loss": "log.index_copy_(0, row, loss[None])",
        "row.add_(1).remainder_(len(log))": "row.copy_((row + 1) % len(log))",
    },
)


def loss_of(weight, temperature, x):
    return (x * weight / temperature - 1).square().mean()


def descend(weight, loss):
    """Take a step of gradient descent; returns the loss."""
    weight.grad = None
    loss.backward()
    with torch.no_grad():
        weight.sub_(0.1 * weight.grad)
    return loss.detach()


def losses_of_replays(step, batches, *trained):
    """Capture the step without a trace of its warm-up, and replay it on each batch."""
    with unchanged(*trained):
        replay = capture_step(step, batches[0].cuda())
    return [replay(batch).item() for batch in batches]


def anneal_and_train__frozen_number(weight, batches):
    temperature = 2.0

    def step(x):
        nonlocal temperature
        loss = descend(weight, loss_of(weight, temperature, x))
        temperature = max(1.0, 0.9 * temperature)
        return loss

    return losses_of_replays(step, batches, weight)


def anneal_and_train__cooled_before_backward(weight, batches):
    temperature = torch.tensor(2.0, device="cuda")

    def step(x):
        loss = loss_of(weight, temperature, x)
        temperature.mul_(0.9).clamp_(min=1.0)
        return descend(weight, loss)

    return losses_of_replays(step, batches, weight, temperature)


def anneal_and_train__cooled_first(weight, batches):
    temperature = torch.tensor(2.0, device="cuda")

    def step(x):
        temperature.mul_(0.9).clamp_(min=1.0)
        return descend(weight, loss_of(weight, temperature, x))

    return losses_of_replays(step, batches, weight, temperature)


def anneal_and_train__warm_up_trains(weight, batches):
    temperature = torch.tensor(2.0, device="cuda")

    def step(x):
        loss = descend(weight, loss_of(weight, temperature, x))
        temperature.mul_(0.9).clamp_(min=1.0)
        return loss

    replay = capture_step(step, batches[0].cuda())
    return [replay(batch).item() for batch in batches]


def anneal_and_train__one_batch(weight, batches):
    temperature = torch.tensor(2.0, device="cuda")

    def step(x):
        loss = descend(weight, loss_of(weight, temperature, x))
        temperature.mul_(0.9).clamp_(min=1.0)
        return loss

    with unchanged(weight, temperature):
        replay = capture_step(step, batches[0].cuda())
    return [replay().item() for _ in batches]


def anneal_and_train__D10_static_input_rebound(weight, batches):
    temperature = torch.tensor(2.0, device="cuda")
    x = batches[0].cuda()

    def step():
        loss = descend(weight, loss_of(weight, temperature, x))
        temperature.mul_(0.9).clamp_(min=1.0)
        return loss

    with unchanged(weight, temperature):
        replay = capture_step(step)
    losses = []
    for batch in batches:
        x = batch.cuda()
        losses.append(replay().item())
    return losses


def anneal_and_train__right_filled_between(weight, batches):
    temperature = torch.tensor(2.0, device="cuda")

    def step(x):
        return descend(weight, loss_of(weight, temperature, x))

    with unchanged(weight, temperature):
        replay = capture_step(step, batches[0].cuda())
    losses = []
    for number, batch in enumerate(batches):
        temperature.fill_(max(1.0, 2 * 0.9**number))
        losses.append(replay(batch).item())
    return losses


def anneal_and_train__right_read_after_each_replay(weight, batches):
    temperature = torch.tensor(2.0, device="cuda")

    def step(x):
        loss = descend(weight, loss_of(weight, temperature, x))
        temperature.mul_(0.9).clamp_(min=1.0)
        return loss

    return losses_of_replays(step, batches, weight, temperature)


changed(
    anneal_and_train__one_batch,
    read_in_the_graph={
        "return loss": "return loss.item()",
        "replay().item() for _ in": "replay(batch) for batch in",
    },
    D10_losses_not_cloned={
        "return [replay().item() for _ in batches]":
            "losses = [replay(batch) for batch in batches]\n"
            "return [loss.item() for loss in losses]",
    },
)
