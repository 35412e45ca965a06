"""Answers to the exercises of *Train a language model*: wrong ones, and other right ones (`__right_`)."""

import copy
from functools import partial


def graphed(net, optimizer, inputs, targets, zero="step", clip="step", divide=True, restore=True):
    divisor = len(inputs) if divide else 1

    def step(inputs, targets):
        losses = []
        if zero == "step":
            optimizer.zero_grad()
        for micro_inputs, micro_targets in zip(inputs, targets, strict=True):
            if zero == "micro-batch":
                optimizer.zero_grad()
            losses.append(mse_loss(net(micro_inputs), micro_targets) / divisor)
            losses[-1].backward()
            if clip == "micro-batch":
                clip_grad_norm_(net.parameters(), 1.0)
        if clip == "step":
            clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        return torch.stack(losses).sum().detach()

    with unchanged(*([net, optimizer] if restore else [])):
        return capture_step(step, inputs.clone(), targets.clone())


def with_lr(replay, lr):
    def train(inputs, targets, new_lr):
        lr.fill_(new_lr)
        return replay(inputs, targets).clone()

    return train


def accumulating_step__zeroed_between_micro_batches(net, optimizer, lr, inputs, targets):
    return with_lr(graphed(net, optimizer, inputs, targets, zero="micro-batch"), lr)


def accumulating_step__never_zeroed(net, optimizer, lr, inputs, targets):
    for weight in net.parameters():
        weight.grad = torch.zeros_like(weight)
    return with_lr(graphed(net, optimizer, inputs, targets, zero="never"), lr)


def accumulating_step__not_clipped(net, optimizer, lr, inputs, targets):
    return with_lr(graphed(net, optimizer, inputs, targets, clip="never"), lr)


def accumulating_step__clipped_for_each_micro_batch(net, optimizer, lr, inputs, targets):
    return with_lr(graphed(net, optimizer, inputs, targets, clip="micro-batch"), lr)


def accumulating_step__not_divided(net, optimizer, lr, inputs, targets):
    return with_lr(graphed(net, optimizer, inputs, targets, divide=False), lr)


def accumulating_step__only_the_sum_is_divided(net, optimizer, lr, inputs, targets):
    train = with_lr(graphed(net, optimizer, inputs, targets, divide=False), lr)
    return lambda inputs, targets, new_lr: train(inputs, targets, new_lr) / len(inputs)


def accumulating_step__nothing_restored(net, optimizer, lr, inputs, targets):
    return with_lr(graphed(net, optimizer, inputs, targets, restore=False), lr)


def accumulating_step__lr_is_a_number(net, optimizer, lr, inputs, targets):
    replay = graphed(net, optimizer, inputs, targets)

    def train(inputs, targets, new_lr):
        optimizer.param_groups[0]["lr"] = new_lr
        return replay(inputs, targets).clone()

    return train


def accumulating_step__eager(net, optimizer, lr, inputs, targets):
    def train(inputs, targets, new_lr):
        lr.fill_(new_lr)
        optimizer.zero_grad()
        losses = []
        for micro_inputs, micro_targets in zip(inputs, targets, strict=True):
            losses.append(mse_loss(net(micro_inputs), micro_targets) / len(inputs))
            losses[-1].backward()
        clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        return torch.stack(losses).sum().detach()

    return train


def clipping_to(net, optimizer, lr, inputs, targets, norm):
    """accumulating_step with another norm."""

    def step(inputs, targets):
        optimizer.zero_grad()
        losses = []
        for micro_inputs, micro_targets in zip(inputs, targets, strict=True):
            loss = mse_loss(net(micro_inputs), micro_targets) / len(inputs)
            loss.backward()
            losses.append(loss.detach())
        clip_grad_norm_(net.parameters(), norm)
        optimizer.step()
        return torch.stack(losses).sum()

    with unchanged(net, optimizer):
        return with_lr(capture_step(step, inputs.clone(), targets.clone()), lr)


def accumulating_step__D1_clipped_to_a_tenth_more(net, optimizer, lr, inputs, targets):
    return clipping_to(net, optimizer, lr, inputs, targets, 1.1)


def accumulating_step__D6_all_micro_batches_at_once(net, optimizer, lr, inputs, targets):
    def step(inputs, targets):
        optimizer.zero_grad()
        loss = mse_loss(net(inputs.flatten(0, 1)), targets.flatten(0, 1))
        loss.backward()
        clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    with unchanged(net, optimizer):
        return with_lr(capture_step(step, inputs.clone(), targets.clone()), lr)


def accumulating_step__D9_rate_written_after_the_replay(net, optimizer, lr, inputs, targets):
    replay = graphed(net, optimizer, inputs, targets)

    def train(inputs, targets, new_lr):
        loss = replay(inputs, targets).clone()
        lr.fill_(new_lr)
        return loss

    return train


changed(
    accumulating_step,
    D7_captured_on_the_callers_tensors={
        "def step(inputs, targets):": "def step():",
        "with unchanged(net, optimizer):\n"
        "    replay = capture_step(step, inputs.clone(), targets.clone())\n"
        "def train(inputs, targets, new_lr):":
            "with unchanged(net, optimizer):\n"
            "    replay = capture_step(step)\n"
            "def train(new_inputs, new_targets, new_lr):\n"
            "    inputs.copy_(new_inputs)\n"
            "    targets.copy_(new_targets)",
        "return replay(inputs, targets).clone()": "return replay().clone()",
    },
    right_mean_of_the_losses={
        "optimizer.zero_grad()": "optimizer.zero_grad(set_to_none=False)",
        "for micro_inputs, micro_targets in zip(inputs, targets, strict=True):":
            "for number in range(len(inputs)):",
        "(net(micro_inputs), micro_targets) / len(inputs)":
            "(net(inputs[number]), targets[number])",
        "loss.backward()": "(loss / len(inputs)).backward()",
        "net.parameters(), 1.0": "list(net.parameters()), max_norm=1",
        "return torch.stack(losses).sum()": "return torch.stack(losses).mean()",
        "lr.fill_(new_lr)": "lr.copy_(torch.tensor(new_lr, device='cuda'))",
    },
)


changed(
    accumulating_step__lr_is_a_number,
    not_cloned={
        "optimizer.param_groups[0]['lr'] = new_lr": "lr.fill_(new_lr)",
        "return replay(inputs, targets).clone()": "return replay(inputs, targets)",
    },
    not_copied_in={
        "optimizer.param_groups[0]['lr'] = new_lr": "lr.fill_(new_lr)",
        "return replay(inputs, targets).clone()": "return replay().clone()",
    },
    right_lr_by_copy={"optimizer.param_groups[0]['lr'] = new_lr": "lr.copy_(torch.tensor(new_lr))"},
)


PARTS = ("model", "optimizer", "scheduler")


def resumed(
    training,
    checkpoint,
    batches,
    load=PARTS,
    late=(),
    keep=(0, 1),
    start=None,
    every=1,
    random=True,
    clone=True,
):
    """The losses; keep: the parts of training that unchanged restores."""
    net, optimizer, scheduler = training

    def step(inputs, targets):
        optimizer.zero_grad()
        loss = mse_loss(net(inputs), targets)
        loss.backward()
        optimizer.step()
        return loss.detach()

    def load_parts(names):
        for name, part in zip(PARTS, training, strict=True):
            if name in names:
                part.load_state_dict(checkpoint[name])

    load_parts(load)
    if random:
        torch.cuda.set_rng_state(checkpoint["rng_state"])
    with unchanged(*[training[number] for number in keep]):
        replay = capture_step(step, *[tensor.clone() for tensor in batches[0]])
    load_parts(late)

    losses = []
    start = checkpoint["step"] if start is None else start
    for inputs, targets in batches[start:]:
        loss = replay(inputs, targets)
        losses.append(loss.clone() if clone else loss)
        if every:
            scheduler.step()
    return losses


def resumed_losses__loaded_after_the_capture(net, optimizer, scheduler, checkpoint, batches):
    return resumed((net, optimizer, scheduler), checkpoint, batches, load=(), late=PARTS)


def resumed_losses__nothing_restored(net, optimizer, scheduler, checkpoint, batches):
    return resumed((net, optimizer, scheduler), checkpoint, batches, keep=())


def resumed_losses__weights_alone_restored(net, optimizer, scheduler, checkpoint, batches):
    return resumed((net, optimizer, scheduler), checkpoint, batches, keep=(0,))


def resumed_losses__no_scheduler(net, optimizer, scheduler, checkpoint, batches):
    return resumed((net, optimizer, scheduler), checkpoint, batches, load=PARTS[:2])


def resumed_losses__no_optimizer(net, optimizer, scheduler, checkpoint, batches):
    training = (net, optimizer, scheduler)
    return resumed(training, checkpoint, batches, load=("model", "scheduler"))


def resumed_losses__no_random_state(net, optimizer, scheduler, checkpoint, batches):
    return resumed((net, optimizer, scheduler), checkpoint, batches, random=False)


def resumed_losses__never_stepped(net, optimizer, scheduler, checkpoint, batches):
    return resumed((net, optimizer, scheduler), checkpoint, batches, every=0)


def resumed_losses__not_cloned(net, optimizer, scheduler, checkpoint, batches):
    return resumed((net, optimizer, scheduler), checkpoint, batches, clone=False)


def resumed_losses__eager(net, optimizer, scheduler, checkpoint, batches):
    for name, part in zip(PARTS, (net, optimizer, scheduler), strict=True):
        part.load_state_dict(checkpoint[name])
    torch.cuda.set_rng_state(checkpoint["rng_state"])
    losses = []
    for inputs, targets in batches[checkpoint["step"] :]:
        optimizer.zero_grad()
        loss = mse_loss(net(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        scheduler.step()
    return losses


def resumed_losses__a_graph_for_each_step(net, optimizer, scheduler, checkpoint, batches):
    for name, part in zip(PARTS, (net, optimizer, scheduler), strict=True):
        part.load_state_dict(checkpoint[name])
    torch.cuda.set_rng_state(checkpoint["rng_state"])
    losses = []
    for number in range(checkpoint["step"], len(batches)):
        one = checkpoint | {"step": 0}
        losses += resumed(
            (net, optimizer, scheduler), one, [batches[number]], load=(), random=False
        )
    return losses


changed(
    resumed_losses,
    right_loaded_in_place={
        "net.load_state_dict(checkpoint['model'])":
            "replay = capture_step(step, *[tensor.clone() for tensor in batches[0]])\n"
            "net.load_state_dict(checkpoint['model'])",
        "optimizer.load_state_dict(checkpoint['optimizer'])":
            "saved = checkpoint['optimizer']\n"
            "for number, state in enumerate(optimizer.state.values()):\n"
            "    for key, tensor in state.items():\n"
            "        tensor.copy_(saved['state'][number][key])\n"
            "optimizer.param_groups[0]['lr'].copy_(saved['param_groups'][0]['lr'])",
        "with unchanged(net, optimizer):\n"
        "    replay = capture_step(step, *[tensor.clone() for tensor in batches[0]])": "",
    },
)


EVERY = ("exp_avg", "exp_avg_sq", "step")


def in_place(net, optimizer, keys=EVERY, buffers=True, rate=True, random=True, change=torch.clone):
    def tensors():
        model = net.state_dict().values() if buffers else net.parameters()
        lr = [optimizer.param_groups[0]["lr"]] if rate else []
        states = optimizer.state.values()
        return [*model, *(state[key] for state in states for key in keys), *lr]

    def save():
        return [change(tensor.detach()) for tensor in tensors()], torch.cuda.get_rng_state()

    def load(saved):
        for tensor, value in zip(tensors(), saved[0], strict=True):
            tensor.detach().copy_(value)
        if random:
            torch.cuda.set_rng_state(saved[1])

    return save, load


def checkpoints__load_state_dict(net, optimizer):
    def save():
        kept = copy.deepcopy((net.state_dict(), optimizer.state_dict()))
        return *kept, torch.cuda.get_rng_state()

    def load(saved):
        net.load_state_dict(saved[0])
        optimizer.load_state_dict(saved[1])
        torch.cuda.set_rng_state(saved[2])

    return save, load


def checkpoints__weights_alone(net, optimizer):
    return in_place(net, optimizer, keys=())


def checkpoints__no_step_count(net, optimizer):
    return in_place(net, optimizer, keys=("exp_avg", "exp_avg_sq"))


def checkpoints__no_random_state(net, optimizer):
    return in_place(net, optimizer, random=False)


def checkpoints__no_learning_rate(net, optimizer):
    return in_place(net, optimizer, rate=False)


def checkpoints__no_buffers(net, optimizer):
    return in_place(net, optimizer, buffers=False)


def checkpoints__not_cloned(net, optimizer):
    return in_place(net, optimizer, change=torch.detach)


def checkpoints__new_learning_rate(net, optimizer):
    save, load = in_place(net, optimizer)

    def load_all(saved):
        load(saved)
        optimizer.param_groups[0]["lr"] = saved[0][-1].clone()

    return save, load_all


def checkpoints__new_weights(net, optimizer):
    save, load = in_place(net, optimizer)

    def load_all(saved):
        load(saved)
        for name, weight in list(net.named_parameters()):
            module, _, own = name.rpartition(".")
            setattr(net.get_submodule(module), own, torch.nn.Parameter(weight.detach().clone()))

    return save, load_all


def checkpoints__right_by_state_dicts(net, optimizer):
    def save():
        kept = copy.deepcopy((net.state_dict(), optimizer.state_dict()))
        return *kept, torch.cuda.get_rng_state()

    def load(saved):
        net.load_state_dict(saved[0])
        for state, kept in zip(optimizer.state.values(), saved[1]["state"].values(), strict=True):
            for key, value in kept.items():
                state[key].copy_(value)
        optimizer.param_groups[0]["lr"].copy_(saved[1]["param_groups"][0]["lr"])
        torch.cuda.set_rng_state(saved[2])

    return save, load


def two_graphs(
    net,
    optimizer,
    batch,
    train_mode=True,
    eval_mode=True,
    keep=(0, 1),
    pools=1,
    grad=False,
    trains=False,
):
    """The replays of a step and of an evaluation; keep: what unchanged restores."""

    def step(inputs, targets):
        net.train(train_mode)
        optimizer.zero_grad()
        loss = mse_loss(net(inputs), targets)
        loss.backward()
        optimizer.step()
        return loss.detach()

    def loss_of(inputs, targets):
        net.train(not eval_mode)
        with torch.set_grad_enabled(grad or trains):
            loss = mse_loss(net(inputs), targets)
        if trains:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss.detach()
        return loss

    handles = [torch.cuda.graph_pool_handle() for _ in range(pools)]
    with unchanged(*[(net, optimizer)[number] for number in keep]):
        step_inputs = [tensor.clone() for tensor in batch]
        replay_step = capture_step(step, *step_inputs, pool=handles[0])
        loss_inputs = [tensor.clone() for tensor in batch]
        replay_loss = capture_step(loss_of, *loss_inputs, pool=handles[-1])
    return replay_step, replay_loss


def cloning(replays):
    def train(*batch):
        return replays[0](*batch).clone()

    def evaluate(*batch):
        return replays[1](*batch).clone()

    return train, evaluate


def train_and_evaluate__no_dropout_in_training(net, optimizer, *batch):
    return cloning(two_graphs(net, optimizer, batch, train_mode=False))


def train_and_evaluate__dropout_in_evaluation(net, optimizer, *batch):
    return cloning(two_graphs(net, optimizer, batch, eval_mode=False))


def train_and_evaluate__two_pools(net, optimizer, *batch):
    return cloning(two_graphs(net, optimizer, batch, pools=2))


def train_and_evaluate__with_gradients(net, optimizer, *batch):
    return cloning(two_graphs(net, optimizer, batch, grad=True))


def train_and_evaluate__nothing_restored(net, optimizer, *batch):
    return cloning(two_graphs(net, optimizer, batch, keep=()))


def train_and_evaluate__momentum_not_restored(net, optimizer, *batch):
    return cloning(two_graphs(net, optimizer, batch, keep=(0,)))


def train_and_evaluate__not_cloned(net, optimizer, *batch):
    return two_graphs(net, optimizer, batch)


def train_and_evaluate__evaluation_trains(net, optimizer, *batch):
    return cloning(two_graphs(net, optimizer, batch, trains=True))


def train_and_evaluate__D7_captured_on_the_callers_tensors(net, optimizer, inputs, targets):
    def step():
        net.train()
        optimizer.zero_grad()
        loss = mse_loss(net(inputs), targets)
        loss.backward()
        optimizer.step()
        return loss.detach()

    @torch.no_grad()
    def loss_of():
        net.eval()
        return mse_loss(net(inputs), targets)

    pool = torch.cuda.graph_pool_handle()
    with unchanged(net, optimizer):
        replay_step = capture_step(step, pool=pool)
        replay_loss = capture_step(loss_of, pool=pool)

    def call(replay, new_inputs, new_targets):
        inputs.copy_(new_inputs)
        targets.copy_(new_targets)
        return replay().clone()

    return partial(call, replay_step), partial(call, replay_loss)


def train_and_evaluate__old_inputs(net, optimizer, *batch):
    replay_step, replay_loss = two_graphs(net, optimizer, batch)

    def train(*batch):
        return replay_step().clone()

    def evaluate(*batch):
        return replay_loss().clone()

    return train, evaluate


def train_and_evaluate__eager_evaluation(net, optimizer, *batch):
    train, _ = cloning(two_graphs(net, optimizer, batch))

    @torch.no_grad()
    def evaluate(inputs, targets):
        net.eval()
        return mse_loss(net(inputs), targets)

    return train, evaluate


changed(
    train_and_evaluate__D7_captured_on_the_callers_tensors,
    right_pool_of_the_first={
        "def step():":
            "inputs, targets = (inputs.clone(), targets.clone())\n"
            "def step():",
        "@torch.no_grad()": "@torch.inference_mode()",
        "pool = torch.cuda.graph_pool_handle()": "",
        "replay_step = capture_step(step, pool=pool)": "replay_step = capture_step(step)",
        "(loss_of, pool=pool)": "(loss_of, pool=replay_step.graph.pool())",
    },
)
