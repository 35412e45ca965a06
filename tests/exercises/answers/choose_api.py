"""Answers to the exercises of *Choose an API*: wrong ones, and other right ones (`__right_`)."""


def train_as_advised__captured_in_the_first_call(net, optimizer, inputs, targets, found):
    made = []

    def train(inputs, targets):
        if not made:
            made.append(train_as_advised(net, optimizer, inputs, targets, found))
        return made[0](inputs, targets)

    return train


changed(
    train_as_advised,
    always_a_graph={"found['idle'] < 0.2": "False"},
    always_eager={"found['idle'] < 0.2": "True"},
    always_the_whole_step={"found['optimizer'] > 1": "True"},
    optimizer_always_outside={"found['optimizer'] > 1": "False"},
    gradients_lost={"if not whole:": "…\n    optimizer.zero_grad()"},
    network_alone={
        "captured = step if whole else forward_backward":
            "captured = step if whole else lambda x, y: mse_loss(net(x), y).detach()",
        "if not whole:": "…\n    forward_backward(inputs, targets)",
    },
    weights_trained={"unchanged(net, optimizer)": "unchanged(optimizer)"},
    momentum_left={"unchanged(net, optimizer)": "unchanged(net)"},
    captured_on_the_callers_tensors={"inputs.clone(), targets.clone()": "inputs, targets"},
    right_gradients_zeroed={"optimizer.zero_grad()": "optimizer.zero_grad(set_to_none=False)"},
)


def graph_around_read__both_branches_run(first, left, right, inputs):
    def both(inputs):
        hidden = first(inputs)
        return torch.where(hidden.mean() > 0, left(hidden), right(hidden))

    with torch.no_grad():
        replay = capture_step(both, inputs.clone())
    return lambda inputs: replay(inputs).clone()


def graph_around_read__eager(first, left, right, inputs):
    @torch.no_grad()
    def predict(inputs):
        hidden = first(inputs)
        return left(hidden) if hidden.mean() > 0 else right(hidden)

    return predict


changed(
    graph_around_read,
    captured_in_each_call={
        "return predict":
            "return lambda inputs: graph_around_read(first, left, right, inputs)(inputs)",
    },
    if_at_capture={
        "replay_right = capture_step(right, hidden)":
            "…\nreplay = replay_left if hidden.mean() > 0 else replay_right",
        "replay = replay_left if hidden.mean() > 0 else replay_right": "",
    },
    sample_in_every_branch={
        "= replay_first(inputs)\nreplay_left": "= replay_first(inputs).clone()\nreplay_left",
    },
    all_three_replayed={
        "replay = replay_left if hidden.mean() > 0 else replay_right": "",
        "replay().clone()": "torch.where(hidden.mean() > 0, replay_left(), replay_right())",
    },
    branches_swapped={"hidden.mean() > 0": "hidden.mean() <= 0"},
    inputs_not_copied={
        "hidden = replay_first(inputs)\nreplay =": "hidden = replay_first()\nreplay =",
    },
    right_hidden_copied={
        "(left, hidden)": "(left, hidden.clone())",
        "(right, hidden)": "(right, hidden.clone())",
        "if hidden.mean() > 0 else replay_right": "if hidden.mean().item() > 0 else replay_right",
        "return replay().clone()": "return replay(hidden).clone()",
    },
)


changed(
    graph_around_read__both_branches_run,
    read_in_the_capture={
        "return torch.where(hidden.mean() > 0, left(hidden), right(hidden))":
            "return left(hidden) if hidden.mean() > 0 else right(hidden)",
    },
)
