"""Answers to the exercises of *Share memory pools*: wrong ones, and other right ones (`__right_`)."""


def two_models__right_own_streams(first, second, sample):
    static_input = sample.clone()
    graphs, outputs, streams = [], [], []
    for model in (first, second):
        model(static_input)
        graphs.append(torch.cuda.CUDAGraph())
        streams.append(torch.cuda.Stream())
        with torch.cuda.graph(graphs[-1], stream=streams[-1]):
            outputs.append(model(static_input))

    def predict(inputs):
        static_input.copy_(inputs)
        for graph, stream in zip(graphs, streams, strict=True):
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                graph.replay()
        for stream in streams:
            torch.cuda.current_stream().wait_stream(stream)
        return [output.clone() for output in outputs]

    return predict


def two_models__one_after_the_other(first, second, sample):
    static_input = sample.clone()
    pool = torch.cuda.graph_pool_handle()
    replay_first = capture_step(partial(first, static_input), pool=pool)
    replay_second = capture_step(partial(second, static_input), pool=pool)

    def predict(inputs):
        static_input.copy_(inputs)
        return replay_first().clone(), replay_second().clone()

    return predict


def two_models__one_stream(first, second, sample):
    replay_first = capture_step(first, sample.clone())
    replay_second = capture_step(second, sample.clone())
    return lambda inputs: (replay_first(inputs).clone(), replay_second(inputs).clone())


def two_models__eager(first, second, sample):
    return lambda inputs: (first(inputs), second(inputs))


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
