"""Answers to the exercises of *Find where graphs pay*: wrong ones, and other right ones (`__right_`)."""

import gc


def time_capture__collects(step, inputs, targets, clock):
    torch.cuda.synchronize()
    start = clock()
    side_stream = torch.cuda.Stream()
    with torch.cuda.stream(side_stream):
        for _ in range(3):
            step(inputs, targets)
    torch.cuda.synchronize()
    warmed_up = clock()
    gc.collect()
    capture_step(step, inputs, targets, warmup=0)
    return warmed_up - start, clock() - warmed_up


def time_capture__warms_up_twice(step, inputs, targets, clock):
    torch.cuda.synchronize()
    start = clock()
    for _ in range(3):
        step(inputs, targets)
    torch.cuda.synchronize()
    warmed_up = clock()
    capture_step(step, inputs, targets)
    return warmed_up - start, clock() - warmed_up


def time_capture__milliseconds(step, inputs, targets, clock):
    seconds = time_capture(step, inputs, targets, clock)
    return tuple(1e3 * part for part in seconds)


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
    time_capture__collects,
    replays={
        "gc.collect()": "capture_step(step, inputs, targets, warmup=0)()",
        "capture_step(step, inputs, targets, warmup=0)": "torch.cuda.synchronize()",
    },
)


def train_from_warm_up__on_the_first_batch(step, batches):
    inputs, targets = batches[0]
    losses = []
    side_stream = torch.cuda.Stream()
    side_stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side_stream):
        for _ in range(3):
            losses.append(step(inputs, targets))
    torch.cuda.current_stream().wait_stream(side_stream)
    replay = capture_step(step, inputs.clone(), targets.clone(), warmup=0)
    return losses + [replay(*batch).clone() for batch in batches[3:]]


def train_from_warm_up__warms_up_again(step, batches):
    losses = [step(*batch) for batch in batches[:3]]
    inputs, targets = batches[3]
    replay = capture_step(step, inputs.clone(), targets.clone())
    return losses + [replay(*batch).clone() for batch in batches[3:]]


def train_from_warm_up__not_cloned(step, batches):
    losses = [step(*batch) for batch in batches[:3]]
    inputs, targets = batches[3]
    replay = capture_step(step, inputs.clone(), targets.clone(), warmup=0)
    return losses + [replay(*batch) for batch in batches[3:]]


def train_from_warm_up__one_batch(step, batches):
    losses = [step(*batch) for batch in batches[:3]]
    inputs, targets = batches[3]
    replay = capture_step(step, inputs.clone(), targets.clone(), warmup=0)
    return losses + [replay().clone() for _ in batches[3:]]


def train_from_warm_up__overwrites_a_batch(step, batches):
    losses = [step(*batch) for batch in batches[:3]]
    replay = capture_step(step, *batches[0], warmup=0)
    return losses + [replay(*batch).clone() for batch in batches[3:]]


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


def in_graph(net, inputs):
    with torch.no_grad():
        replay = capture_step(net, inputs.clone())
    return lambda inputs: replay(inputs).clone()


def graph_if_it_pays__always(net, inputs, calls, step_us, busy_us, capture_us):
    return in_graph(net, inputs)


def graph_if_it_pays__never(net, inputs, calls, step_us, busy_us, capture_us):
    return net


def graph_if_it_pays__saves_the_whole_call(net, inputs, calls, step_us, busy_us, capture_us):
    return net if calls * step_us < capture_us else in_graph(net, inputs)


def graph_if_it_pays__one_call(net, inputs, calls, step_us, busy_us, capture_us):
    return net if step_us - busy_us < capture_us else in_graph(net, inputs)


def graph_if_it_pays__busy_time(net, inputs, calls, step_us, busy_us, capture_us):
    return net if calls * busy_us < capture_us else in_graph(net, inputs)


def graph_if_it_pays__only_the_limit(net, inputs, calls, step_us, busy_us, capture_us):
    return net if step_us <= busy_us else in_graph(net, inputs)


def graph_if_it_pays__captured_each_time(net, inputs, calls, step_us, busy_us, capture_us):
    if calls * (step_us - busy_us) < capture_us:
        return net
    return lambda inputs: in_graph(net, inputs)(inputs)


def graph_if_it_pays__with_gradients(net, inputs, calls, step_us, busy_us, capture_us):
    if calls * (step_us - busy_us) < capture_us:
        return net
    replay = capture_step(net, inputs.clone())
    return lambda inputs: replay(inputs).clone()


def graph_if_it_pays__not_cloned(net, inputs, calls, step_us, busy_us, capture_us):
    if calls * (step_us - busy_us) < capture_us:
        return net
    with torch.no_grad():
        return capture_step(net, inputs.clone())


def graph_if_it_pays__overwrites_the_inputs(net, inputs, calls, step_us, busy_us, capture_us):
    if calls * (step_us - busy_us) < capture_us:
        return net
    with torch.no_grad():
        replay = capture_step(net, inputs)
    return lambda inputs: replay(inputs).clone()


def graph_if_it_pays__first_inputs(net, inputs, calls, step_us, busy_us, capture_us):
    if calls * (step_us - busy_us) < capture_us:
        return net
    with torch.no_grad():
        replay = capture_step(net, inputs)
    return lambda inputs: replay().clone()


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
