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
            "torch.cuda.synchronize()\n"
            "second_output = replay_second()",
        "second_output = replay_second()\n"
        "torch.cuda.current_stream().wait_stream(side_stream)": "torch.cuda.synchronize()",
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


def graphs_in_one_pool__right_pool_of_the_first(net, samples):
    order = sorted(range(len(samples)), key=lambda number: -len(samples[number]))
    replays = [None] * len(samples)
    pool = None
    for number in order:
        replays[number] = capture_step(net, samples[number].clone(), pool=pool)
        pool = replays[number].graph.pool()
    return [lambda inputs, replay=replay: replay(inputs).clone() for replay in replays]


def graphs_in_one_pool__right_mempool(net, samples):
    mempool = torch.cuda.MemPool()
    replays = {}
    for sample in sorted(samples, key=len, reverse=True):
        replays[len(sample)] = capture_step(net, sample.clone(), pool=mempool.id)
    return [lambda x: replays[len(x)](x).clone()] * len(samples)


@torch.inference_mode()
def graphs_in_one_pool__right_copied_out(net, samples):
    largest = max(samples, key=len)
    static_input = torch.zeros_like(largest)
    net(static_input)
    pool = torch.cuda.graph_pool_handle()
    graphs = {}
    static_output = torch.empty_like(net(largest))
    for rows in sorted(map(len, samples), reverse=True):
        graphs[rows] = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graphs[rows], pool=pool):
            static_output[:rows].copy_(net(static_input[:rows]))

    @torch.inference_mode()
    def predict(inputs):
        static_input[: len(inputs)].copy_(inputs)
        graphs[len(inputs)].replay()
        return static_output[: len(inputs)].clone()

    return [predict for _ in samples]


def graphs_in_one_pool__late_binding(net, samples):
    pool = torch.cuda.graph_pool_handle()
    functions, latest = {}, {}
    for number in sorted(range(len(samples)), key=lambda i: -len(samples[i])):
        latest["replay"] = capture_step(net, samples[number].clone(), pool=pool)
        functions[number] = lambda inputs: latest["replay"](inputs).clone()
    return [functions[number] for number in range(len(samples))]


def graphs_in_one_pool__only_the_largest(net, samples):
    largest = max(samples, key=len)
    replay = capture_step(net, largest.clone())

    def predict(inputs):
        padded = torch.zeros_like(largest)
        padded[: len(inputs)] = inputs
        return replay(padded)[: len(inputs)].clone()

    return [predict] * len(samples)


def graphs_in_one_pool__eager(net, samples):
    return [net] * len(samples)


def graphs_in_one_pool__one_function(net, samples):
    replay = capture_step(net, samples[0].clone())
    return lambda inputs: replay(inputs).clone()


changed(
    graphs_in_one_pool,
    as_they_come={
        "sorted(range(len(samples)), key=lambda i: len(samples[i]), reverse=True)":
            "range(len(samples))",
    },
    in_sorted_order={
        "[functions[number] for number in range(len(samples))]": "list(functions.values())",
    },
    a_pool_each={"sample.clone(), pool=pool": "sample.clone()"},
    not_cloned={"lambda inputs: replay(inputs).clone()": "replay"},
)
