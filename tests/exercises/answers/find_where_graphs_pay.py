"""Answers to the exercises of *Find where graphs pay*: wrong ones, and other right ones (`__right_`)."""

import gc


def time_capture__right_capture_step(step, inputs, targets, clock):
    side_stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    start = clock()
    with torch.cuda.stream(side_stream):
        for _ in range(3):
            step(inputs, targets)
    side_stream.synchronize()
    warm_up = clock() - start

    gc.collect()
    start = clock()
    capture_step(step, inputs, targets, warmup=0)
    return warm_up, clock() - start


changed(
    time_capture,
    collects={"graph = torch.cuda.CUDAGraph()": "gc.collect()\n…"},
    warms_up_twice={
        "graph = torch.cuda.CUDAGraph()":
            "for _ in range(3):\n"
            "    step(inputs, targets)\n"
            "…",
    },
    replays={
        "captured = clock()":
            "graph.replay()\n"
            "torch.cuda.synchronize()\n"
            "…",
    },
    milliseconds={"warmed_up - start, captured": "1000 * (warmed_up - start), 1000 * captured"},
)


def train_from_warm_up__eager(step, batches):
    return [step(*batch) for batch in batches]


def train_from_warm_up__right_by_hand(step, batches):
    side_stream = torch.cuda.Stream()
    side_stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side_stream):
        losses = [step(*batch) for batch in batches[:3]]
    torch.cuda.current_stream().wait_stream(side_stream)

    static_batch = [tensor.clone() for tensor in batches[0]]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        static_loss = step(*static_batch)
    for batch in batches[3:]:
        for static, new in zip(static_batch, batch, strict=True):
            static.copy_(new)
        graph.replay()
        losses.append(static_loss.clone())
    return losses


changed(
    train_from_warm_up,
    on_the_first_batch={"losses.append(step(inputs, targets))": "losses.append(step(*batches[0]))"},
    warms_up_again={", warmup=0": ""},
    not_cloned={"replay(inputs, targets).clone()": "replay(inputs, targets)"},
    one_batch={"replay(inputs, targets)": "replay()"},
    overwrites_a_batch={"inputs.clone(), targets.clone()": "inputs, targets"},
)


def graph_if_it_pays__captured_each_time(net, inputs, *costs):
    return lambda inputs: graph_if_it_pays(net, inputs, *costs)(inputs)


def graph_if_it_pays__right_break_even(net, inputs, calls, step_us, busy_us, capture_us):
    if busy_us >= step_us or calls < capture_us / (step_us - busy_us):
        return net
    graph, static_inputs = torch.cuda.CUDAGraph(), inputs.clone()
    with torch.inference_mode():
        net(static_inputs)
        with torch.cuda.graph(graph):
            output = net(static_inputs)

    def predict(inputs):
        static_inputs.copy_(inputs)
        graph.replay()
        return output.clone()

    return predict


changed(
    graph_if_it_pays,
    saves_the_whole_call={"(step_us - busy_us)": "step_us"},
    one_call={"calls * (step_us - busy_us)": "step_us - busy_us"},
    busy_time={"(step_us - busy_us)": "busy_us"},
    only_the_limit={"saved_us < capture_us": "step_us <= busy_us"},
    with_gradients={"torch.no_grad()": "torch.enable_grad()"},
    not_cloned={"replay(inputs).clone()": "replay(inputs)"},
    overwrites_the_inputs={"inputs.clone()": "inputs"},
    first_inputs={"replay(inputs)": "replay()"},
)
