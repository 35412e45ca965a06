"""Answers to the exercises of *Choose an API*: wrong ones, and other right ones (`__right_`)."""


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
    not_cloned={"replay().clone()": "replay()"},
    inputs_not_copied={
        "hidden = replay_first(inputs)\nreplay =": "hidden = replay_first()\nreplay =",
    },
    captured_on_the_callers_tensor={"(first, inputs.clone())": "(first, inputs)"},
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


def replay_or_eager__always_replayed(function, inputs):
    replay = capture_step(function, inputs.clone())
    return lambda new_inputs: replay(new_inputs).clone()


def replay_or_eager__captured_for_each_shape(function, inputs):
    replays = {}

    def call(new_inputs):
        key = (new_inputs.shape, new_inputs.dtype)
        if key not in replays:
            replays[key] = capture_step(function, new_inputs.clone())
        return replays[key](new_inputs).clone()

    return call


changed(
    replay_or_eager,
    eager={"return call": "return function"},
    shape_only={"new_inputs.dtype == inputs.dtype": "True"},
    dtype_only={"new_inputs.shape == inputs.shape": "len(new_inputs) in (1, len(inputs))"},
    rows_only={"new_inputs.shape == inputs.shape": "len(new_inputs) == len(inputs)"},
    not_cloned={"replay(new_inputs).clone()": "replay(new_inputs)"},
    inputs_not_copied={"replay(new_inputs)": "replay()"},
    captured_on_the_callers_tensor={"inputs.clone()": "inputs"},
    right_compared_at_once={
        "new_inputs.shape == inputs.shape and new_inputs.dtype == inputs.dtype":
            "(new_inputs.shape, new_inputs.dtype) == (inputs.shape, inputs.dtype)",
    },
)
