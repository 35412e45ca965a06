"""Answers to the exercises of *Capture a training step*: wrong ones, and other right ones (`__right_`)."""

changed(
    train_epoch,
    the_callers_batch_is_static={"[tensor.clone() for tensor in batches[0]]": "batches[0]"},
    read_in_every_step={"replay(*batch).clone()": "replay(*batch).item()"},
    captured_in_the_loop={
        "losses.append(replay(*batch).clone())":
            "with unchanged(net, optimizer):\n"
            "    replay = capture_step(step, *[tensor.clone() for tensor in batch])\n"
            "losses.append(replay().clone())",
    },
    right_copied_in_the_loop={
        "capture_step(step, *static_batch)": "capture_step(lambda: step(*static_batch))",
        "losses = []": "losses = torch.zeros(len(batches), device='cuda')",
        "for batch in batches:": "for number, (inputs, targets) in enumerate(batches):",
        "losses.append(replay(*batch).clone())":
            "static_batch[0].copy_(inputs)\n"
            "static_batch[1].copy_(targets)\n"
            "losses[number] = replay()",
    },
)


changed(
    log_and_capture,
    detached_in_the_end={
        "with torch.no_grad():": "with torch.enable_grad():",
        "(norm, train)": "(norm.detach(), train)",
    },
    with_gradients={
        "with torch.no_grad():": "with torch.enable_grad():",
        "def train(inputs, targets):": "norm = sum(weight.norm() for weight in net.parameters())\n…",
    },
    of_the_squares={".sqrt()": ""},
    right_without_gradients={"torch.no_grad()": "torch.inference_mode()"},
    right_a_number={
        "with torch.no_grad():": "with torch.enable_grad():",
        ".sqrt()": ".sqrt().item()",
    },
    right_detached={
        "with torch.no_grad():": "with torch.enable_grad():",
        ".sqrt()": ".sqrt().detach()",
    },
)


def continue_with_graph__right_with_unchanged(net, optimizer, step, *static_batch):
    with unchanged(net, optimizer):
        replay = capture_step(step, *[tensor.clone() for tensor in static_batch])
    return lambda *batch: replay(*batch).clone()


changed(
    continue_with_graph,
    parameters_alone={
        "tensor.clone() for name, tensor in net.state_dict().items()":
            "tensor.detach().clone() for name, tensor in net.named_parameters()",
        "net.load_state_dict(weights)": "net.load_state_dict(weights, strict=False)",
    },
    momentum_zeroed={"state['momentum_buffer'].copy_(value)": "state['momentum_buffer'].zero_()"},
    momentum_left={"state['momentum_buffer'].copy_(value)": "pass"},
    momentum_replaced={"state['momentum_buffer'].copy_(value)": "state['momentum_buffer'] = value"},
    state_dict_not_cloned={
        "{name: tensor.clone() for name, tensor in net.state_dict().items()}": "net.state_dict()",
    },
    on_the_default_stream={
        "replay = capture_step(step, inputs.clone(), targets.clone())":
            "step(inputs, targets)\n"
            "replay = capture_step(step, inputs.clone(), targets.clone(), warmup=0)",
    },
)


changed(
    capture_training,
    momentum_left={"unchanged(net, optimizer)": "unchanged(net)"},
    state_loaded={
        "with unchanged(net, optimizer):": "before = optimizer.state_dict()\nwith unchanged(net):",
        "def train(inputs, targets):": "optimizer.load_state_dict(before)\n…",
    },
    random_numbers_used_up={"def train(inputs, targets):": "torch.rand(1, device='cuda')\n…"},
    no_warm_up={"inputs.clone(), targets.clone()": "inputs.clone(), targets.clone(), warmup=0"},
    optimizer_outside={
        "torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1)\noptimizer.step()": "",
        "return replay(inputs, targets).clone()":
            "loss = replay(inputs, targets).clone()\n"
            "torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1)\n"
            "optimizer.step()\n"
            "return loss",
    },
    not_clipped={"torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1)": ""},
    no_zero_grad={"optimizer.zero_grad(set_to_none=True)": ""},
    dropped_outside={
        "optimizer.zero_grad(set_to_none=True)": "",
        "return replay(inputs, targets).clone()": "optimizer.zero_grad(set_to_none=True)\n…",
    },
    on_the_default_stream={"with unchanged(net, optimizer):": "…\n    step(inputs, targets)"},
    right_zeroed_in_place={"set_to_none=True": "set_to_none=False"},
)
