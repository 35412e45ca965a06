"""Answers to the exercises of *Train a language model*: wrong ones, and other right ones (`__right_`)."""

import copy


changed(
    accumulating_step,
    never_zeroed={
        "optimizer.zero_grad()": "",
        "with unchanged(net, optimizer):":
            "for weight in net.parameters():\n"
            "    weight.grad = torch.zeros_like(weight)\n"
            "…",
    },
    zeroed_between_micro_batches={
        "optimizer.zero_grad()": "",
        "loss.backward()": "optimizer.zero_grad()\n…",
    },
    not_clipped={"clip_grad_norm_(net.parameters(), 1.0)": ""},
    clipped_for_each_micro_batch={
        "clip_grad_norm_(net.parameters(), 1.0)": "",
        "loss.backward()": "…\nclip_grad_norm_(net.parameters(), 1.0)",
    },
    not_divided={" / len(inputs)": ""},
    only_the_sum_is_divided={
        " / len(inputs)": "",
        "stack(losses).sum()": "stack(losses).mean()",
    },
    nothing_restored={"unchanged(net, optimizer)": "unchanged()"},
    lr_is_a_number={"lr.fill_(new_lr)": "optimizer.param_groups[0]['lr'] = new_lr"},
    eager={"replay(inputs, targets).clone()": "step(inputs, targets)"},
    clipped_to_a_tenth_more={"net.parameters(), 1.0": "net.parameters(), 1.1"},
    all_micro_batches_at_once={
        "zip(inputs, targets, strict=True)": "[(inputs.flatten(0, 1), targets.flatten(0, 1))]",
        " / len(inputs)": "",
    },
    captured_on_the_callers_tensors={"inputs.clone(), targets.clone()": "inputs, targets"},
    rate_written_after_the_replay={
        "lr.fill_(new_lr)": "",
        "return replay(inputs, targets).clone()":
            "loss = replay(inputs, targets).clone()\n"
            "lr.fill_(new_lr)\n"
            "return loss",
    },
    not_cloned={"replay(inputs, targets).clone()": "replay(inputs, targets)"},
    not_copied_in={"replay(inputs, targets)": "replay()"},
    right_lr_by_copy={"lr.fill_(new_lr)": "lr.copy_(torch.tensor(new_lr))"},
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
    resumed_losses,
    loaded_after_the_capture={
        "net.load_state_dict(checkpoint['model'])\n"
        "optimizer.load_state_dict(checkpoint['optimizer'])\n"
        "scheduler.load_state_dict(checkpoint['scheduler'])": "",
        "losses = []":
            "net.load_state_dict(checkpoint['model'])\n"
            "optimizer.load_state_dict(checkpoint['optimizer'])\n"
            "scheduler.load_state_dict(checkpoint['scheduler'])\n"
            "…",
    },
    nothing_restored={"unchanged(net, optimizer)": "unchanged()"},
    weights_alone_restored={"unchanged(net, optimizer)": "unchanged(net)"},
    no_scheduler={"scheduler.load_state_dict(checkpoint['scheduler'])": ""},
    no_optimizer={"optimizer.load_state_dict(checkpoint['optimizer'])": ""},
    no_random_state={"torch.cuda.set_rng_state(checkpoint['rng_state'])": ""},
    never_stepped={"scheduler.step()": ""},
    not_cloned={"replay(inputs, targets).clone()": "replay(inputs, targets)"},
    eager={"replay(inputs, targets).clone()": "step(inputs, targets)"},
    a_graph_for_each_step={
        "losses.append(replay(inputs, targets).clone())":
            "with unchanged(net, optimizer):\n"
            "    replay = capture_step(step, inputs.clone(), targets.clone())\n"
            "losses.append(replay().clone())",
    },
    right_loaded_in_place={
        "net.load_state_dict(checkpoint['model'])":
            "replay = capture_step(step, *[tensor.clone() for tensor in batches[0]])\n…",
        "optimizer.load_state_dict(checkpoint['optimizer'])":
            "saved = checkpoint['optimizer']\n"
            "for number, state in enumerate(optimizer.state.values()):\n"
            "    for key, tensor in state.items():\n"
            "        tensor.copy_(saved['state'][number][key])\n"
            "optimizer.param_groups[0]['lr'].copy_(saved['param_groups'][0]['lr'])",
        "with unchanged(net, optimizer):\n"
        "    replay = capture_step(step, *[tensor.clone() for tensor in batches[0]])": "",
    },
    half_eager={
        "for inputs, targets in batches[checkpoint['step']:]:\n"
        "    losses.append(replay(inputs, targets).clone())":
            "for number, (inputs, targets) in enumerate(batches[checkpoint['step']:]):\n"
            "    call = step if number < 4 else replay\n"
            "    losses.append(call(inputs, targets).clone())",
    },
    right_the_warm_up_trains={
        "with unchanged(net, optimizer):\n"
        "    replay = capture_step(step, *[tensor.clone() for tensor in batches[0]])\n"
        "losses = []\n"
        "for inputs, targets in batches[checkpoint['step']:]:\n"
        "    losses.append(replay(inputs, targets).clone())":
            "call, losses = (step, [])\n"
            "for number, (inputs, targets) in enumerate(batches[checkpoint['step']:]):\n"
            "    if number == 3:\n"
            "        call = capture_step(step, inputs.clone(), targets.clone(), warmup=0)\n"
            "    losses.append(call(inputs, targets).clone())",
    },
)


def checkpoints__load_state_dict(net, optimizer):
    def save():
        kept = copy.deepcopy((net.state_dict(), optimizer.state_dict()))
        return *kept, torch.cuda.get_rng_state()

    def load(saved):
        net.load_state_dict(saved[0])
        optimizer.load_state_dict(saved[1])
        torch.cuda.set_rng_state(saved[2])

    return save, load


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


changed(
    checkpoints,
    no_step_count={"state.values()]": "(state['exp_avg'], state['exp_avg_sq'])]"},
    weights_alone={"*states, ": ""},
    no_random_state={"torch.cuda.set_rng_state(rng_state)": ""},
    no_learning_rate={", optimizer.param_groups[0]['lr']": ""},
    no_buffers={"*net.state_dict().values()": "*(weight.detach() for weight in net.parameters())"},
    not_cloned={"tensor.clone()": "tensor"},
    new_learning_rate={
        "torch.cuda.set_rng_state(rng_state)":
            "…\noptimizer.param_groups[0]['lr'] = saved[-1].clone()",
    },
    new_weights={
        "torch.cuda.set_rng_state(rng_state)":
            "…\n"
            "for name, weight in list(net.named_parameters()):\n"
            "    module, _, own = name.rpartition('.')\n"
            "    new_weight = torch.nn.Parameter(weight.detach().clone())\n"
            "    setattr(net.get_submodule(module), own, new_weight)",
    },
)
