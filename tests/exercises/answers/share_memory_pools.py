"""Answers to the exercises of *Share memory pools*: wrong ones, and other right ones (`__right_`)."""


def two_models__one_stream(first, second, sample):
    replay_first = capture_step(first, sample.clone())
    replay_second = capture_step(second, sample.clone())
    return lambda inputs: (replay_first(inputs).clone(), replay_second(inputs).clone())


def two_models__eager(first, second, sample):
    return lambda inputs: (first(inputs), second(inputs))


changed(
    two_models__as_given,
    one_after_the_other={
        "with torch.cuda.stream(side_stream):": "if True:",
        "first_output = replay_first()": "….clone()",
    },
)


changed(
    two_models,
    second_waits_for_the_first={
        "second_output = replay_second()":
            "torch.cuda.current_stream().wait_stream(side_stream)\n…",
    },
    right_synchronized_at_the_end={
        "side_stream.wait_stream(torch.cuda.current_stream())":
            "torch.cuda.synchronize()\nsecond_output = replay_second()",
        "second_output = replay_second()\ntorch.cuda.current_stream().wait_stream(side_stream)":
            "torch.cuda.synchronize()",
    },
    nobody_waits_for_the_end={"torch.cuda.current_stream().wait_stream(side_stream)": ""},
    not_cloned={"(first_output.clone(), second_output.clone())": "(first_output, second_output)"},
)


changed(
    still_right,
    earlier_replays={"order[i + 1:]": "order[:i]"},
    next_replay_only={"order[i + 1:]": "order[i + 1:i + 2]"},
    other_way_round={"overwrites.loc[later, rows]": "overwrites.loc[rows, later]"},
    itself_too={"order[i + 1:]": "order[i:]"},
    overwritten={"[not one for one in overwritten]": "overwritten"},
)
