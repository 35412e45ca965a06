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
    not_cloned={"(first_output.clone(), second_output.clone())": "(first_output, second_output)"},
)


def smallest_pool__right_mempool(net, samples):
    pool = torch.cuda.MemPool()
    replays = {}
    for sample in sorted(samples, key=len, reverse=True):
        replays[len(sample)] = capture_step(lambda x: net(x)[0], sample.clone(), pool=pool.id)
    return lambda inputs: replays[len(inputs)](inputs).clone()


def smallest_pool__one_graph_for_all(net, samples):
    largest = max(samples, key=len).clone()
    replay = capture_step(lambda x: net(x)[0], largest)

    def predict(inputs):
        largest[: len(inputs)].copy_(inputs)
        return replay()[: len(inputs)].clone()

    return predict


def smallest_pool__eager(net, samples):
    return lambda inputs: net(inputs)[0]


changed(
    smallest_pool,
    as_they_come={"sorted(samples, key=len, reverse=True)": "samples"},
    smallest_first={"reverse=True": "reverse=False"},
    a_pool_each={"pool=pool": "pool=None"},
    hidden_held={
        "return net(inputs)[0]": "return net(inputs)",
        "replays[len(inputs)](inputs)": "replays[len(inputs)](inputs)[0]",
    },
)


changed(
    layer_means,
    eager={"capture_step(forward, sample.clone())": "forward"},
    right_sum={"hidden.mean()": "hidden.sum() / hidden.numel()"},
    previous_kept={"hidden = layer(hidden)": "before, hidden = (hidden, layer(hidden))"},
)
